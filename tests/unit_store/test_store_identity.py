"""Which rows are the same request, what a contradiction does, and where late rows belong."""

from collections.abc import Mapping

import pytest

from exporter.store.store import Store
from tests.log_path import NOON, Answer, ask, hit_ratio, load, ndjson, rejects, requests

FILE = [
    {"request_id": f"r{n}", "ts": NOON, "prompt_tokens": 1000, "cached_tokens": 100 * n}
    for n in range(5)
]


def totals(store: Store) -> tuple[int, int, int]:
    figures = hit_ratio(store)
    return figures["requests"], figures["prompt_tokens"], figures["cached_tokens"]


def health(store: Store) -> Answer:
    (row,) = ask(store, "ingest_health")
    return row


def row(request_id: str, **more: object) -> Mapping[str, object]:
    return {"request_id": request_id, "ts": NOON, "prompt_tokens": 1000, "cached_tokens": 500,
            **more}  # fmt: skip


def test_t67_the_same_file_twice_changes_nothing(store: Store) -> None:
    first = load(store, FILE)
    before = totals(store), store.counters.snapshot()
    second = load(store, FILE)
    assert (first.accepted, first.duplicate) == (5, 0)
    assert (second.accepted, second.duplicate, second.conflicting) == (0, 5, 0)
    assert totals(store) == before[0] == (5, 5000, 1000)
    assert store.counters.snapshot().late_tokens == before[1].late_tokens == 5000


def test_t67_contradiction_is_reported_and_the_first_row_stays(store: Store) -> None:
    load(store, FILE)
    changed = load(store, [{**FILE[3], "prompt_tokens": 1200}], origin="http")
    assert (changed.accepted, changed.conflicting, changed.rejected) == (0, 1, 0)
    assert totals(store) == (5, 5000, 1000)
    assert health(store)["conflicting"] == 1
    assert rejects(store) == [(1, "conflicting")]
    (reject,) = ask(store, "rejects")
    assert reject["detail"] == "an earlier row with this id says otherwise; the earlier row stays"
    assert store.counters.snapshot().late_tokens == 5000


def test_t67_contradiction_inside_one_batch_is_reported_too(store: Store) -> None:
    rows = [row("same"), row("same"), row("same", tenant="another"), row("other")]
    summary = load(store, rows)
    assert (summary.accepted, summary.duplicate, summary.conflicting) == (2, 1, 1)
    assert [r["tenant"] for r in requests(store)] == [None, None]
    again = load(store, rows)
    assert (again.accepted, again.duplicate, again.conflicting) == (0, 3, 1)
    assert rejects(store) == [(3, "conflicting")], "read again, reported once"


def test_id_holds_for_its_source_attempt_and_hour(store: Store) -> None:
    other_hour = "2026-03-02T13:00:00Z"
    rows = [row("a"), row("a", attempt=2), row("a", ts=other_hour), row("a", attempt=1)]
    summary = load(store, rows, "one")
    assert (summary.accepted, summary.duplicate) == (3, 1)
    assert load(store, rows, "another").accepted == 3
    assert totals(store)[0] == 6


@pytest.mark.parametrize("together", [True, False])
def test_the_two_sides_of_one_call_do_not_contradict_each_other(
    store: Store, together: bool
) -> None:
    """They are joined; and a row that says no side is still the same row."""
    sides = [row("a", side="engine", replica="r"), row("a", side="gateway", tenant="t")]
    for rows in [sides] if together else [[side] for side in sides]:
        assert load(store, rows).accepted >= 1
    again = load(store, [*sides, row("a", side="gateway", tenant="t", prompt_tokens=7)])
    assert (again.accepted, again.duplicate, again.conflicting) == (0, 2, 1)
    (joined,) = requests(store)
    assert (joined["replica"], joined["tenant"], joined["cached_tokens"]) == ("r", "t", 500)


def test_a_side_that_is_only_stated_later_makes_no_second_request(store: Store) -> None:
    load(store, [row("a")])
    assert load(store, [row("a", side="engine")]).duplicate == 1


def test_id_without_a_time_holds_at_any_arrival(store: Store) -> None:
    rows = [{"request_id": f"untimed-{n}", "prompt_tokens": 10} for n in range(3)]
    first = load(store, rows, origin="http")
    assert (first.accepted, first.flags) == (3, {"no_time": 3})
    assert load(store, rows, origin="http").duplicate == 3
    assert load(store, ndjson(rows)).duplicate == 3
    found = requests(store)
    assert [r["ts"] for r in found] == [r["arrived"] for r in found]


