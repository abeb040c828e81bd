"""`peak_drop` by engine counters alone, on pages whose figures are worked out by hand.

As in test_peak_drop: four Mondays at 10:00 had ratios of 0.80, 0.80, 0.79 and 0.81 on 100,000
tokens, six scrapes an hour. Their median is 0.80; between weeks the ratio strays by 0, 0.01 and
0.02, times the harmonic tokens 0, 5 and 20, in the median 5.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import resources
from statistics import median
from typing import Any

import duckdb
import pytest

from queries import registry
from tests.unit_alerts.hours import (
    MONDAY,
    RATIOS,
    TOKENS,
    put_counted,
    put_hour,
    put_page,
    put_request,
)

HOUR = timedelta(hours=1)
QUICK = {1.0: 9, float("inf"): 9}  # first tokens within a second
CHANCE = (2.198 * 5 * (1 / 100_000 + 1 / 400_000)) ** 0.5


class Pages:
    """The tables of a store, filled and asked."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.counted = partial(put_counted, cursor)
        self.page = partial(put_page, cursor)
        self.logged = partial(put_hour, cursor)

    def weeks(self, **columns: object) -> None:
        """The four Mondays before."""
        for week, ratio in enumerate(RATIOS, 1):
            self.counted(MONDAY - timedelta(weeks=week), ratio, **columns)

    def judge(self, begin: datetime = MONDAY, **params: object) -> dict[str, Any]:
        """The row of the hour that begins then; it must be the only one."""
        [row] = self.rows(until=begin + HOUR, **params)
        return row

    def rows(self, **params: object) -> list[dict[str, Any]]:
        return registry.rows(registry.run(self.cursor, "peak_drop", params))


@pytest.fixture(scope="module")
def tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    schema = resources.files("exporter.store").joinpath("schema.sql").read_text()
    connection.execute(schema)
    connection.execute(registry.views_sql())
    return connection


@pytest.fixture
def pages(tables: duckdb.DuckDBPyConnection) -> Iterator[Pages]:
    """Empty tables; what a test puts in is taken back."""
    cursor = tables.cursor()
    cursor.begin()
    yield Pages(cursor)
    cursor.rollback()


def test_counters_alone_show_a_drop(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.5)
    row = pages.judge()
    assert (row["basis"], row["history_weeks"], row["method"]) == ("engine", 4, "same hours")
    assert row["reported_prompt_tokens"] == TOKENS
    assert row["token_hit_ratio"] == pytest.approx(0.5)
    assert row["expected_ratio"] == pytest.approx(0.8)
    assert row["expected_low_ratio"] == pytest.approx(0.8 - 3 * 2 * CHANCE, abs=1e-6)
    assert row["drop_ratio"] == pytest.approx(0.3)
    assert row["pressure_ratio"] == pytest.approx(0.2)
    assert row["usual_pressure_ratio"] == pytest.approx(0.2)
    assert (row["is_drop"], row["class"]) == (True, "no cause found")
    assert row["contributor"] == "r"


def test_a_model_that_a_log_reports_on_is_judged_by_the_log_alone(pages: Pages) -> None:
    """The log says 0.8 as ever, the counters 0.1; of the other model only counters tell."""
    pages.weeks()
    for week, ratio in enumerate(RATIOS, 1):
        pages.logged(MONDAY - timedelta(weeks=week), ratio)
        pages.counted(MONDAY - timedelta(weeks=week), ratio, model="n", replica="s")
    pages.logged(MONDAY, 0.8)
    pages.counted(MONDAY, 0.1)
    pages.counted(MONDAY, 0.1, model="n", replica="s")
    rows = pages.rows(until=MONDAY + HOUR)
    assert [(row["model"], row["basis"], row["is_drop"]) for row in rows] == [
        ("m", "log", False), ("n", "engine", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "severity"), [("alias", "ticket"), ("n", "page"), (None, "page")],
    ids=["by another name", "another model", "no log"],
)  # fmt: skip
def test_a_drop_that_a_log_tells_by_another_name_pages_once(
    pages: Pages, name: str | None, severity: str
) -> None:
    """Both fall from 0.8 to 0.3 and first tokens take seconds; n has an engine, which is well."""
    for week, ratio in enumerate((0.3, *RATIOS)):
        begin, slow = MONDAY - timedelta(weeks=week), 1.0 + 3 * (week == 0)
        pages.counted(begin, ratio, ttft_buckets={slow: 9, float("inf"): 9})
        pages.counted(begin, 0.8, model="n", replica="s")
        if name:
            pages.logged(begin, ratio, model=name, ttft_seconds=slow)
    found = {row["model"]: row["severity"] for row in pages.rows(until=MONDAY + HOUR)}
    assert found["m"] == severity
    assert found[name or "n"] == ("page" if name else None)
    [alone] = pages.rows(until=MONDAY + HOUR, model="m")
    assert alone["severity"] == severity, "a filter hides the log, and changes no severity"


