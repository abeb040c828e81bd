"""What every figure is drawn from: rows as the query API answers them.

Numbers may be None (not known), which is never drawn as 0. Times are UTC without a zone.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from queries.on_call.words import Row, Rows, number
from queries.times import utc_without_zone

__all__ = [
    "Row", "Rows", "at_point", "count", "group", "isolated", "moment", "number", "points_of",
    "reported_cached", "with_gaps",
]  # fmt: skip


def count(row: Row, column: str) -> int | None:
    """Value of a counting column in whole units; None where it is absent or NULL."""
    value = number(row, column)
    return None if value is None else int(value)


def reported_cached(row: Row) -> float | None:
    """Numerator of the token hit ratio: the cached tokens of what is reported.

    `cached_tokens` of engines may also hold tokens whose prompts are not known.
    """
    reported, computed = number(row, "reported_prompt_tokens"), number(row, "computed_tokens")
    if reported is None or computed is None:
        return number(row, "cached_tokens")
    return reported - computed


def moment(value: object) -> datetime:
    """Time of a row as naive UTC, which Plotly draws as it is; raises on anything else."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise TypeError(f"not a time stamp: {value!r}")
    return utc_without_zone(value)


def with_gaps(rows: Rows, step_seconds: float) -> list[Row]:
    """Rows in time order with an empty row wherever a step is missing.

    A chart then breaks its line there: no traffic is a gap, neither 0 nor a straight line.
    The empty row has only `ts`, so every other column reads as None.
    """
    ordered = sorted(rows, key=lambda row: moment(row["ts"]))
    step = timedelta(seconds=step_seconds)
    filled: list[Row] = []
    for row in ordered:
        if filled and moment(row["ts"]) - moment(filled[-1]["ts"]) > step * 1.5:
            filled.append({"ts": moment(filled[-1]["ts"]) + step})
        filled.append(row)
    return filled


def isolated(values: Sequence[float | None]) -> list[bool]:
    """Which known values have no known neighbour: a line cannot show them, a dot must."""
    known = [value is not None for value in values]
    around = [False, *known, False]
    return [here and not (around[index] or around[index + 2]) for index, here in enumerate(known)]


def group(rows: Rows, column: str) -> dict[Any, list[Row]]:
    """Rows by the value of one column, in order of first appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.get(column), []).append(row)
    return groups


def points_of(rows: Rows) -> list[str]:
    """The TTFT points in the rows, most requests first. Points are never mixed in a figure."""
    totals: dict[str, float] = {}
    for row in rows:
        point = row.get("ttft_point")
        if point is not None:
            totals[point] = totals.get(point, 0.0) + (number(row, "requests") or 0.0)
    return sorted(totals, key=lambda point: (-totals[point], point))


def at_point(rows: Rows, point: str | None) -> list[Row]:
    """The rows of one TTFT point."""
    return [row for row in rows if row.get("ttft_point") == point]