def test_correction_takes_the_place_of_the_poorer_row_everywhere(store: Store) -> None:
    early = {"id": "s", "created": 1772452800, "usage": {"prompt_tokens": 100}}
    usage = {"prompt_tokens": 100, "completion_tokens": 7,
             "prompt_tokens_details": {"cached_tokens": 64}}  # fmt: skip
    late = {**early, "usage": usage}
    other = {"id": "o", "created": 1772452800, "usage": usage}
    load(store, [early], format="openai", origin="http")
    summary = load(store, [late, other], format="openai", origin="http")
    assert (summary.accepted, summary.corrected) == (1, 1)
    assert totals(store) == (2, 200, 128)
    assert health(store)["corrected"] == 1
    store.fold()
    for table in ("minute_rollup", "hour_rollup"):
        sums = store.cursor().execute(
            f"""SELECT sum(requests), sum(prompt_tokens), sum(cached_tokens),
            sum(reported_requests), sum(unknown_requests) FROM {table}"""
        ).fetchone()  # fmt: skip
        assert sums == (2, 200, 128, 2, 0), table
    poorer = load(store, [early], format="openai", origin="http")
    assert (poorer.accepted, poorer.corrected, poorer.duplicate) == (0, 0, 1)
    assert totals(store) == (2, 200, 128)


def test_correction_that_contradicts_the_prompt_is_a_conflict(store: Store) -> None:
    def chunk(prompt: int, output: int) -> dict[str, object]:
        details = {"cached_tokens": 64}
        return {"id": "s", "created": 1772452800, "usage": {
            "prompt_tokens": prompt, "completion_tokens": output,
            "prompt_tokens_details": details}}  # fmt: skip

    load(store, [chunk(100, 5)], format="openai", origin="http")
    summary = load(store, [chunk(200, 9)], format="openai", origin="http")
    assert (summary.accepted, summary.corrected, summary.conflicting) == (0, 0, 1)
    assert totals(store) == (1, 100, 64)


def test_one_response_over_the_turn_of_an_hour_is_one_request(store: Store) -> None:
    def line(time: str, output: int) -> dict[str, object]:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": output}
        return {"timestamp": time, "message": {"id": "m", "usage": usage}}

    before, after = line("2026-03-02T12:59:50Z", 1), line("2026-03-02T13:00:10Z", 99)
    load(store, [before], format="anthropic", origin="http")
    load(store, [after], format="anthropic", origin="http")
    assert [(r["prompt_tokens"], r["output_tokens"]) for r in requests(store)] == [(100, 99)]
    load(store, [after, before], "together", format="anthropic", origin="http")
    assert len(requests(store, "together")) == 1


@pytest.mark.parametrize("together", [True, False])
def test_an_id_used_again_hours_later_is_another_request(store: Store, together: bool) -> None:
    """Load tools number their requests from 0 in every run; the order of arrival is no matter."""

    def reply(hour: int, output: int) -> dict[str, object]:
        usage = {"prompt_tokens": 100, "completion_tokens": output,
                 "prompt_tokens_details": {"cached_tokens": 64}}  # fmt: skip
        return {"id": "chatcmpl-req-0", "created": 1772452800 + 3600 * hour, "usage": usage}

    rows = [reply(5, 7), reply(0, 9), reply(0, 3), reply(5, 2)]
    for batch in [rows] if together else [[row] for row in rows]:
        load(store, batch, format="openai", origin="http")
    assert totals(store) == (2, 200, 128)
    assert sorted(r["output_tokens"] for r in requests(store)) == [7, 9]
    again = load(store, rows, format="openai", origin="http")
    assert (again.accepted, again.corrected, again.conflicting) == (0, 0, 0)
    store.fold()
    rolled = store.cursor().execute("SELECT sum(output_tokens) FROM hour_rollup").fetchone()
    assert rolled == (16,)


def test_t68_late_row_counts_on_its_own_day_and_revises_it(store: Store) -> None:
    day = {"since": "2026-03-02", "until": "2026-03-03"}
    next_day = {"since": "2026-03-03", "until": "2026-03-04"}
    load(store, [row("early"), row("next", ts="2026-03-03T00:20:00Z")], origin="http")
    before = hit_ratio(store, **day), hit_ratio(store, **next_day)
    assert [figures["prompt_tokens"] for figures in before] == [1000, 1000]
    load(store, [row("late", ts="2026-03-02T23:50:00Z", cached_tokens=1000)], origin="http")
    after = hit_ratio(store, **day)
    assert (after["prompt_tokens"], after["token_hit_ratio"]) == (2000, 0.75)
    assert hit_ratio(store, **next_day) == before[1]
    (hour,) = [r for r in ask(store, "hit_ratio_over_time", step_seconds=3600, **day)
               if r["ts"] == "2026-03-02T23:00:00Z"]  # fmt: skip
    assert hour["cached_tokens"] == 1000
    store.fold()
    rolled = store.cursor().execute(
        "SELECT sum(requests), sum(cached_tokens) FROM hour_rollup"
        " WHERE hour = TIMESTAMP '2026-03-02 23:00:00'"
    ).fetchone()  # fmt: skip
    assert rolled == (1, 1000)


def test_t68_late_rows_are_told_and_stay_out_of_the_live_counters(store: Store) -> None:
    load(store, [row("late")])
    snapshot = store.counters.snapshot()
    assert snapshot.requests == {}
    assert snapshot.ttft == {}
    assert snapshot.late_tokens == 1000
    assert (health(store)["late_requests"], health(store)["late_tokens"]) == (1, 1000)