def test_a_log_without_cached_counts_is_no_log(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.5)
    for place in range(40):
        put_request(pages.cursor, MONDAY + timedelta(minutes=place), 2_500, None)
    assert pages.judge()["basis"] == "engine"


def test_replicas_are_told_apart_by_counters_even_where_a_log_reports(pages: Pages) -> None:
    for name in ("r1", "r2"):
        pages.weeks(replica=name)
    pages.counted(MONDAY, 0.8, replica="r1")
    pages.counted(MONDAY, 0.4, replica="r2")
    pages.logged(MONDAY, 0.6)
    rows = pages.rows(until=MONDAY + HOUR, by="replica")
    assert [(row["replica"], row["basis"], row["is_drop"]) for row in rows] == [
        ("r1", "engine", False), ("r2", "engine", True),
    ]  # fmt: skip


def test_counters_know_no_templates(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.5)
    assert pages.rows(until=MONDAY + HOUR, by="template") == []
    assert pages.rows(until=MONDAY + HOUR, template="t") == []


def test_t11_increases_of_the_window_count_and_not_totals(pages: Pages) -> None:
    """9,000,000 of 10,000,000 were reused since the start, of the last 50,000 none."""
    for week in (1, 2, 3, 4):
        pages.counted(MONDAY - timedelta(weeks=week), 0.9, 2_500_000)
    pages.counted(MONDAY, 0.0, 50_000)
    row = pages.judge()
    assert (row["token_hit_ratio"], row["class"]) == (0.0, "reuse stopped")
    assert row["evidence"] == "0 % where 90 % is expected"


def test_t12_the_ratio_is_of_sums(pages: Pages) -> None:
    """One replica reused 0 of 1,000, the other 99,000 of 99,000 + 1,000."""
    pages.counted(MONDAY, 0.0, 6_000, replica="r1")
    pages.counted(MONDAY, 0.99, 600_000, replica="r2")
    assert pages.judge()["token_hit_ratio"] == pytest.approx(594_000 / 606_000)


def test_t14_the_first_scrape_of_a_process_counts_nothing(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.8)
    pages.page(MONDAY, 0.2, since=None)
    row = pages.judge()
    assert row["reported_prompt_tokens"] == TOKENS
    assert row["token_hit_ratio"] == pytest.approx(0.8)


def test_t57_a_gap_is_spread_over_the_windows_it_covers(pages: Pages) -> None:
    """No page for four hours, then one with 400,000 tokens: 100,000 of them in each hour."""
    pages.page(
        MONDAY, 0.2, since=MONDAY - 3 * HOUR, ts=MONDAY + HOUR,
        gap=True, prompt_tokens=400_000, cached_tokens=320_000,
    )  # fmt: skip
    rows = pages.rows(since=MONDAY - 3 * HOUR, until=MONDAY + HOUR)
    assert [row["reported_prompt_tokens"] for row in rows] == [100_000] * 4
    assert {row["token_hit_ratio"] for row in rows} == {0.8}


