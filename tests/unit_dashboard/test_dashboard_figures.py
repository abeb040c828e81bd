"""Figures as dictionaries: what is drawn, where lines break, what hovers say."""

import json
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any
from urllib.parse import unquote

import plotly.graph_objects as go
import pytest

from dashboard.figures import latency, memory, palette, parts, rows
from dashboard.figures.over_time import ratio_with_load
from dashboard.figures.sparkline import HEIGHT, WIDTH, sparkline
from tests.unit_dashboard.loopback import HOSTILE

START = datetime(2026, 11, 30, 10, 0)  # noqa: DTZ001  # rows have UTC without a zone
HOUR = {"since": START, "until": START + timedelta(hours=1)}


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


def traces(figure: go.Figure) -> dict[str, dict[str, Any]]:
    """Traces by name, through JSON as the browser gets them. What only keeps axes has no name."""
    drawn = json.loads(figure.to_json())["data"]
    return {trace["name"]: trace for trace in drawn if "name" in trace}


def listed(values: Any) -> list[Any]:  # noqa: ANN401  # Plotly packs plain numbers as base64
    return list(go.Figure({"data": [{"type": "scatter", "y": values}]}).data[0].y)


# ---------------------------------------------------------------- rows


def test_missing_step_is_an_empty_row() -> None:
    given = [{"ts": minute(n), "v": n} for n in (3, 0, 1)]
    filled = rows.with_gaps(given, 60)
    assert [row["ts"] for row in filled] == [minute(n) for n in (0, 1, 2, 3)]
    assert [rows.number(row, "v") for row in filled] == [0, 1, None, 3]


def test_one_empty_row_stands_for_a_long_gap() -> None:
    filled = rows.with_gaps([{"ts": minute(0)}, {"ts": minute(59)}], 60)
    assert [row["ts"] for row in filled] == [minute(0), minute(1), minute(59)]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "7"])
def test_what_is_no_number_is_unknown(value: object) -> None:
    assert rows.number({"v": value}, "v") is None


def test_zero_is_a_number() -> None:
    assert rows.number({"v": 0}, "v") == 0.0


def test_numerator_is_what_the_ratio_counts() -> None:
    # Of 70 cached tokens 10 belong to prompts nobody counted: the ratio is 60 of 100.
    engine = {"cached_tokens": 70, "reported_prompt_tokens": 100, "computed_tokens": 40}
    assert rows.reported_cached(engine) == 60
    assert rows.reported_cached({"cached_tokens": 7}) == 7
    assert rows.reported_cached({}) is None


def test_lone_values_are_found() -> None:
    assert rows.isolated([1.0, None, 2.0, 3.0, None, 4.0]) == [
        True, False, False, False, False, True,
    ]  # fmt: skip
    assert rows.isolated([]) == []


# ---------------------------------------------------------------- ratio over load


def ratio_row(at: int, cached: int, reported: int, prompt: int) -> dict[str, Any]:
    return {
        "ts": minute(at), "cached_tokens": cached, "reported_prompt_tokens": reported,
        "prompt_tokens": prompt, "token_hit_ratio": cached / reported if reported else None,
        "coverage_ratio": reported / prompt,
    }  # fmt: skip


def test_ratio_line_breaks_at_gaps_and_names_its_sums() -> None:
    ratio = [ratio_row(0, 712, 1000, 1000), ratio_row(1, 500, 1000, 1000), ratio_row(5, 0, 10, 10)]
    figure = ratio_with_load(ratio, [], step_seconds=60, label="token hit ratio", **HOUR)
    line = traces(figure)["token hit ratio"]
    assert listed(line["y"]) == [0.712, 0.5, None, 0.0]
    assert line["connectgaps"] is False
    assert line["customdata"][0] == (" (712 of 1,000 reported prompt tokens, coverage 100.0 %)")
    assert listed(line["marker"]["size"]) == [0, 0, 0, 5]  # the lone step is a dot


def test_coverage_is_drawn_where_it_is_not_full() -> None:
    full = ratio_with_load([ratio_row(0, 1, 100, 100)], [], step_seconds=60, label="ratio", **HOUR)
    assert "coverage" not in traces(full)
    half = ratio_with_load([ratio_row(0, 1, 50, 100)], [], step_seconds=60, label="ratio", **HOUR)
    assert listed(traces(half)["coverage"]["y"]) == [0.5]


def test_comparison_lies_on_the_window() -> None:
    before = [{**ratio_row(0, 7, 10, 10), "ts": minute(-60)}]
    figure = ratio_with_load([], [], step_seconds=60, label="ratio", before=before,
                             shift=timedelta(hours=1), **HOUR)  # fmt: skip
    line = traces(figure)["before"]
    assert line["x"][0].startswith("2026-11-30T10:00")
    assert line["line"]["dash"] == "dot"


