"""The one chart as numbers for inline SVG: paths in a box of 1000 x 100 that the page stretches.

Lines keep their width when stretched; letters and figures stand beside it as HTML, so that they
stay readable at any width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.on_call.chart import Chart
from queries.on_call.expected import Expected
from queries.on_call.words import clock

WIDTH, HEIGHT, MARGIN = 1000.0, 100.0, 40.0


@dataclass(frozen=True)
class Band:
    """The band of one hour as a rectangle, and the ratio expected within it."""

    x: str
    width: str
    top: str
    height: str
    middle: str


@dataclass(frozen=True)
class Drawing:
    """Paths in the box; `ticks` and `marks` are (percent from the left, words)."""

    bands: tuple[Band, ...]
    ratio: str
    load: str
    most_load: float | None
    ticks: tuple[tuple[str, str], ...]
    marks: tuple[tuple[str, str], ...]


def drawn(chart: Chart) -> Drawing:
    """The drawing of a chart. Ratios are drawn from 0 to 100 %, loads from 0 to the highest."""
    half = timedelta(seconds=(chart.times[1] - chart.times[0]).total_seconds() / 2)
    across = [_x(chart, at + half) for at in chart.times]
    most = max((load for load in chart.loads if load is not None), default=None)
    return Drawing(
        tuple(_band(chart, expected) for expected in chart.bands),
        _line(across, [_y(ratio, 1.0) for ratio in chart.ratios]),
        _area(across, [_y(load, most or 1.0) for load in chart.loads]),
        most,
        tuple(_ticks(chart)),
        tuple((_percent(chart, mark.at), mark.letter) for mark in chart.marks),
    )


def _x(chart: Chart, at: datetime) -> float:
    share = (at - chart.since) / (chart.until - chart.since)
    return WIDTH * min(max(share, 0.0), 1.0)


def _percent(chart: Chart, at: datetime) -> str:
    return f"{_x(chart, at) / WIDTH * 100:.2f}"


def _y(value: float | None, top: float) -> float | None:
    return None if value is None else HEIGHT * (1 - min(max(value / top, 0.0), 1.0))


def _band(chart: Chart, expected: Expected) -> Band:
    left, right = _x(chart, expected.since), _x(chart, expected.until)
    levels = (_y(level, 1.0) or 0.0 for level in (expected.high, expected.low, expected.ratio))
    top, bottom, middle = levels
    return Band(
        f"{left:.1f}", f"{right - left:.1f}", f"{top:.1f}",
        # A band of no height is still seen.
        f"{max(bottom - top, 0.6):.1f}", f"{middle:.1f}",
    )  # fmt: skip


def _runs(
    across: Sequence[float], heights: Sequence[float | None]
) -> list[list[tuple[float, float]]]:
    """Stretches without a gap."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(across, heights, strict=True):
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def _line(across: Sequence[float], heights: Sequence[float | None]) -> str:
    """A stretch of one point is a dot: a line of almost no length with round ends."""
    parts = []
    for run in _runs(across, heights):
        points = run if len(run) > 1 else [run[0], (run[0][0] + 0.1, run[0][1])]
        parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points))
    return "".join(parts)


def _area(across: Sequence[float], heights: Sequence[float | None]) -> str:
    """Steps down to the floor, each as wide as its time."""
    half = (across[1] - across[0]) / 2 if len(across) > 1 else WIDTH / 2
    return "".join(
        f"M{max(x - half, 0.0):.1f} {HEIGHT:.0f}V{y:.1f}H{x + half:.1f}V{HEIGHT:.0f}Z"
        for x, y in zip(across, heights, strict=True)
        if y is not None
    )


def _ticks(chart: Chart) -> list[tuple[str, str]]:
    """Every full hour, by the local clock; zones that are half an hour off have theirs too."""
    offset = chart.since.astimezone(chart.zone).utcoffset() or timedelta(0)
    local = (chart.since.replace(tzinfo=None) + offset).replace(minute=0, second=0, microsecond=0)
    at = (local - offset).replace(tzinfo=chart.since.tzinfo)
    hours = [at + timedelta(hours=hour) for hour in range(8)]
    return [
        (_percent(chart, hour), clock(hour, chart.zone, hour))
        for hour in hours
        # At the very ends there is no room for the words.
        if MARGIN <= _x(chart, hour) <= WIDTH - MARGIN
    ]
