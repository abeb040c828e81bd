"""A trend small enough for a table cell, as an SVG data address.

Streamlit's own chart cells refuse missing values, and a gap must stay a gap. The picture is
made of numbers only, so no text from outside can get into it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import quote

from dashboard.figures.palette import CACHED
from dashboard.figures.rows import Rows, moment, number

WIDTH, HEIGHT = 160, 28
_PAD = 2.0


def sparkline(
    rows: Rows, column: str, since: datetime, until: datetime, step_seconds: float
) -> str | None:
    """Draw `column` (a ratio of 0 to 1, fixed scale) over the window; None without a value.

    Points further apart than one step are not joined; a point alone is a dot.
    """
    length = (moment(until) - moment(since)).total_seconds()
    known = sorted(
        (moment(row["ts"]), value) for row in rows if (value := number(row, column)) is not None
    )
    if not known or length <= 0:
        return None
    runs: list[list[tuple[datetime, float]]] = []
    for point in known:
        if not runs or point[0] - runs[-1][-1][0] > timedelta(seconds=step_seconds * 1.5):
            runs.append([])
        runs[-1].append(point)
    shapes = "".join(_shape([_place(p, moment(since), length) for p in run]) for run in runs)
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">{shapes}</svg>'
    )
    return "data:image/svg+xml;utf8," + quote(picture)


def _place(point: tuple[datetime, float], since: datetime, length: float) -> tuple[float, float]:
    """Where a value lies in the picture: time to the right, 100 % at the top."""
    share = min(max((point[0] - since).total_seconds() / length, 0.0), 1.0)
    level = min(max(point[1], 0.0), 1.0)
    across, up = WIDTH - 2 * _PAD, HEIGHT - 2 * _PAD
    return _PAD + share * across, _PAD + (1 - level) * up


def _shape(places: Sequence[tuple[float, float]]) -> str:
    """One unbroken run: a line, or a dot where it is a single point."""
    if len(places) == 1:
        x, y = places[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{CACHED}"/>'
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{line}" fill="none" stroke="{CACHED}" stroke-width="1.6"/>'