def test_t58_little_traffic_is_not_judged(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.0, 10_000)
    row = pages.judge()
    assert (row["is_drop"], row["class"], row["severity"]) == (None, None, None)
    assert pages.judge(min_tokens=5_000)["is_drop"] is True
    assert pages.judge(min_tokens=5_000, min_requests=61)["is_drop"] is None
    assert pages.rows(until=MONDAY + 5 * HOUR) == []


def test_t58_pages_without_traffic_have_no_ratio(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.0, 0)
    row = pages.judge()
    assert (row["token_hit_ratio"], row["drop_ratio"], row["is_drop"]) == (None, None, None)


def test_t13_counts_that_are_missing_are_telemetry_and_not_zero(pages: Pages) -> None:
    """One of two replicas, after a renaming, no longer has the metric of cached tokens."""
    for name in ("r1", "r2"):
        pages.weeks(replica=name)
    pages.counted(MONDAY, 0.8, replica="r1")
    pages.counted(MONDAY, 0.0, replica="r2")
    pages.cursor.execute(
        "UPDATE engine_samples SET cached_tokens = NULL WHERE replica = 'r2' AND ts > ?",
        [MONDAY.replace(tzinfo=None)],
    )
    row = pages.judge()
    assert row["token_hit_ratio"] == pytest.approx(0.8)
    assert (row["class"], row["severity"]) == ("telemetry", "ticket")
    assert row["evidence"] == "coverage 50 %, usually 100 %"


def test_t13_a_metric_that_all_lost_is_telemetry_too(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.0)
    pages.cursor.execute(
        "UPDATE engine_samples SET cached_tokens = NULL WHERE ts > ?", [MONDAY.replace(tzinfo=None)]
    )
    row = pages.judge()
    assert (row["token_hit_ratio"], row["is_drop"], row["class"]) == (None, True, "telemetry")


def test_t24_a_cache_that_slept_is_a_reset(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.7)
    pages.page(MONDAY, 0.0, awake=False)
    row = pages.judge()
    assert (row["is_drop"], row["class"], row["evidence"]) == (True, "reset", "1 reset, usually 0")


def test_t24_a_clear_told_by_events_is_a_reset(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.7)
    pages.cursor.execute(
        "INSERT INTO block_resets VALUES (?, 's', 'r', 'm', 'device', 'clear', 50)",
        [(MONDAY + timedelta(minutes=20)).replace(tzinfo=None)],
    )
    assert pages.judge()["class"] == "reset"


def test_a_page_that_is_not_read_is_telemetry(pages: Pages) -> None:
    """Two of four are not read; the others have as much to do as ever."""
    for name in ("r1", "r2", "r3", "r4"):
        pages.weeks(replica=name)
    for name in ("r1", "r2"):
        pages.counted(MONDAY, 0.8, replica=name)
    row = pages.judge()
    assert (row["is_drop"], row["class"], row["severity"]) == (True, "telemetry", "ticket")
    assert row["evidence"] == (
        "pages of 2.0 replicas were read, usually of 4.0, and these had no more to do"
    )
    pages.cursor.execute(
        "INSERT INTO targets (target, up, last_attempt) VALUES ('r1', true, ?), ('r2', true, ?)",
        [(MONDAY + HOUR).replace(tzinfo=None)] * 2,
    )
    assert pages.judge()["is_drop"] is False, "all that should answer do"


def test_fewer_replicas_with_the_work_of_all_are_no_fault(pages: Pages) -> None:
    for name in ("r1", "r2", "r3", "r4"):
        pages.weeks(replica=name)
    for name in ("r1", "r2"):
        pages.counted(MONDAY, 0.8, 2 * TOKENS, replica=name)
    assert pages.judge()["is_drop"] is False


def test_one_replica_that_falls_alone_is_routing_spread(pages: Pages) -> None:
    """r3 falls by 50 points, r1 and r2 do not: (0.8 + 0.8 + 0.3) / 3 are 0.633."""
    for name in ("r1", "r2", "r3"):
        pages.weeks(replica=name)
    for name, ratio in (("r1", 0.8), ("r2", 0.8), ("r3", 0.3)):
        pages.counted(MONDAY, ratio, replica=name)
    row = pages.judge()
    assert row["drop_ratio"] == pytest.approx(0.8 - 1.9 / 3, abs=1e-4)
    assert (row["is_drop"], row["class"]) == (True, "routing spread")
    assert row["evidence"] == "r3 fell by 50 points, the others by 0"
    assert (row["contributor"], row["contributor_share_ratio"]) == ("r3", pytest.approx(1))


