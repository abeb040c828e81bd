"""Who makes the drop: the three largest parts, in points, of the change since a week ago."""

from collections.abc import Mapping
from dataclasses import dataclass

from queries.on_call.words import Quoted, Row, Rows, number, percent

MOST = 3
# A part below a tenth of a point reads as nothing.
LEAST_RATIO = 0.001
# Along what a drop of this class is split first; templates else.
DIMENSIONS: Mapping[str, str] = {
    "routing spread": "replica",
    "reset": "replica",
    "isolation": "tenant",
}
ALL_DIMENSIONS = ("template", "route", "tenant", "replica")


@dataclass(frozen=True)
class Contributor:
    """One value of a dimension. `change_ratio` is its part of the change, negative = lost."""

    dimension: str
    value: str
    name: str
    change_ratio: float
    why: str


@dataclass(frozen=True)
class Contributors:
    """The parts, what they are parts of, and against what. No parts = nothing to say."""

    parts: tuple[Contributor, ...] = ()
    change_ratio: float | None = None
    against: str = ""


def contributors(dimension: str, rows: Rows, against: str, quoted: Quoted) -> Contributors:
    """The values that lost most, of the rows of `explain`; none without both windows."""
    known = [row for row in rows if number(row, "change_ratio") is not None]
    if not known:
        return Contributors()
    lost = sorted(known, key=_change)[:MOST]
    parts = tuple(
        Contributor(dimension, str(row[dimension]), quoted(row[dimension]), _change(row), _why(row))
        for row in lost
        if _change(row) <= -LEAST_RATIO
    )
    return Contributors(parts, sum(_change(row) for row in known), against)


def replica_contributors(rows: Rows, quoted: Quoted) -> Contributors:
    """The replicas that lost most against what is expected of each, of rows of `peak_drop`."""
    known = [row for row in rows if number(row, "drop_ratio") is not None]
    tokens = sum(_tokens(row) for row in known)
    if not tokens:
        return Contributors()
    parts = [
        Contributor(
            "replica", str(row["replica"]), quoted(row["replica"]),
            -(number(row, "drop_ratio") or 0.0) * _tokens(row) / tokens,
            f"its ratio {percent(number(row, 'token_hit_ratio'))}, "
            f"expected {percent(number(row, 'expected_ratio'))}",
        )
        for row in known
    ]  # fmt: skip
    lost = sorted(parts, key=lambda part: part.change_ratio)[:MOST]
    change = sum(part.change_ratio for part in parts)
    shown = tuple(part for part in lost if part.change_ratio <= -LEAST_RATIO)
    return Contributors(shown, change, "what is expected of each replica")


def _tokens(row: Row) -> float:
    return number(row, "reported_prompt_tokens") or 0.0


def tells_apart(dimension: str, rows: Rows) -> bool:
    """Whether there is more than one value to tell apart."""
    return len({row[dimension] for row in rows}) > 1


def _change(row: Row) -> float:
    return number(row, "change_ratio") or 0.0


def _why(row: Row) -> str:
    """The larger of its two parts, with the figures that made it."""
    now, before = (percent(number(row, f"token_hit_ratio{when}")) for when in ("", "_before"))
    share, share_before = (
        percent(number(row, f"traffic_share_ratio{when}")) for when in ("", "_before")
    )
    if row["seen"] == "appeared":
        return f"new: {share} of the traffic at {now}"
    if row["seen"] == "vanished":
        return f"gone: was {share_before} of the traffic at {before}"
    within, mix = (abs(number(row, f"{part}_tokens") or 0.0) for part in ("within", "mix"))
    if within >= mix:
        return f"its ratio {before} → {now}"
    return f"its share of the traffic {share_before} → {share}, at {before}"
