"""What is left of a long interval of which another origin has told a part.

After an outage the first sample of a scraper spans all of it. Where a Prometheus or a back-fill has
told some minutes of that time, the tokens of the others are known by nobody else: they are the
difference. A sample becomes one sample for each stretch that is untold.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeGuard

import duckdb

from exporter.records import EngineSample
from queries.times import utc_without_zone

# In the order of the record: what counters rose by, then gauges, which are of the end alone.
_FIELDS = tuple(EngineSample.model_fields)
_FIRST, _AFTER = _FIELDS.index("prompt_tokens"), _FIELDS.index("running_requests")
INCREASES = tuple(name for name in _FIELDS[_FIRST:_AFTER] if name != "count_unit")
GAUGES = _FIELDS[_AFTER:]
# Rows of which are parts of one count. Of another basis nothing can be subtracted.
_SAME_COUNT = ("model", "tenant", "route", "provenance", "count_unit")

_TOLD = """SELECT * FROM engine_samples
    WHERE replica = $replica AND engine = $engine
        AND (origin, origin_name) IS DISTINCT FROM ($origin::VARCHAR, $origin_name::VARCHAR)
        AND ts > $since AND coalesce(since, ts) < $ts"""

Span = tuple[datetime, datetime]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Told:
    """A stored sample of another origin: its interval, and the share of it in ours."""

    span: Span
    share: float
    row: Row


def remainder(cursor: duckdb.DuckDBPyConnection, sample: EngineSample) -> list[EngineSample]:
    """The untold parts of a sample, oldest first; whole tokens, as many as nobody has told.

    Empty where all its time is told, or more tokens than it counted: then there are two readings,
    to be compared.
    """
    if sample.since is None:
        return []
    whole = (sample.since, sample.ts)
    told = _told(cursor, sample, whole)
    untold = _untold(whole, [one.span for one in told])
    if not untold:
        return []
    if (left := _left(sample, told, _seconds(untold) / _seconds([whole]))) is None:
        return []
    return _spread(sample, left, untold)


def _told(cursor: duckdb.DuckDBPyConnection, sample: EngineSample, whole: Span) -> list[Told]:
    names = ("replica", "engine", "origin", "origin_name")
    asked = {name: getattr(sample, name) for name in names}
    borders = {name: utc_without_zone(at) for name, at in zip(("since", "ts"), whole, strict=True)}
    rows = cursor.execute(_TOLD, asked | borders).fetchall()
    columns = [column[0] for column in cursor.description or ()]
    return [_as_told(dict(zip(columns, row, strict=True)), whole) for row in rows]


def _as_told(row: Row, whole: Span) -> Told:
    """Of a baseline, which is a moment, the share is 0."""
    ended = row["ts"].replace(tzinfo=UTC)
    began = row["since"].replace(tzinfo=UTC) if row["since"] else ended
    span = (max(began, whole[0]), min(ended, whole[1]))
    length = (ended - began).total_seconds()
    return Told(span, _seconds([span]) / length if length else 0.0, row)


def _untold(whole: Span, told: Iterable[Span]) -> list[Span]:
    found, at = [], whole[0]
    for began, ended in sorted(span for span in told if span[0] < span[1]):
        if began > at:
            found.append((at, began))
        at = max(at, ended)
    return [*found, (at, whole[1])] if at < whole[1] else found


def _left(sample: EngineSample, told: Sequence[Told], share: float) -> dict[str, Any] | None:
    """Increases less what was told of them; by the share of time where that is not known. None
    where more was told than there is."""
    parts = [t for t in told if all(t.row[n] == getattr(sample, n) for n in _SAME_COUNT)]
    known = bool(parts) or not any(one.share for one in told)
    left: dict[str, Any] = {}
    for name in INCREASES:
        value = getattr(sample, name)
        shares = [(part.row[name], part.share) for part in parts if part.share]
        if value is None:
            left[name] = None
        elif known and all(_comparable(value, given) for given, _ in shares):
            left[name] = _less(value, shares)
        else:
            left[name] = _times(value, share)
    return None if (left["prompt_tokens"] or 0) < 0 else {n: _floored(v) for n, v in left.items()}


def _comparable(value: object, given: object) -> bool:
    """Whether one may be subtracted from the other: maps only where both have the same keys."""
    if _is_map(value):
        return _is_map(given) and value.keys() == given.keys()
    return given is not None


def _less(value: Any, parts: Sequence[tuple[Any, float]]) -> Any:  # noqa: ANN401 - any increase
    if _is_map(value):
        return {key: _less(v, [(part[key], s) for part, s in parts]) for key, v in value.items()}
    rest = value - sum(part * share for part, share in parts)
    return round(rest) if isinstance(value, int) else rest


def _times(value: Any, share: float) -> Any:  # noqa: ANN401 - any increase
    if _is_map(value):
        return {key: _times(one, share) for key, one in value.items()}
    return round(value * share) if isinstance(value, int) else value * share


def _floored(value: Any) -> Any:  # noqa: ANN401 - any increase
    if _is_map(value):
        return {key: _floored(one) for key, one in value.items()}
    return None if value is None else max(value, 0)


def _spread(sample: EngineSample, left: Row, untold: Sequence[Span]) -> list[EngineSample]:
    """One sample a stretch, by length. Maps stay whole, on the longest: a histogram's counts, each
    rounded for itself, would be none any more."""
    longest = max(range(len(untold)), key=lambda number: _seconds([untold[number]]))
    borders = [_seconds(untold[:n]) / _seconds(untold) for n in range(len(untold) + 1)]
    found = []
    for number, (began, ended) in enumerate(untold):
        first, last = borders[number : number + 2]
        values = {
            name: (value if number == longest else None)
            if value is None or _is_map(value)
            else _times(value, last) - _times(value, first)
            for name, value in left.items()
        }
        if ended < sample.ts:
            values |= dict.fromkeys(GAUGES)
        found.append(sample.model_copy(update={"since": began, "ts": ended, **values}))
    return found


def _is_map(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _seconds(spans: Iterable[Span]) -> float:
    return sum((ended - began for began, ended in spans), timedelta()).total_seconds()
