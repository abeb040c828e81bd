"""Figures of the Memory page as dictionaries: gaps, bars, marks, hostile names."""

import json
from datetime import datetime, timedelta
from typing import Any

import plotly.graph_objects as go
from hypothesis import given
from hypothesis import strategies as st

from dashboard.figures import contents, evictions, memory, numbers
from dashboard.figures.numbers import UNKNOWN
from tests.unit_dashboard.loopback import HOSTILE

START = datetime(2026, 11, 30, 10, 0)  # noqa: DTZ001  # rows have UTC without a zone
HOUR = {"since": START, "until": START + timedelta(hours=1), "step_seconds": 60}


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


def traces(figure: go.Figure) -> dict[str, dict[str, Any]]:
    return {trace.get("name", ""): trace for trace in json.loads(figure.to_json())["data"]}


def listed(values: Any) -> list[Any]:  # noqa: ANN401  # Plotly packs plain numbers as base64
    return list(go.Figure({"data": [{"type": "scatter", "y": values}]}).data[0].y)


def flow(number: int, evicted: float | None, **more: object) -> dict[str, object]:
    return {"ts": minute(number), "basis": "events", "tier": "device",
            "stored_blocks_per_minute": 5.0, "evicted_blocks_per_minute": evicted,
            "demoted_blocks_per_minute": 0.0, **more}  # fmt: skip


# ---------------------------------------------------------------- evictions


def test_a_step_nothing_is_told_of_is_a_gap_and_a_quiet_one_is_0() -> None:
    drawn = traces(evictions.turnover([flow(0, 3.0), flow(1, 0.0), flow(3, 2.0)], [], **HOUR))
    assert listed(drawn["evicted"]["y"]) == [3.0, 0.0, None, 2.0]
    assert "demoted" not in drawn  # nothing was
    assert listed(drawn["stored"]["y"]) == [5.0, 5.0, None, 5.0]


def test_evictions_that_are_all_0_are_drawn_as_0() -> None:
    drawn = traces(evictions.turnover([flow(0, 0.0)], [], **HOUR))
    assert listed(drawn["evicted"]["y"]) == [0.0]


def test_the_step_under_way_is_left_out() -> None:
    rows = [flow(58, 3.0), flow(59, 900.0)]
    until = {**HOUR, "until": minute(59) + timedelta(seconds=5)}
    assert listed(traces(evictions.turnover(rows, [], **until))["evicted"]["y"]) == [3.0]
    # With nothing else to show it is better than nothing.
    alone = traces(evictions.turnover(rows[1:], [], **until))
    assert listed(alone["evicted"]["y"]) == [900.0]


def test_bases_and_tiers_are_lines_of_their_own() -> None:
    rows = [flow(0, 3.0), flow(0, 2.0, tier="host"), flow(0, 9.0, basis="engine counters")]
    names = set(traces(evictions.turnover(rows, [], **HOUR)))
    assert {"evicted", "evicted (host)", "evicted (engine counters)"} <= names


def test_resets_are_marked_and_say_what_was_lost() -> None:
    resets = [
        {"ts": minute(5), "replica": HOSTILE, "reason": "lost_events", "blocks": 7},
        {"ts": minute(6), "replica": "b", "reason": "restart", "blocks": None},
    ]
    figure = evictions.turnover([flow(0, 3.0)], resets, **HOUR)
    mark = traces(figure)["reset"]
    assert mark["customdata"][1] == "restart of b"
    assert mark["customdata"][0].startswith("lost events of &lt;img")
    assert mark["customdata"][0].endswith(", 7 blocks")
    assert len(figure.layout.shapes) == 2


def age(kind: str, low: float, high: float | None, blocks: float, basis: str = "events") -> Any:  # noqa: ANN401  # a row
    return {"kind": kind, "basis": basis, "from_seconds": low, "to_seconds": high,
            "blocks": blocks}  # fmt: skip


def test_ages_by_events_are_put_together_by_their_middle() -> None:
    rows = [age("lifetime", 1.0, 1.08, 3), age("lifetime", 1.9990, 2.1589, 1),
            age("lifetime", 58.9, 63.6, 4)]  # fmt: skip
    bars = traces(evictions.age_bars(rows, {"lifetime": "lifetime"}))["lifetime"]
    # Middles 1.04, 2.08 and 61.2 s; the bars between are there and empty.
    assert bars["x"] == ["1–2 s", "2–5 s", "5–10 s", "10–30 s", "30–60 s", "1–2 min"]
    assert listed(bars["y"]) == [3 / 8, 1 / 8, 0, 0, 0, 4 / 8]
    assert bars["customdata"][0] == "3 of 8 blocks"


