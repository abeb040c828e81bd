"""The charts of the page Week as dictionaries."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from dashboard.figures.week import hours_map, weeks_bars
from dashboard.report.detail_values import HourCell
from dashboard.report.week import WeekPoint
from dashboard.report.weeks import Slot, Week

MARKUP = "<b onclick=x>&"


def point(back: int, ratio: float | None, **columns: object) -> WeekPoint:
    given: dict[str, Any] = {"coverage_ratio": None, "reported_prompt_tokens": None,
                             "partial": False, "incidents": 0, "incident_words": ""}  # fmt: skip
    week = Week(date(2026, 11, 23), "UTC").back(back)
    return WeekPoint(week=week, token_hit_ratio=ratio, **given | columns)


def cell(day: int, hour: int, ratio: float | None, **columns: object) -> HourCell:
    given: dict[str, Any] = {"coverage_ratio": None, "reported_prompt_tokens": 1000,
                             "prompt_tokens": 1000, "is_drop": False, "kv_usage_ratio": None,
                             "computed_tokens_per_second": None}  # fmt: skip
    slot = Slot(day, hour, bool(columns.pop("again", False)))
    since = datetime(2026, 11, 23, tzinfo=UTC)
    return HourCell(slot=slot, since=since, token_hit_ratio=ratio, **given | columns)


def test_t58_a_week_without_data_has_no_bar() -> None:
    figure = weeks_bars([point(1, None), point(0, 0.75, coverage_ratio=0.9)]).to_dict()
    [bars] = figure["data"]
    assert bars["y"] == [None, 0.75]
    told = ["<b>2026-W47</b> no data", "<b>2026-W48</b> 75.0 %<br>coverage 90.0 %"]
    assert list(bars["customdata"]) == told
    assert list(figure["layout"]["xaxis"]["ticktext"]) == ["W47", "W48"]


def test_partial_weeks_are_hatched_and_what_happened_is_marked() -> None:
    points = [point(2, 0.5, partial=True), point(1, None, partial=True, incidents=1),
              point(0, 0.7, incidents=2, incident_words=MARKUP)]  # fmt: skip
    bars, marks = weeks_bars(points).to_dict()["data"]
    assert bars["marker"]["pattern"]["shape"] == ["/", "/", ""]
    assert list(marks["x"]) == ["2026-W47", "2026-W48"]
    assert marks["y"][0] < marks["y"][1]
    assert marks["customdata"][1].endswith("<br>&lt;b onclick=x&gt;&amp;")


def test_hours_without_traffic_are_empty_and_drops_framed() -> None:
    cells = [cell(0, 5, 0.8), cell(6, 23, 0.2, is_drop=True, kv_usage_ratio=0.9), cell(3, 1, None)]
    figure = hours_map(cells, "Europe/Berlin").to_dict()
    heat, frames = figure["data"]
    assert (len(heat["z"]), len(heat["z"][0])) == (7, 24)
    assert (heat["z"][0][5], heat["z"][6][23], heat["z"][3][1]) == (0.8, 0.2, None)
    assert heat["text"][6][23] == (
        "<b>Sunday 23:00</b> 20.0 %, a drop<br>1,000 reported prompt tokens<br>KV in use 90.0 %"
    )
    assert (frames["x"], frames["y"]) == ([23], [6])
    assert figure["layout"]["xaxis"]["title"]["text"] == "hour, clocks of Europe/Berlin"


def test_an_hour_that_comes_twice_has_a_column_of_its_own() -> None:
    cells = [cell(6, 2, 0.8), cell(6, 2, 0.4, again=True), cell(6, 3, 0.6)]
    [heat] = hours_map(cells, "UTC").to_dict()["data"]
    assert list(heat["z"][6][2:5]) == [0.8, 0.4, 0.6]
    assert heat["z"][5][3] is None


@pytest.mark.parametrize(
    ("ratios", "palest", "darkest"),
    [
        ((0.2, 0.8), 0.2, 0.8), ((0.52, 0.53), 0.425, 0.625), ((0.5,), 0.4, 0.6),
        ((0.01,), 0.0, 0.2), ((0.97, 0.99), 0.8, 1.0), ((None,), 0.0, 1.0),
    ],
)  # fmt: skip
def test_hours_a_point_apart_do_not_look_like_none_and_all(
    ratios: tuple[float | None, ...], palest: float, darkest: float
) -> None:
    cells = [cell(0, hour, ratio) for hour, ratio in enumerate(ratios)]
    [heat] = hours_map(cells, "UTC").to_dict()["data"]
    assert (heat["zmin"], heat["zmax"]) == (pytest.approx(palest), pytest.approx(darkest))


def test_no_hours_are_an_empty_chart() -> None:
    [heat] = hours_map([], "UTC").to_dict()["data"]
    assert all(value is None for row in heat["z"] for value in row)