def test_load_names_its_basis_and_the_queue() -> None:
    load = [{"ts": minute(0), "prompt_tokens_per_second": 90.0, "computed_tokens_per_second": 30.0,
             "running_requests": 4.0, "waiting_requests": 2.0, "basis": "engine"}]  # fmt: skip
    drawn = traces(ratio_with_load([], load, step_seconds=60, label="ratio", **HOUR))
    prompt = drawn["prompt tokens/s (engine counters)"]
    assert listed(prompt["y"]) == [90.0]
    assert prompt["customdata"] == [" (4 running, 2 waiting)"]
    assert listed(drawn["computed tokens/s (engine counters)"]["y"]) == [30.0]


def notes(figure: go.Figure) -> list[str]:
    return [note.text for note in figure.layout.annotations]


def test_no_rows_give_empty_axes_over_the_window() -> None:
    figure = ratio_with_load([], [], step_seconds=60, label="ratio", **HOUR)
    assert [(trace.yaxis, trace.x, trace.showlegend) for trace in figure.data] == [
        ("y", (None,), False), ("y2", (None,), False),
    ]  # fmt: skip
    assert figure.layout.xaxis.range == (START, minute(60))
    assert notes(figure) == ["No token hit ratio in this window"]


def test_t58_idle_engines_have_a_load_of_nought_and_no_thousandths_of_a_token() -> None:
    idle = {"ts": START, "basis": "engine", "prompt_tokens_per_second": 0.0,
            "computed_tokens_per_second": 0.0}  # fmt: skip
    figure = ratio_with_load([], [idle], step_seconds=60, label="ratio", **HOUR)
    assert figure.layout.yaxis2.tickvals == (0,)
    assert notes(figure) == ["No token hit ratio in this window"]
    busy = ratio_with_load([ratio_row(0, 1, 2, 2)], [idle | {"prompt_tokens_per_second": 9.0}],
                           step_seconds=60, label="ratio", **HOUR)  # fmt: skip
    assert busy.layout.yaxis2.tickvals is None
    assert notes(busy) == []


def test_both_parts_share_the_time_axis_and_dragging_selects_a_time() -> None:
    figure = ratio_with_load([ratio_row(0, 1, 2, 2)], [], step_seconds=60, label="ratio", **HOUR)
    assert figure.layout.xaxis.matches == "x2"
    assert (figure.layout.dragmode, figure.layout.selectdirection) == ("select", "h")


# ---------------------------------------------------------------- sparkline


def test_sparkline_breaks_at_gaps() -> None:
    points = [{"ts": minute(n), "r": r} for n, r in ((0, 0.0), (1, 1.0), (30, 0.5))]
    picture = unquote(sparkline(points, "r", START, minute(60), 60) or "")
    assert picture.count("<polyline") == 1
    assert picture.count("<circle") == 1
    bottom, top = HEIGHT - 2, 2
    assert f'points="2.0,{bottom:.1f} {2 + (WIDTH - 4) / 60:.1f},{top:.1f}"' in picture


def test_sparkline_of_nothing_is_nothing() -> None:
    assert sparkline([{"ts": minute(0), "r": None}], "r", START, minute(60), 60) is None
    assert sparkline([], "r", START, START, 60) is None


# ---------------------------------------------------------------- parts of a change


def test_parts_are_two_bars_a_segment_and_names_are_escaped() -> None:
    given = [
        {"tenant": HOSTILE, "change_tokens": -480, "within_tokens": -500, "mix_tokens": 20,
         "change_ratio": -0.12, "token_hit_ratio": 0.575, "token_hit_ratio_before": 0.7,
         "traffic_share_ratio": 0.5, "traffic_share_ratio_before": 0.25},
        {"tenant": "", "change_tokens": -20, "within_tokens": 0, "mix_tokens": -20},
        {"tenant": "new", "change_tokens": None},
    ]  # fmt: skip
    figure = parts.parts_bars(given, "tenant")
    own, share = json.loads(figure.to_json())["data"]
    assert (own["name"], own["x"]) == ("own ratio", [-500, 0])
    assert (share["name"], share["x"]) == ("share of traffic", [20, -20])
    assert "-12.0 points" in own["customdata"][0]
    assert "ratio 70.0 % before, 57.5 % now: -500 tokens" in own["customdata"][0]
    assert "share 25.0 % before, 50.0 % now: 20 tokens" in own["customdata"][0]
    assert "<img" not in figure.to_json()
    assert figure.layout.yaxis.ticktext[1] == "(not given)"


