"""A sensible report at every level of data: nothing, an hour, a tenant, engines alone, events,
roll-ups, thousands of templates."""

import pytest

from dashboard.report import FORMATS, WeekReport, render, summary, words
from dashboard.report.markdown_parts import escaped
from tests.unit_report.conftest import Memory, at, same


def shown(report: WeekReport) -> str:
    """The report in every form, one text."""
    return "\n".join(render(report, form).decode() for form in FORMATS)


def sections_missing(report: WeekReport) -> dict[str, str]:
    return {gap.section: gap.step for gap in report.missing}


def test_an_empty_store_says_so_and_what_to_do(memory: Memory) -> None:
    report = memory.report()
    assert report.headline.basis == "none"
    assert report.headline.sentence == "No token hit ratio in 2026-W48: no traffic is known."
    assert sections_missing(report) == {
        "headline": "prefixscope ingest requests.jsonl --source gateway"
    }
    text = shown(report)
    assert "0.0 %" not in text
    assert "NaN" not in text
    assert len(report.hours) == 168
    assert summary(report).startswith("Cache report 2026-W48 (UTC)")


def test_one_hour_of_one_tenant(memory: Memory) -> None:
    """120 requests of one hour: 50 % cached, computed tokens at 1000 a second. What was saved is
    as many seconds as what was computed: the prompts are 1000 to 2190 tokens, half of them 95700.
    """
    rows = [
        {**row, "tenant": "acme", "prompt_tokens": 1000 + 10 * n, "cached_tokens": 500 + 5 * n,
         "outcome": "partial", "ttft_seconds": (500 + 5 * n) / 1000, "ttft_point": "gateway"}
        for n, row in enumerate(same(60, "11-24 10:00") * 2)
    ]  # fmt: skip
    memory.insert("requests", rows)
    memory.insert("meta", [{"key": "gpu_hour_price", "value": "3.6"}])
    report = memory.report()
    assert report.headline.token_hit_ratio == pytest.approx(0.5)
    assert report.data.hours_with_traffic == 1
    assert report.data.partial == (
        "data begins Tue 2026-11-24 10:00 and data ends Tue 2026-11-24 10:59"
    )
    assert (report.up, report.down, report.peak) == ((), (), None)
    assert [(each.by, each.rows[0].name) for each in report.segments] == [
        ("tenant", "acme"),
        ("model", "m"),
    ]
    assert report.freed is not None
    assert report.freed.saved_tokens == 95_700
    assert report.freed.gpu_hours == pytest.approx(95.7 / 3600)
    assert report.freed.freed_usd == pytest.approx(95.7 / 1000)
    assert "nothing to compare with in the week before" not in report.headline.sentence
    assert sections_missing(report)["ttft"] == ""
    assert "partial week" in render(report, "html").decode()
    why = "No model of these rows has a known price: a file named in prices.file tells one."
    assert f"{why} Next: <code>prefixscope query prices</code>" in render(report, "html").decode()
    assert f"{escaped(why)} Next: `prefixscope query prices`" in render(report, "md").decode()


@pytest.fixture(scope="module")
def engines() -> Memory:
    """The first sample of a process is a baseline and has no increase. Then 9,000,000 of 10,000,000
    in the week before; in the week 0 of 50,000, a third of it over an hour without scrapes."""
    made = Memory()
    columns = {"cached_device": None, "kv_usage_ratio": 0.5, "kv_capacity_tokens": 1000}
    increases = [
        ("11-16 00:00", "11-18 10:00", 10_000_000, 9_000_000, False),
        ("11-24 10:00", "11-24 10:10", 35_000, 0, False),
        ("11-24 10:10", "11-24 11:10", 15_000, 0, True),
        ("11-30 10:00", "11-30 10:10", 1_000, 900, False),
    ]
    baseline = {
        "since": None, "ts": at("11-16 00:00"), "prompt_tokens": None, "cached_tokens": None,
        "gap": False, **columns,
    }  # fmt: skip
    made.insert("engine_samples", [baseline] + [
        {"since": at(since), "ts": at(ts), "prompt_tokens": prompt, "cached_tokens": cached,
         "gap": gap, **columns}
        for since, ts, prompt, cached, gap in increases
    ])  # fmt: skip
    made.insert("targets", [
        {"target": "r2", "url": "http://r2/metrics", "up": True, "frozen": False,
         "last_success": at("11-24 10:00"), "missing_metrics": ["vllm:prefix_cache_hits_total"],
         "missing_advice": ["ask the engine"]}
    ])  # fmt: skip
    return made


@pytest.fixture(scope="module")
def engine_report(engines: Memory) -> WeekReport:
    return engines.report()


def test_t2_t11_t14_engine_windows_come_from_increases(engine_report: WeekReport) -> None:
    """0 of 50,000, though 89.6 % since start; the baseline counts nothing."""
    lead = engine_report.headline
    assert lead.basis == "engine"
    assert (lead.cached_tokens, lead.reported_prompt_tokens) == (0, 50_000)
    assert lead.sentence == (
        "Token hit ratio by engine counters 0.0 % in 2026-W48 (0 of 50,000 prompt tokens from "
        "cache), -90.0 points against the week before (90.0 %)."
    )


def test_t57_a_gap_is_spread_and_marked(engine_report: WeekReport) -> None:
    """15,000 over the hour from 10:10: 12,500 until 11:00 and 2,500 after it."""
    told = {cell.slot: cell for cell in engine_report.hours if cell.prompt_tokens}
    assert {(s.day, s.hour): c.reported_prompt_tokens for s, c in told.items()} == {
        (1, 10): 47_500,
        (1, 11): 2_500,
    }
    assert engine_report.quality.engine_gaps == 1
    assert "1 gap in the engines' samples" in render(engine_report, "md").decode()