def test_load_that_moves_to_one_replica_is_routing_spread(pages: Pages) -> None:
    """r1 gets 80 % of what both usually share; both keep less."""
    for name in ("r1", "r2"):
        pages.weeks(replica=name)
    pages.counted(MONDAY, 0.5, 160_000, replica="r1")
    pages.counted(MONDAY, 0.5, 40_000, replica="r2")
    row = pages.judge()
    assert (row["is_drop"], row["class"]) == (True, "routing spread")
    assert row["evidence"] == "the busiest replica has 80 % of the load, usually 50 %"


def test_all_replicas_falling_alike_have_no_cause_that_counters_tell(pages: Pages) -> None:
    for name in ("r1", "r2"):
        pages.weeks(replica=name)
        pages.counted(MONDAY, 0.5, replica=name)
    assert pages.judge()["class"] == "no cause found"


@pytest.mark.parametrize(
    ("columns", "evidence"),
    [
        ({"kv_capacity_tokens": 80_000}, "KV memory of 80,000 tokens a replica, usually 130,000"),
        (
            {"kv_capacity_tokens": 130_000, "version": "0.12"},
            "engine version 0.12, new in these hours",
        ),
    ],
)
def test_other_weights_or_versions_are_a_deploy(
    pages: Pages, columns: dict[str, object], evidence: str
) -> None:
    pages.weeks(kv_capacity_tokens=130_000, version="0.11")
    pages.counted(MONDAY, 0.7, **{"version": "0.11", **columns})
    row = pages.judge()
    assert (row["is_drop"], row["class"], row["evidence"]) == (True, "deploy", evidence)


def test_a_restart_that_leaves_a_little_other_memory_is_no_deploy(pages: Pages) -> None:
    pages.weeks(kv_capacity_tokens=130_000)
    pages.counted(MONDAY, 0.5, kv_capacity_tokens=125_000)
    assert pages.judge()["class"] == "no cause found"


def test_shorter_prompts_are_another_mix(pages: Pages) -> None:
    """100,000 tokens in 60 requests as ever, now in 120: 833 tokens each instead of 1,667."""
    pages.weeks()
    pages.counted(MONDAY, 0.5, finished_requests=20)
    row = pages.judge()
    assert (row["is_drop"], row["class"]) == (True, "traffic mix")
    assert row["evidence"] == "prompts of 833 tokens in the mean, usually of 1667"


def test_caching_that_is_switched_off_is_told_though_there_is_no_ratio(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.0, caching_enabled=False)
    row = pages.judge()
    assert (row["token_hit_ratio"], row["is_drop"], row["class"]) == (None, True, "reuse stopped")
    assert row["evidence"] == "the cache was not asked for 100 % of the prompt tokens, usually 0 %"


def test_what_load_explains_is_no_drop(pages: Pages) -> None:
    """Thirteen hours of last week at 60 % KV usage had 0.6; so has this one, usually at 20 %."""
    pages.weeks()
    for hour in range(13):
        pages.counted(MONDAY - timedelta(days=3, hours=hour), 0.6, kv_usage_ratio=0.6)
    pages.counted(MONDAY, 0.6, kv_usage_ratio=0.6)
    row = pages.judge()
    assert row["load_part_ratio"] == pytest.approx(0.2)
    assert row["drop_ratio"] == pytest.approx(0, abs=1e-9)
    assert (row["is_drop"], row["class"]) == (False, "memory pressure as expected")
    assert row["evidence"] == "KV usage 60 %, usually 20 %"


