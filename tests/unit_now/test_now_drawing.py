"""The chart as SVG: where a ratio, a band, a mark and a tick lie in a box of 1000 x 100."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.endpoints.now_chart import drawn
from queries.on_call.chart import Chart, Mark, chart
from queries.on_call.expected import Expected

UNTIL = datetime(2026, 11, 29, 3, 0, tzinfo=UTC)
SINCE = UNTIL - timedelta(hours=6)
STEP = timedelta(minutes=5)


def made(
    ratios: list[float | None], loads: list[float | None] = [],  # noqa: B006
    zone: str = "UTC", marks: tuple[Mark, ...] = (), bands: tuple[Expected, ...] = (),
) -> Chart:  # fmt: skip
    def rows(values: list[float | None], column: str) -> list[dict[str, object]]:
        return [
            {"ts": SINCE + place * STEP, column: value, "basis": "log"}
            for place, value in enumerate(values)
        ]

    return chart(
        (SINCE, UNTIL), ZoneInfo(zone), rows(ratios, "token_hit_ratio"),
        rows(loads, "prompt_tokens_per_second"), bands, marks,
    )  # fmt: skip


def test_a_line_runs_through_the_middle_of_its_steps() -> None:
    """A step is 1000 / 72 = 13.9 wide; 75 % lies a quarter below the top."""
    assert drawn(made([0.75, 0.5])).ratio == "M6.9 25.0L20.8 50.0"


def test_t57_a_gap_breaks_the_line_and_a_lone_point_is_a_dot() -> None:
    assert drawn(made([0.75, None, 1.0, 0.0])).ratio == ("M6.9 25.0L7.0 25.0M34.7 0.0L48.6 100.0")


def test_the_load_stands_on_the_floor_and_its_highest_fills_the_box() -> None:
    drawing = drawn(made([], [50.0, None, 100.0]))
    assert drawing.most_load == 100
    assert drawing.load == "M0.0 100V50.0H13.9V100ZM27.8 100V0.0H41.7V100Z"


def test_nothing_to_draw_is_nothing() -> None:
    drawing = drawn(made([]))
    assert (drawing.ratio, drawing.load, drawing.most_load, drawing.bands) == ("", "", None, ())


def test_a_band_is_a_rectangle_over_its_hour() -> None:
    expected = Expected(UNTIL - timedelta(hours=1), UNTIL, 0.6, 0.8, 0.7)
    [band] = drawn(made([], bands=(expected,))).bands
    assert (band.x, band.width, band.top, band.height, band.middle) == (
        "833.3", "166.7", "20.0", "20.0", "30.0",
    )  # fmt: skip


def test_marks_and_hours_lie_at_their_time() -> None:
    mark = Mark("A", UNTIL - timedelta(hours=3), "reset")
    drawing = drawn(made([], marks=(mark,)))
    assert drawing.marks == (("50.00", "A"),)
    assert drawing.ticks[:2] == (("16.67", "22:00"), ("33.33", "23:00"))


def test_hours_are_those_of_the_local_clock() -> None:
    """Kolkata is five and a half hours ahead: its full hours are half hours of UTC."""
    ticks = drawn(made([], zone="Asia/Kolkata")).ticks
    assert ticks[0] == ("8.33", "03:00")
    assert [words for _, words in ticks] == ["03:00", "04:00", "05:00", "06:00", "07:00", "08:00"]


@settings(max_examples=40)
@given(
    st.lists(st.none() | st.floats(-1, 2), max_size=72),
    st.lists(st.none() | st.floats(0, 1e9), max_size=72),
)
def test_nothing_is_drawn_outside_the_box(
    ratios: list[float | None], loads: list[float | None]
) -> None:
    drawing = drawn(made(ratios, loads))
    for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", drawing.ratio):
        assert 0 <= float(x) <= 1000
        assert 0 <= float(y) <= 100
    for y in re.findall(r"V(-?[\d.]+)H", drawing.load):
        assert 0 <= float(y) <= 100