# ---------------------------------------------------------------- latency


def bucket(low: float, high: float, requests: int, outcome: str = "miss") -> dict[str, Any]:
    return {"from_seconds": low, "to_seconds": high, "requests": requests, "outcome": outcome,
            "ttft_point": "client"}  # fmt: skip


def test_quantiles_lie_on_the_logarithm_within_their_bucket() -> None:
    spread = [bucket(1.0, 4.0, 10), bucket(4.0, 16.0, 10)]
    assert latency.quantile(spread, 0.25) == pytest.approx(2.0)  # half of 1 to 4 on the logarithm
    assert latency.quantile(spread, 0.5) == pytest.approx(4.0)
    assert latency.quantile(spread, 0.95) == pytest.approx(4 * 4**0.9)
    assert latency.quantile(spread, 1.0) == pytest.approx(16.0)


def test_quantiles_add_up_over_outcomes() -> None:
    spread = [bucket(1.0, 2.0, 1, "hit"), bucket(1.0, 2.0, 1, "miss"), bucket(8.0, 9.0, 2)]
    assert latency.quantile(spread, 0.5) == pytest.approx(2.0)


def test_no_requests_have_no_quantile() -> None:
    assert latency.quantile([], 0.5) is None
    assert latency.quantile([bucket(1.0, 2.0, 0)], 0.5) is None


def test_points_are_listed_most_requests_first_and_kept_apart() -> None:
    given = [bucket(1, 2, 3), {**bucket(1, 2, 9), "ttft_point": "gateway"},
             {**bucket(1, 2, 99), "ttft_point": None}]  # fmt: skip
    assert rows.points_of(given) == ["gateway", "client"]
    assert [row["requests"] for row in rows.at_point(given, "client")] == [3]


def test_distribution_is_a_share_of_each_outcome() -> None:
    spread = [bucket(1.0, 2.0, 1, "hit"), bucket(4.0, 8.0, 3, "hit"), bucket(1.0, 2.0, 10)]
    drawn = traces(latency.distribution(spread))
    assert list(drawn) == ["hit", "miss"]
    assert listed(drawn["hit"]["x"]) == [1.0, 2.0, 2.0, 4.0, 4.0, 8.0]
    assert listed(drawn["hit"]["y"]) == [0.25, 0.25, 0.0, 0.0, 0.75, 0.75]
    assert drawn["hit"]["customdata"][0] == "1 of 4 requests"
    assert drawn["hit"]["line"]["color"] == palette.OUTCOME_COLOUR["hit"]


def test_equal_length_marks_median_p95_and_few_requests() -> None:
    given = [
        {"within_from": 0, "within_to": 64, "outcome": "hit", "requests": 500,
         "p50_seconds": 0.1, "p95_seconds": 0.4},
        {"within_from": 64, "within_to": None, "outcome": "hit", "requests": 19,
         "p50_seconds": 0.2, "p95_seconds": 0.2},
        {"within_from": 64, "within_to": None, "outcome": "miss", "requests": 20,
         "p50_seconds": 0.9, "p95_seconds": 1.0},
    ]  # fmt: skip
    figure = latency.at_equal_length(given, "prompt")
    drawn = traces(figure)
    assert drawn["hit"]["marker"]["symbol"] == ["circle", "circle-open"]
    assert listed(drawn["hit"]["error_y"]["array"]) == pytest.approx([0.3, 0.0])
    assert drawn["miss"]["marker"]["symbol"] == ["square"]
    assert figure.layout.xaxis.ticktext == ("0–64", "64 and more")
    assert "19 requests" in drawn["hit"]["customdata"][1]


def test_dose_line_stands_in_the_middle_of_its_classes() -> None:
    given = [{"from_tokens": 400, "to_tokens": 900, "requests": 5, "p50_seconds": 0.5,
              "p95_seconds": 0.7},
             {"from_tokens": 0, "to_tokens": 64, "requests": 9, "p50_seconds": 0.1,
              "p95_seconds": 0.2}]  # fmt: skip
    drawn = traces(latency.dose_line(given))
    assert listed(drawn["p50"]["x"]) == pytest.approx([8.0, 600.0])  # √(1·64), √(400·900)
    assert listed(drawn["p50"]["y"]) == [0.1, 0.5]
    assert listed(drawn["p95"]["y"]) == [0.2, 0.7]
    assert drawn["p50"]["customdata"][1] == " (400–900 tokens, 5 requests)"