def test_without_a_week_equal_pressure_is_compared_and_never_a_page(pages: Pages) -> None:
    """Thirteen hours at 20 % KV usage had 0.8, others at 70 % 0.5."""
    for hour in range(1, 14):
        pages.counted(MONDAY - 2 * hour * HOUR, 0.8)
        pages.counted(MONDAY - (2 * hour + 1) * HOUR, 0.5, kv_usage_ratio=0.7)
    pages.counted(MONDAY, 0.3, ttft_buckets=QUICK)
    row = pages.judge()
    assert (row["history_weeks"], row["method"]) == (0, "equal pressure")
    assert row["expected_ratio"] == pytest.approx(0.8)
    assert (row["is_drop"], row["hurts"], row["severity"]) == (True, True, "ticket")


@pytest.mark.parametrize("weeks", [1, 2, 3])
def test_with_fewer_weeks_fewer_are_compared(pages: Pages, weeks: int) -> None:
    """Ratios of 0.81, 0.79 and 0.80; hours of the days before tell what strays by chance."""
    for week in range(1, weeks + 1):
        for day in range(3):
            begin = MONDAY - timedelta(weeks=week, days=-day if week > 1 else day)
            pages.counted(begin, RATIOS[week - 1])
    pages.counted(MONDAY - timedelta(days=1), 0.81)
    pages.counted(MONDAY, 0.5)
    row = pages.judge()
    assert (row["history_weeks"], row["method"]) == (weeks, "same hours")
    assert row["expected_ratio"] == pytest.approx(median(RATIOS[:weeks]))
    assert row["is_drop"] is True


def test_hours_of_the_week_are_local(pages: Pages) -> None:
    """Berlin put its clocks back on 25 October: 10:00 UTC of 2 November was 11:00 there, the Monday
    before 12:00. The same local hour is 09:00 UTC then."""
    third = datetime(2026, 11, 2, 10, tzinfo=UTC)
    for week in (1, 2, 3, 4):
        pages.counted(third - timedelta(weeks=week, hours=1), 0.9)
        pages.counted(third - timedelta(weeks=week), 0.1)
    pages.counted(third, 0.9)
    assert pages.judge(third, zone="Europe/Berlin")["expected_ratio"] == pytest.approx(0.9)
    assert pages.judge(third, zone="UTC")["expected_ratio"] == pytest.approx(0.1)


def test_only_a_drop_that_hurts_is_a_page(pages: Pages) -> None:
    """Of 100 requests 90 were below 1 s. Now half of them are, and 90 below 2 s."""
    usual, slow = {1.0: 90, 2.0: 100, float("inf"): 100}, {1.0: 50, 2.0: 90, float("inf"): 100}
    busy = MONDAY - timedelta(days=1)
    pages.counted(busy, 0.0, 2 * TOKENS)  # the most that was computed in an hour
    pages.weeks(ttft_buckets=usual)
    pages.counted(MONDAY, 0.5, ttft_buckets=usual)
    assert (pages.judge()["hurts"], pages.judge()["severity"]) == (False, "ticket")
    pages.cursor.execute(
        "UPDATE engine_samples SET ttft_buckets = ? WHERE ts > ?",
        [slow, MONDAY.replace(tzinfo=None)],
    )
    assert (pages.judge()["hurts"], pages.judge()["class"]) == (True, "no cause found")
    assert pages.judge()["severity"] == "page", "30 points without a cause, more than 5 deviations"


def test_prefill_near_its_most_hurts_where_first_tokens_are_timed(pages: Pages) -> None:
    """The half computed are 50,000 tokens, in no hour before were more than 21,000."""
    pages.weeks()
    pages.counted(MONDAY, 0.5)
    assert (pages.judge()["hurts"], pages.judge()["severity"]) == (None, "ticket")
    pages.page(MONDAY, 0.2, ttft_buckets=QUICK)
    assert (pages.judge()["hurts"], pages.judge()["severity"]) == (True, "page")