def test_t13_a_missing_metric_is_said_and_is_no_zero(engine_report: WeekReport) -> None:
    assert "r2 exposes no vllm:prefix_cache_hits_total" in engine_report.quality.cautions
    by = {each.by: [row.name for row in each.rows] for each in engine_report.segments}
    assert by["replica"] == ["r1"], "no ratio is made up for r2"


def test_engines_alone_tell_what_they_can_and_the_step_to_more(
    engine_report: WeekReport,
) -> None:
    assert sections_missing(engine_report)["headline"].startswith("prefixscope ingest")
    assert engine_report.headline.coverage_ratio is None
    assert [mover.name for mover in engine_report.down] == ["r1"]
    assert engine_report.down[0].within_tokens == -45_000
    assert engine_report.memory[0].kv_usage_ratio == pytest.approx(0.5)
    text = shown(engine_report)
    assert "NaN" not in text
    assert "Billed saving" in text


def test_engine_counters_beside_a_log_say_of_how_much_they_speak(memory: Memory) -> None:
    """The log tells 3,000 tokens of three days, engines of 400 on the last of them, half cached."""
    for day in ("23", "24", "25"):
        memory.insert("requests", [{"ts": at(f"11-{day} 10:00"), "prompt_tokens": 1000,
                                    "cached_tokens": 900, "outcome": "hit"}])  # fmt: skip
    memory.insert("engine_samples", [
        {"since": at("11-25 10:00"), "ts": at("11-25 10:01"), "prompt_tokens": 400,
         "cached_tokens": 200}
    ])  # fmt: skip
    report = memory.report()
    told = "Engine counters say 50.0 % of 400 prompt tokens (all routes)."
    assert words.engine_words(report) == told
    assert report.engine_reported_prompt_tokens == 400
    assert report.headline.token_hit_ratio == pytest.approx(0.9)


def test_t58_a_week_without_traffic_has_no_ratio(engines: Memory) -> None:
    report = engines.report("2026-W50")
    assert report.headline.token_hit_ratio is None
    assert "0.0 %" not in render(report, "html").decode()
    assert [gap.section for gap in report.missing] == ["headline"]


def test_events_tell_what_left_the_cache(memory: Memory) -> None:
    memory.insert("requests", same(3, "11-24 10:00", prompt_tokens=100, cached_tokens=50))
    memory.insert("block_minutes", [
        {"minute": at("11-24 10:00"), "heard": at("11-24 10:00"), "stored_blocks": 100,
         "evicted_blocks": 30, "demoted_blocks": 0, "promoted_blocks": 0, "reset_blocks": 5,
         "never_reused_blocks": 3, "reuse_known_blocks": 12, "resident_blocks": 60,
         "resident_tokens": 960}
    ])  # fmt: skip
    (row,) = memory.report().evictions
    assert (row.basis, row.tier, row.evicted_tokens, row.reset_tokens) == (
        "events", "device", 480, 80,
    )  # fmt: skip
    assert row.never_reused_ratio == pytest.approx(0.25)


def test_rolled_up_weeks_keep_their_ratio_and_say_what_is_gone(memory: Memory) -> None:
    """The rows are gone, the hours are kept: 700 of 1000."""
    memory.insert("hour_rollup", [
        {"hour": at("11-24 10:00"), "model": "m", "template": "a", "requests": 10,
         "reported_requests": 10, "ineligible_requests": 0, "reuse_requests": 10,
         "prompt_tokens": 1000, "reported_prompt_tokens": 1000, "ineligible_prompt_tokens": 0,
         "cached_tokens": 700}
    ])  # fmt: skip
    memory.connection.execute("INSERT INTO hot_since VALUES (TIMESTAMP '2026-12-20')")
    memory.insert("requests", same(1, "12-21 10:00", prompt_tokens=100, cached_tokens=0))
    report = memory.report()
    assert report.headline.token_hit_ratio == pytest.approx(0.7)
    assert report.data.rolled_up
    assert (report.billed, report.outcomes) == (None, ())
    assert "only roll-ups are left" in render(report, "html").decode()


def test_five_thousand_templates_are_a_dozen_and_the_others(memory: Memory) -> None:
    """Template n has one request of 1000 + n prompt tokens, half of each from cache."""
    memory.connection.execute(
        "INSERT INTO requests BY NAME SELECT TIMESTAMP '2026-11-24' + to_seconds(n) AS ts,"
        " ts AS arrived, 'log' AS source, 'test' AS source_format, 1 AS attempt, 'm' AS model,"
        " 'ok' AS status, 'partial' AS outcome, 'inclusive' AS prompt_basis, 1 AS batch,"
        " n AS position, 't' || n AS template, 'x' || n AS tenant, 'r' || n AS route,"
        " 1000 + n AS prompt_tokens, prompt_tokens // 2 AS cached_tokens FROM range(5000) r(n)"
    )
    report = memory.report()
    rows = next(each.rows for each in report.segments if each.by == "template")
    assert [row.name for row in rows[:2]] == ["t4999", "t4998"]
    assert (rows[-1].name, rows[-1].others) == ("4,988 others together", 4988)
    assert sum(row.prompt_tokens for row in rows) == 5000 * 1000 + 4999 * 5000 // 2
    assert sum(row.cached_tokens for row in rows) == report.headline.cached_tokens
    assert all(len(render(report, form)) < 250_000 for form in FORMATS)
    assert len(summary(report)) <= 600
