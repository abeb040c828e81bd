"""Faults that single rows of real logs invite, each with its tiny input and right answer.

Every test loads a route of its own into one store and asks for that route only.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from exporter.sources.intake import IngestSummary
from exporter.sources.log_settings import LogSettings
from exporter.store.store import Store
from queries import registry
from tests.log_path import NOON, Answer, Row, ask, by_id, hit_ratio, load, rejects, utc


def into(
    store: Store, route: str, rows: Sequence[Row | str], format: str = "ndjson"
) -> IngestSummary:
    """Loads rows as a source and route of that name."""
    return load(store, rows, route, format=format, defaults={"route": route})


def row(request_id: str, prompt: object, cached: object, **more: object) -> dict[str, object]:
    counts = {"prompt_tokens": prompt, "cached_tokens": cached}
    return {"request_id": request_id, "ts": NOON, **counts, **more}


def health(store: Store, source: str) -> Answer:
    (found,) = [r for r in ask(store, "ingest_health") if r["source"] == source]
    return found


def counts(stored: Answer) -> tuple[object, object]:
    return stored["prompt_tokens"], stored["cached_tokens"]


def test_t03_small_excess_is_capped_and_tallied(shared_store: Store) -> None:
    summary = into(shared_store, "t03", [row("stub", 126, 128)])
    figures = hit_ratio(shared_store, route="t03")
    assert (figures["cached_tokens"], figures["prompt_tokens"]) == (126, 126)
    assert figures["token_hit_ratio"] == 1.0
    assert summary.flags == health(shared_store, "t03")["flags"] == {"cached_capped": 1}


def test_t03_larger_excess_is_left_out(shared_store: Store) -> None:
    # One block (16 where the row does not say) or 2 % of the prompt, whichever is more.
    cases = {
        "block at": (100, 116, None, 100),
        "block above": (100, 117, None, None),
        "own block at": (100, 132, 32, 100),
        "own block above": (100, 133, 32, None),
        "share at": (2000, 2040, None, 2000),
        "share above": (2000, 2041, None, None),
    }
    rows = [row(name, prompt, cached, block_size=block)
            for name, (prompt, cached, block, _) in cases.items()]  # fmt: skip
    summary = into(shared_store, "t03 larger", rows)
    stored = by_id(shared_store, "t03 larger")
    assert {name: stored[name]["cached_tokens"] for name in cases} == {
        name: kept for name, (*_, kept) in cases.items()
    }
    assert summary.flags == {"cached_capped": 3, "cached_impossible": 3}
    figures = hit_ratio(shared_store, route="t03 larger")
    assert (figures["token_hit_ratio"], figures["prompt_tokens"]) == (1.0, 4400)
    assert figures["coverage_ratio"] == 2200 / 4400


def test_t04_one_prompt_for_several_answers(shared_store: Store) -> None:
    rows = [row("n4", 1000, 3200, n=4), row("n1", 1000, 800, n=1), row("unsaid", 1000, 3200)]
    summary = into(shared_store, "t04", rows)
    stored = by_id(shared_store, "t04")
    assert counts(stored["n4"]) == counts(stored["n1"]) == (1000, 800)
    assert counts(stored["unsaid"]) == (1000, None)
    assert summary.flags == {"divided_by_choices": 1, "cached_impossible": 1}
    figures = hit_ratio(shared_store, route="t04")
    assert figures["token_hit_ratio"] == 1600 / 2000
    assert figures["coverage_ratio"] == 2000 / 3000


def test_t05_not_reported_is_not_zero(shared_store: Store) -> None:
    details: list[object] = [{"cached_tokens": 512}, None, None]
    usages = [{"prompt_tokens": 1000, "prompt_tokens_details": one} for one in details]
    rows = [{"id": f"t05-{i}", "created": 1772452800, "usage": u} for i, u in enumerate(usages)]
    summary = into(shared_store, "t05", rows, "openai")
    figures = hit_ratio(shared_store, route="t05")
    assert figures["token_hit_ratio"] == summary.token_hit_ratio == 512 / 1000
    assert figures["coverage_ratio"] == summary.coverage_ratio == 1000 / 3000
    assert figures["request_coverage_ratio"] == 1 / 3
    assert [r["cached_tokens"] for r in by_id(shared_store, "t05").values()] == [512, None, None]


def test_t05_a_source_may_declare_that_it_leaves_zero_out(shared_store: Store) -> None:
    details: list[object] = [{"cached_tokens": 512}, None, None, {"cached_tokens": -1}]
    usages = [{"prompt_tokens": 1000, "prompt_tokens_details": one} for one in details]
    rows = [{"id": f"t05d-{i}", "created": 1772452800, "model": "m", "usage": u}
            for i, u in enumerate(usages)]  # fmt: skip
    rows.append({"id": "t05d-aborted", "created": 1772452800, "model": "m", "stream": True})
    defaults: dict[str, object] = {"route": "t05 declared", "cached_tokens": 0}
    summary = load(shared_store, rows, "t05 declared", format="openai", defaults=defaults)
    figures = hit_ratio(shared_store, route="t05 declared")
    assert (figures["cached_tokens"], figures["reported_prompt_tokens"]) == (512, 3000)
    assert figures["token_hit_ratio"] == pytest.approx(0.171, abs=5e-4)
    assert figures["coverage_ratio"] == 3000 / 4000, "a count that cannot be is still unknown"
    flags = {"zero_declared": 2, "unusable:cached_tokens": 1}
    assert summary.flags == health(shared_store, "t05 declared")["flags"] == flags


def test_t05_nothing_but_zero_can_be_declared() -> None:
    given = LogSettings(source="s", path="p", defaults={"cached_tokens": 0, "model": 7})
    assert given.defaults == {"cached_tokens": 0, "model": "7"}
    with pytest.raises(ValueError, match="cached_tokens can only be 0"):
        LogSettings(source="s", path="p", defaults={"cached_tokens": 512})


def test_t05_a_reported_zero_is_a_miss(shared_store: Store) -> None:
    into(shared_store, "t05 zero", [row("zero", 1000, 0)])
    figures = hit_ratio(shared_store, route="t05 zero")
    assert (figures["token_hit_ratio"], figures["coverage_ratio"]) == (0.0, 1.0)
    assert by_id(shared_store, "t05 zero")["zero"]["outcome"] == "miss"


_EARLY = {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 35227}}
_LAST = {
    "choices": [],
    "usage": {"prompt_tokens": 35227, "prompt_tokens_details": {"cached_tokens": 32512}},
}


@pytest.mark.parametrize("order", ["in one batch", "last comes later", "last came first"])
def test_t06_last_and_most_detailed_usage_counts_once(shared_store: Store, order: str) -> None:
    route = f"t06 {order}"
    chunks = [{"id": route, "created": 1772452800, **chunk} for chunk in (_EARLY, _LAST)]
    batches = {
        "in one batch": [chunks],
        "last comes later": [[chunks[0]], [chunks[1]]],
        "last came first": [[chunks[1]], [chunks[0]]],
    }[order]
    for batch in batches:
        into(shared_store, route, batch, "openai")
    figures = hit_ratio(shared_store, route=route)
    assert (figures["requests"], figures["prompt_tokens"], figures["cached_tokens"]) == (
        1, 35227, 32512,
    )  # fmt: skip


def test_t08_a_skipped_look_up_is_no_miss(shared_store: Store) -> None:
    rows = [{"request_id": f"t08-{i}", "ts": NOON, "prompt_tokens": 401, "prompt_logprobs": 1}
            for i in range(3)]  # fmt: skip
    into(shared_store, "t08", rows)
    figures = hit_ratio(shared_store, route="t08")
    assert (figures["requests"], figures["ineligible_requests"]) == (3, 3)
    assert figures["prompt_tokens"] == figures["ineligible_prompt_tokens"] == 1203
    assert figures["token_hit_ratio"] is figures["coverage_ratio"] is None
    reasons = {r["ineligible_reason"] for r in by_id(shared_store, "t08").values()}
    assert reasons == {"lookup_skipped"}


def test_t08_skipped_rows_leave_the_ratio_of_the_others_alone(shared_store: Store) -> None:
    rows = [row("skipped", 401, 0, prompt_logprobs=0), row("served", 1000, 700)]
    into(shared_store, "t08 both", rows)
    figures = hit_ratio(shared_store, route="t08 both")
    assert (figures["token_hit_ratio"], figures["coverage_ratio"]) == (0.7, 1.0)
    assert figures["prompt_tokens"] == 1401


def test_t12_ratio_of_sums_beside_share_of_requests(shared_store: Store) -> None:
    into(shared_store, "t12", [row("a", 16, 0), row("b", 1600, 1584)])
    figures = hit_ratio(shared_store, route="t12")
    assert figures["token_hit_ratio"] == pytest.approx(99 / 101)
    assert figures["request_hit_ratio"] == 0.5


def test_t18_negative_count_is_unknown_and_tallied(shared_store: Store) -> None:
    summary = into(shared_store, "t18", [row("sentinel", 3808, -1)])
    assert counts(by_id(shared_store, "t18")["sentinel"]) == (3808, None)
    assert summary.flags == {"unusable:cached_tokens": 1}
    figures = hit_ratio(shared_store, route="t18")
    assert (figures["token_hit_ratio"], figures["coverage_ratio"]) == (None, 0.0)


def test_t34_openai_cached_tokens_are_part_of_the_prompt(shared_store: Store) -> None:
    usage = {"prompt_tokens": 17903, "prompt_tokens_details": {"cached_tokens": 17817}}
    into(shared_store, "t34", [{"id": "t34", "created": 1772452800, "usage": usage}], "openai")
    figures = hit_ratio(shared_store, route="t34")
    assert (figures["prompt_tokens"], figures["computed_tokens"]) == (17903, 86)
    assert figures["token_hit_ratio"] == pytest.approx(0.9952, abs=5e-5)


def test_t42_zero_tokens_of_an_aborted_request_are_unknown(shared_store: Store) -> None:
    rows = [row("aborted", 0, 0, status=499), row("silent", None, None, status=200),
            row("served", 1000, 700, status=200)]  # fmt: skip
    summary = into(shared_store, "t42", rows)
    figures = hit_ratio(shared_store, route="t42")
    assert (figures["token_hit_ratio"], figures["reported_requests"]) == (0.7, 1)
    assert figures["request_coverage_ratio"] == 1 / 3
    stored = by_id(shared_store, "t42")
    assert [stored[i]["outcome"] for i in ("aborted", "silent")] == ["unknown", "unknown"]
    assert [stored[i]["status"] for i in ("aborted", "silent")] == ["cancelled", "ok"]
    assert counts(stored["aborted"]) == (None, None)
    assert summary.flags == {"zero_prompt": 1}


def test_t43_first_token_needs_a_stream_and_comes_before_the_end(shared_store: Store) -> None:
    rows = [
        row("never captured", 100, 0, ttft_s=9.0, e2e_s=9.0),
        row("first", 100, 0, ttft_s=0.4, e2e_s=8.0, stream=True),
        row("second", 100, 0, ttft_s=0.5, e2e_s=8.2),
        row("not streamed", 100, 0, ttft_s=2.0, e2e_s=6.0, stream=False),
        row("not measured", 100, 0, e2e_s=6.0, stream=False),
    ]
    summary = into(shared_store, "t43", rows)
    (figures,) = ask(shared_store, "ttft_by_outcome", route="t43")
    assert (figures["outcome"], figures["requests"]) == ("miss", 2)
    assert figures["mean_seconds"] == pytest.approx(0.45)
    assert summary.flags == {"ttft_equals_end": 1, "ttft_not_streamed": 1}


def test_t43_zero_is_no_first_token_time(shared_store: Store) -> None:
    summary = into(shared_store, "t43 zero", [row("failed", 100, 0, ttft_s=0.0, e2e_s=1.0)])
    assert by_id(shared_store, "t43 zero")["failed"]["ttft_seconds"] is None
    assert sum(summary.flags.values()) == 1, "the exclusion is tallied"


def test_t62_not_a_number_is_unknown_and_answers_are_strict_json(shared_store: Store) -> None:
    rows = [
        row("r1", 1000, 500, ttft_s=float("nan")),
        row("r2", float("inf"), 1),
        row("r3", 1000, float("-inf"), e2e_s=float("inf"), queue_s=float("nan")),
    ]
    summary = into(shared_store, "t62", [*rows, '{"request_id":"r4","prompt_tokens":1e999}'])
    stored = by_id(shared_store, "t62")
    assert counts(stored["r1"]) == (1000, 500)
    assert stored["r1"]["ttft_seconds"] is None
    assert counts(stored["r2"]) == counts(stored["r4"]) == (None, None)
    assert counts(stored["r3"]) == (1000, None)
    assert (stored["r3"]["e2e_seconds"], stored["r3"]["queue_seconds"]) == (None, None)
    flags = {k: n for k, n in summary.flags.items() if k.startswith("unusable:")}
    assert flags == {
        "unusable:ttft_seconds": 1, "unusable:prompt_tokens": 2, "unusable:cached_tokens": 1,
        "unusable:e2e_seconds": 1, "unusable:queue_seconds": 1,
    }  # fmt: skip
    for question in ("hit_ratio", "requests", "ingest_health", "prefill", "ttft_by_outcome"):
        json.dumps(ask(shared_store, question), allow_nan=False)


def test_t63_types_are_declared_and_coerced_row_by_row(shared_store: Store) -> None:
    columns = shared_store.cursor().execute("DESCRIBE requests").fetchall()
    line = '{"request_id":"null-%d","ts":"' + NOON + '","error_code":null,"tenant":null}'
    rows: list[Row | str] = [line % number for number in range(30_000)]
    extra = {f"extra_{number}": {"deep": [number]} for number in range(30)}
    rows += [
        row("text", 1000, "512", error_code="429", tenant=429),
        row("point", 1000, 512.0, tenant="429"),
        row("wide", 1000, 512, **extra),
    ]
    summary = into(shared_store, "t63", rows)
    assert (summary.accepted, summary.rejected, summary.flags) == (30_003, 0, {})
    stored = shared_store.cursor().execute(
        "SELECT tenant, cached_tokens FROM requests WHERE source = 't63'"
        " AND cached_tokens IS NOT NULL ORDER BY request_id"
    ).fetchall()  # fmt: skip
    assert stored == [("429", 512), ("429", 512), (None, 512)]
    assert shared_store.cursor().execute("DESCRIBE requests").fetchall() == columns


def test_t65_units_of_time_are_recognised(shared_store: Store) -> None:
    cases: list[tuple[object, str]] = [
        (1772452800, "2026-03-02 12:00:00"),
        (1772452800000, "2026-03-02 12:00:00"),
        (1772452800000000, "2026-03-02 12:00:00"),
        (1772452800000000000, "2026-03-02 12:00:00"),
        ("1772452800.5", "2026-03-02 12:00:00.5"),
        (1772452800.123456, "2026-03-02 12:00:00.123456"),
        ("2026-03-02T12:00:00Z", "2026-03-02 12:00:00"),
        ("2026-03-02 12:00:00.123456", "2026-03-02 12:00:00.123456"),
        ("2026-03-02T21:00:00+09:00", "2026-03-02 12:00:00"),
        ("2026-03-02T06:30:00.25-0530", "2026-03-02 12:00:00.25"),
        ("2026-03-02 12:00:00 UTC", "2026-03-02 12:00:00"),
    ]
    into(shared_store, "t65", [row(f"t65 {given}", 10, 5, ts=given) for given, _ in cases])
    stored = by_id(shared_store, "t65")
    for given, means in cases:
        assert stored[f"t65 {given}"]["ts"] == utc(means), given


def test_t65_a_time_that_cannot_be_is_rejected(shared_store: Store) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=2)
    given: list[object] = [
        0, -1772452800, 17724528, "1999-12-31T23:59:59Z", 4102444800, 10**30,
        tomorrow.isoformat(), "infinity", "yesterday", True, {"at": 1}, float("nan"), "",
    ]  # fmt: skip
    rows = [row(f"t65 bad {number}", 10, 5, ts=ts) for number, ts in enumerate(given)]
    summary = into(shared_store, "t65 bad", rows)
    assert summary.accepted == 0
    assert set(summary.reasons) <= {"implausible_time", "unreadable_time"}
    assert [line for line, _ in rejects(shared_store, "t65 bad")] == list(range(1, len(given) + 1))


def _message(output: int) -> dict[str, object]:
    usage = {"input_tokens": 2, "cache_read_input_tokens": 15030,
             "cache_creation_input_tokens": 8655, "output_tokens": output}  # fmt: skip
    return {"timestamp": NOON, "message": {"id": "m1", "model": "claude", "usage": usage}}


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([[9, 9, 159]], id="together"),
        pytest.param([[9], [9], [159]], id="apart"),
        pytest.param([[159], [9, 9]], id="backwards"),
        pytest.param([[9, 159], [9], [159]], id="again"),
    ],
)
def test_t66_lines_of_one_response_are_one_request(
    shared_store: Store, batches: list[list[int]]
) -> None:
    route = f"t66 {batches}"
    for number, outputs in enumerate(batches):
        rows = [_message(output) for output in outputs]
        load(shared_store, rows, route, format="anthropic", origin="http",
             defaults={"route": route, "template": str(number)})  # fmt: skip
    figures = hit_ratio(shared_store, route=route)
    assert (figures["requests"], figures["output_tokens"]) == (1, 159)
    assert (figures["prompt_tokens"], figures["cached_tokens"]) == (23687, 15030)
    assert figures["token_hit_ratio"] == pytest.approx(0.635, abs=5e-4)
    shared_store.fold()
    rolled = shared_store.cursor().execute(
        "SELECT sum(requests), sum(prompt_tokens), sum(output_tokens) FROM hour_rollup"
        " WHERE route = ?", [route],
    ).fetchone()  # fmt: skip
    assert rolled == (1, 23687, 159)


def test_every_answer_of_the_log_has_a_json_form(shared_store: Store) -> None:
    into(shared_store, "plain", [row("plain", 100, 50)])
    table = registry.run(shared_store.cursor(), "hit_ratio", {"route": "plain"})
    assert json.loads(json.dumps(registry.rows(table), allow_nan=False))[0]["cached_tokens"] == 50