def test_ttft_over_time_has_gaps_per_outcome() -> None:
    given = [
        {"ts": minute(n), "outcome": outcome, "requests": 4, "p50_seconds": 0.1, "p95_seconds": 0.2}
        for n, outcome in ((0, "hit"), (1, "miss"), (2, "hit"))
    ]
    drawn = traces(latency.ttft_over_time(given, step_seconds=60, **HOUR))
    assert listed(drawn["hit, p95"]["y"]) == [0.2, None, 0.2]
    assert listed(drawn["miss, p95"]["y"]) == [0.2]
    assert drawn["hit, p95"]["customdata"][:2] == [" (p50 100 ms, 4 requests)", ""]


# ---------------------------------------------------------------- memory


def test_split_keeps_unknown_apart_from_zero() -> None:
    known = {"replica": "a", "capacity_tokens": 100, "running_tokens": 50, "cached_tokens": 30,
             "free_tokens": 20}  # fmt: skip
    silent = {"replica": HOSTILE, "capacity_tokens": 100, "running_tokens": 60,
              "cached_tokens": None, "free_tokens": None}  # fmt: skip
    assert memory.split(known) == {"running": 50, "cached": 30, "free": 20, "unknown": 0}
    assert memory.split(silent) == {"running": 60, "cached": 0, "free": 0, "unknown": 40}
    figure = memory.split_bars([known, silent, {"replica": "c", "capacity_tokens": None}])
    drawn = traces(figure)
    assert listed(drawn["running"]["x"]) == [50, 60]
    assert drawn["cached or free: unknown"]["marker"]["pattern"]["shape"] == "/"
    assert (
        "40 of 100 tokens not known whether cached or free (40.0 %)"
        in (drawn["cached or free: unknown"]["customdata"])
    )
    assert "<img" not in figure.to_json()


def test_hatching_alone_has_its_name_beside_it() -> None:
    """Plotly leaves the legend out where there is one trace."""
    idle = {"replica": "a", "capacity_tokens": 100, "running_tokens": 0, "cached_tokens": None,
            "free_tokens": None}  # fmt: skip
    figure = memory.split_bars([idle])
    assert list(traces(figure)) == ["cached or free: unknown"]
    assert figure.layout.showlegend


def test_usage_lines_per_replica_break_at_gaps() -> None:
    given = [
        {"ts": minute(n), "replica": name, "kv_usage_ratio": use}
        for n, name, use in ((0, "a", 0.1), (1, "a", 0.2), (5, "a", 0.3), (0, "b", 0.9))
    ]
    figure = memory.usage_with_ratio(given, [], step_seconds=60, label="ratio", **HOUR)
    drawn = traces(figure)
    assert list(drawn) == ["a", "b"]  # by name: colours stay when another is the fullest
    assert listed(drawn["a"]["y"]) == [0.1, 0.2, None, 0.3]


def test_at_most_so_many_replicas_are_drawn() -> None:
    given = [{"ts": minute(0), "replica": f"r{n}", "kv_usage_ratio": n / 20} for n in range(20)]
    figure = memory.usage_with_ratio(given, [], step_seconds=60, label="ratio", **HOUR)
    # The eight fullest, in order of name.
    assert list(traces(figure)) == [f"r{n}" for n in range(12, 20)]
    assert notes(figure) == ["No token hit ratio in this window"]


# ---------------------------------------------------------------- colours

# How people without red, green or blue receptors see linear light (Machado 2009, severity 1).
SIGHT = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                 (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
                (0.004733, 0.691367, 0.303900)),
}  # fmt: skip


def linear(colour: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def lab(light: list[float]) -> tuple[float, float, float]:
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(a * b for a, b in zip(row, light, strict=True)) for row in to_xyz]
    x, y, z = (
        (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116)
        for v in (max(value, 0.0) / w for value, w in zip(xyz, white, strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(colour: str, background: str) -> float:
    weights = (0.2126, 0.7152, 0.0722)
    a, b = (
        sum(w * c for w, c in zip(weights, linear(each), strict=True))
        for each in (colour, background)
    )
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


@pytest.mark.parametrize("sight", list(SIGHT))
def test_outcomes_are_told_apart_by_every_sight(sight: str) -> None:
    seen = {
        outcome: lab([sum(m * c for m, c in zip(row, linear(colour), strict=True))
                      for row in SIGHT[sight]])
        for outcome, colour in palette.OUTCOME_COLOUR.items()
    }  # fmt: skip
    for one, other in combinations(seen, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert distance > 15, (one, other, distance)


@pytest.mark.parametrize("background", ["#ffffff", "#12161b"])
def test_outcomes_stand_out_from_both_themes(background: str) -> None:
    for colour in palette.OUTCOME_COLOUR.values():
        assert contrast(colour, background) > 3, colour