def test_events_are_drawn_alone_where_a_sample_tells_the_same() -> None:
    sample = [age("lifetime", 0.0, 1.0, 6, "engine sample"),
              age("lifetime", 1.0, None, 2, "engine sample")]  # fmt: skip
    both = traces(evictions.age_bars([*sample, age("lifetime", 1.0, 1.08, 9)], {"lifetime": "l"}))
    assert list(both) == ["l"]
    assert both["l"]["customdata"] == ["9 of 9 blocks"]
    alone = traces(evictions.age_bars(sample, {"lifetime": "l"}))["l (engine sample)"]
    assert alone["x"] == ["0–1 s", "> 1 s"]
    assert listed(alone["y"]) == [0.75, 0.25]


@given(st.lists(st.tuples(st.integers(-60, 250), st.integers(1, 9)), min_size=1, max_size=30))
def test_no_block_is_lost_between_the_bars(ages: list[tuple[int, int]]) -> None:
    rows = [age("idle", 1.08**bucket, 1.08 ** (bucket + 1), n) for bucket, n in ages]
    bars = traces(evictions.age_bars(rows, {"idle": "idle"}))["idle"]
    assert abs(sum(listed(bars["y"])) - 1) < 1e-9
    assert len(bars["x"]) == len(set(bars["x"]))


def test_nothing_is_an_empty_chart() -> None:
    assert not traces(evictions.age_bars([], {"lifetime": "l"}))
    assert not traces(evictions.turnover([], [], **HOUR))


# ---------------------------------------------------------------- split


def split(number: int, replica: str, cached: int | None) -> dict[str, object]:
    return {"ts": minute(number), "replica": replica, "running_tokens": 10,
            "cached_tokens": cached, "free_tokens": None if cached is None else 5}  # fmt: skip


def test_a_step_with_an_unknown_replica_is_no_bar() -> None:
    rows = [split(0, "a", 4), split(0, "b", 6), split(1, "a", 4), split(1, "b", None),
            split(2, "a", 1)]  # fmt: skip
    figure = memory.split_over_time(rows, **HOUR)
    assert figure is not None
    drawn = traces(figure)
    assert [listed(drawn[part]["y"]) for part in ("running", "cached", "free")] == [
        [20],
        [10],
        [10],
    ]
    assert memory.split_over_time(rows[2:], **HOUR) is None


# ---------------------------------------------------------------- contents


def test_what_is_not_named_is_hatched_and_last() -> None:
    rows = [
        {"template": "small", "named": True, "tokens": 10, "prefixes": 1, "share_ratio": 0.1},
        {"template": "", "named": False, "tokens": 60, "prefixes": None, "share_ratio": 0.6},
        {"template": HOSTILE, "named": True, "tokens": 30, "prefixes": 2, "share_ratio": 0.3},
    ]
    figure = contents.held_by(rows, "template")
    bars = traces(figure)[""]
    assert listed(bars["x"]) == [30, 10, 60]
    assert bars["marker"]["pattern"]["shape"] == ["", "", "/"]
    assert bars["customdata"][0] == "30 tokens in 2 prefixes, 30.0 % of what is resident"
    labels = figure.layout.yaxis.ticktext
    assert labels[2] == "further prefixes, not named"
    assert "<" not in labels[0]


def test_overlap_is_the_same_both_ways_and_empty_on_the_diagonal() -> None:
    rows = [
        {"replica_a": None, "replica_b": None, "unique_blocks": 9},
        {"replica_a": "a", "replica_b": "b", "overlap_ratio": 0.25, "shared_blocks": 1,
         "unique_blocks": 4},
        {"replica_a": "b", "replica_b": "c", "overlap_ratio": 0.5, "shared_blocks": 2,
         "unique_blocks": 4},
    ]  # fmt: skip
    heat = contents.overlap(rows).data[0]
    assert [list(line) for line in heat.z] == [
        [None, 0.25, None], [0.25, None, 0.5], [None, 0.5, None],
    ]  # fmt: skip
    assert heat.customdata[1][2] == "2 of 4 blocks on both (50.0 %)"


# ---------------------------------------------------------------- numbers


def test_sizes_and_ages_as_people_read_them() -> None:
    assert [numbers.gib(size) for size in (None, 0, 2**29, 200 * 2**30)] == [
        UNKNOWN, "0.00 GiB", "0.50 GiB", "200 GiB",
    ]  # fmt: skip
    assert [numbers.duration(age) for age in (None, 0.25, 119, 600, 7300)] == [
        UNKNOWN, "250 ms", "119 s", "10 min", "2 h 1 min",
    ]  # fmt: skip