def test_times_of_the_log_at_different_points_are_not_mixed(pages: Pages) -> None:
    """At the gateway 1 s as ever; some rows of the engine with 9 s are no slower gateway."""
    pages.logged(MONDAY - timedelta(days=1), 0.0, 2 * TOKENS)
    for week, ratio in enumerate(RATIOS, 1):
        begin = MONDAY - timedelta(weeks=week)
        pages.logged(begin, ratio, ttft_seconds=1.0, ttft_point="gateway")
    pages.logged(MONDAY, 0.5, 60_000, ttft_seconds=1.0, ttft_point="gateway")
    pages.logged(MONDAY, 0.5, 40_000, ttft_seconds=9.0, ttft_point="engine")
    assert pages.judge()["hurts"] is False


def test_t78_the_zone_of_the_machine_changes_nothing(pages: Pages) -> None:
    pages.weeks()
    pages.counted(MONDAY, 0.5)
    here = pages.judge(zone="Europe/Berlin")
    pages.cursor.execute("SET TimeZone = 'Asia/Tokyo'")
    assert pages.judge(zone="Europe/Berlin") == here


def test_t68_a_row_that_comes_late_counts_in_its_own_hour(pages: Pages) -> None:
    for week, ratio in enumerate(RATIOS, 1):
        pages.logged(MONDAY - timedelta(weeks=week), ratio)
    pages.logged(MONDAY, 0.8)
    assert pages.judge()["is_drop"] is False
    late = MONDAY + timedelta(minutes=50)
    put_request(pages.cursor, late, 100_000, 0, arrived=MONDAY + timedelta(days=1))
    row = pages.judge()
    assert row["token_hit_ratio"] == pytest.approx(0.4)
    assert row["is_drop"] is True


def test_more_first_turns_are_another_mix(pages: Pages) -> None:
    """Of each 100,000 tokens 20,000 were first turns at 0, the rest hit all: 0.8. Now 60,000."""

    def hour(begin: datetime, first_tokens: int) -> None:
        pages.logged(begin, 0.0, first_tokens, turn=1)
        pages.logged(begin, 1.0, TOKENS - first_tokens, turn=2)

    for week in (1, 2, 3, 4):
        hour(MONDAY - timedelta(weeks=week), 20_000 + 1_000 * (week % 2))
    hour(MONDAY, 60_000)
    row = pages.judge()
    assert (row["is_drop"], row["class"]) == (True, "traffic mix")
    assert row["evidence"] == "first turns have 60 % of the tokens, usually 20 %"


def test_every_hour_of_random_pages_by_brute_force(pages: Pages) -> None:
    """Expected = the median of the same hours of the weeks before; tokens and ratios are sums."""
    draw = random.Random(7)
    sums: dict[datetime, tuple[int, int]] = {}
    for day in range(36):
        for hour in (9, 10):
            begin = MONDAY.replace(hour=hour) - timedelta(days=day)
            prompt = cached = 0
            for name in ("r1", "r2"):
                tokens, ratio = 6 * draw.randrange(5_000, 20_000), draw.uniform(0.4, 0.9)
                pages.counted(begin, ratio, tokens, replica=name, kv_usage_ratio=None)
                prompt += tokens
                cached += round(tokens * ratio)
            sums[begin] = (prompt, cached)
    rows = pages.rows(since=MONDAY - timedelta(hours=1), until=MONDAY + HOUR)
    for row, begin in zip(rows, (MONDAY, MONDAY - HOUR), strict=True):
        prompt, cached = sums[begin]
        before = [sums[begin - timedelta(weeks=week)] for week in (1, 2, 3, 4)]
        usual = median(c / p for p, c in before)
        alike = [
            c / p
            for moment, (p, c) in sums.items()
            if begin - timedelta(days=28) <= moment < begin - timedelta(minutes=59)
            and prompt / 1.4 <= p <= prompt * 1.4
        ]
        assert row["reported_prompt_tokens"] == prompt
        assert row["token_hit_ratio"] == pytest.approx(cached / prompt, abs=1e-6)
        assert row["history_weeks"] == 4
        at_load = median(alike) if len(alike) >= 12 else usual
        assert row["expected_ratio"] == pytest.approx(min(usual, at_load), abs=1e-6)
