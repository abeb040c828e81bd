"""Writing engine samples and the state of targets; reading that state back.

Rows go in as one Arrow table per batch: thousands of single inserts would take longer than
everything before them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import get_args

import duckdb
import pyarrow as pa

from exporter.records import EngineSample
from exporter.store import decode, eligibility
from exporter.store.remainder import remainder
from queries.times import utc_without_zone

_TIME = pa.timestamp("us")
_INTEGER_32 = {"block_size"}
_ARROW: dict[object, pa.DataType] = {
    datetime: _TIME,
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    dict[str, int]: pa.map_(pa.string(), pa.int64()),
    dict[str, float]: pa.map_(pa.string(), pa.float64()),
    dict[float, int]: pa.map_(pa.float64(), pa.int64()),
}


def _sample_type(column: str, annotation: object) -> pa.DataType:
    """The Arrow type of a field of EngineSample; words of every kind are text."""
    if column in _INTEGER_32:
        return pa.int32()
    options = [option for option in get_args(annotation) if option is not NoneType]
    whole = options[0] if isinstance(annotation, UnionType) else annotation
    return _ARROW.get(whole, pa.string())


_SAMPLE_TYPES = {
    column: _sample_type(column, field.annotation)
    for column, field in EngineSample.model_fields.items()
}


@dataclass(frozen=True)
class TargetRow:
    """One row of `targets`: what the scraper remembers and what health pages show.

    `url` None = pages recorded by somebody else: nothing to poll. `up` says how the last
    attempt went. `missing_advice` says of every missing metric what to do. `series` is the
    JSON of `TargetState`.
    """

    target: str
    url: str | None = None
    engine: str | None = None
    up: bool | None = None
    last_attempt: datetime | None = None
    last_success: datetime | None = None
    error: str | None = None
    missing_metrics: tuple[str, ...] = ()
    missing_advice: tuple[str, ...] = ()
    frozen: bool = False
    duration_seconds: float | None = None
    series: str | None = None


_TARGET_TYPES: dict[str, pa.DataType] = {
    "target": pa.string(),
    "url": pa.string(),
    "engine": pa.string(),
    "up": pa.bool_(),
    "last_attempt": _TIME,
    "last_success": _TIME,
    "error": pa.string(),
    "missing_metrics": pa.list_(pa.string()),
    "missing_advice": pa.list_(pa.string()),
    "frozen": pa.bool_(),
    "duration_seconds": pa.float64(),
    "series": pa.string(),
}


def append_samples(
    cursor: duckdb.DuckDBPyConnection, samples: Sequence[EngineSample]
) -> list[EngineSample]:
    """Append samples of one origin inside the caller's transaction; returns those appended.

    An interval of an engine that another origin has told already is not told again: it goes to
    `samples_beside`, to be compared. Of an interval in which scrapes were missed, what is not told
    yet is appended, as samples of the untold time. Requests that the new samples show to be
    ineligible are marked in the same transaction. Reading a page twice is ruled out before this:
    the state of its target, written in the same transaction, knows how far it was read.
    """
    if not samples:
        return []
    with _registered(cursor, samples):
        beside = _beside(cursor, samples)
        parts = _untold_parts(cursor, [samples[number] for number in beside], samples)
        told = set(beside)
        cursor.execute(_APPEND, {"beside": beside})
        beside = [number for number, left in zip(beside, parts, strict=True) if not left]
        if beside:
            cursor.execute(_KEEP_BESIDE, {"beside": beside})
    untold = [sample for left in parts for sample in left]
    if untold:
        with _registered(cursor, untold):
            cursor.execute(_APPEND, {"beside": []})
    kept = [sample for number, sample in enumerate(samples) if number not in told] + untold
    _mark_requests(cursor, kept)
    return kept


@contextmanager
def _registered(
    cursor: duckdb.DuckDBPyConnection, samples: Sequence[EngineSample]
) -> Iterator[None]:
    """The samples as a table `sample_batch`, numbered."""
    columns = {
        column: _array([getattr(sample, column) for sample in samples], kind)
        for column, kind in _SAMPLE_TYPES.items()
    }
    numbers = pa.array(range(len(samples)), pa.int64())
    cursor.register("sample_batch", pa.table({"number": numbers, **columns}))
    try:
        yield
    finally:
        cursor.unregister("sample_batch")


def _untold_parts(
    cursor: duckdb.DuckDBPyConnection,
    beside: Sequence[EngineSample],
    samples: Sequence[EngineSample],
) -> list[list[EngineSample]]:
    """What is left of each. Only where scrapes were missed: two sources that both go on tell of
    the same time in intervals that merely begin at other moments."""
    missed = {_interval(sample) for sample in samples if sample.gap}
    return [remainder(cursor, one) if _interval(one) in missed else [] for one in beside]


def _interval(sample: EngineSample) -> tuple[object, ...]:
    """Of one page and process; a gap is noted once, not on every row of it."""
    return (sample.target, sample.replica, sample.engine, sample.since, sample.ts)


_APPEND = """INSERT INTO engine_samples BY NAME
    SELECT * EXCLUDE (number) FROM sample_batch
    WHERE number NOT IN (SELECT unnest($beside::BIGINT[]))"""
_KEEP_BESIDE = """INSERT INTO samples_beside BY NAME
    SELECT target, replica, engine, model, origin, origin_name, since, ts, prompt_tokens,
        cached_tokens
    FROM sample_batch WHERE number IN (SELECT unnest($beside::BIGINT[]))"""
# Intervals that overlap one of the same engine process and program from elsewhere. Those that
# touch do not. The bounds of the batch come first: they keep the join small.
_TOLD_ELSEWHERE = """SELECT DISTINCT b.number
    FROM sample_batch b JOIN (
        SELECT replica, engine, origin, origin_name, coalesce(since, ts) AS began, ts AS ended
        FROM engine_samples
        WHERE ts > $first AND coalesce(since, ts) < $last
    ) e ON e.replica = b.replica AND e.engine = b.engine
        AND (e.origin, e.origin_name) IS DISTINCT FROM (b.origin, b.origin_name)
        AND e.ended > coalesce(b.since, b.ts) AND e.began < b.ts"""


def _beside(cursor: duckdb.DuckDBPyConnection, samples: Sequence[EngineSample]) -> list[int]:
    """Which samples tell what another origin has told."""
    first = min(sample.since or sample.ts for sample in samples)
    last = max(sample.ts for sample in samples)
    borders = {"first": utc_without_zone(first), "last": utc_without_zone(last)}
    return sorted(number for (number,) in cursor.execute(_TOLD_ELSEWHERE, borders).fetchall())


def _mark_requests(cursor: duckdb.DuckDBPyConnection, samples: Sequence[EngineSample]) -> None:
    """Mark stored requests that samples show to be ineligible, or a decode replica's."""
    off = [sample for sample in samples if sample.caching_enabled is False]
    if off:
        first = min(sample.since or sample.ts for sample in off)
        last = max(sample.ts for sample in off)
        eligibility.mark_stored(cursor, utc_without_zone(first), utc_without_zone(last))
    decoding = [sample.ts for sample in samples if sample.role == "decode"]
    if decoding:
        decode.mark(cursor, utc_without_zone(min(decoding)), utc_without_zone(max(decoding)))


def upsert_targets(cursor: duckdb.DuckDBPyConnection, rows: Iterable[TargetRow]) -> None:
    """Write the newest state of targets inside the caller's transaction; one row per target."""
    newest = {row.target: row for row in rows}
    if not newest:
        return
    batch = pa.table(
        {
            column: _array([getattr(row, column) for row in newest.values()], kind)
            for column, kind in _TARGET_TYPES.items()
        }
    )
    cursor.register("target_batch", batch)
    try:
        cursor.execute("INSERT OR REPLACE INTO targets BY NAME SELECT * FROM target_batch")
    finally:
        cursor.unregister("target_batch")


def load_targets(cursor: duckdb.DuckDBPyConnection) -> dict[str, TargetRow]:
    """Every target the store remembers, by name."""
    names = [column.name for column in fields(TargetRow)]
    found = cursor.execute("FROM targets").fetchall()
    columns = [column[0] for column in cursor.description or ()]
    rows = (dict(zip(columns, row, strict=True)) for row in found)
    return {row["target"]: _target(row, names) for row in rows}


def recent_replicas(cursor: duckdb.DuckDBPyConnection, since: datetime) -> dict[str, set[str]]:
    """The replicas each target has shown since then."""
    found: dict[str, set[str]] = {}
    rows = cursor.execute(
        "SELECT DISTINCT target, replica FROM engine_samples WHERE ts >= ?",
        [utc_without_zone(since)],
    )
    for target, replica in rows.fetchall():
        found.setdefault(target, set()).add(replica)
    return found


def remove_targets(cursor: duckdb.DuckDBPyConnection, targets: Iterable[str]) -> None:
    """Forget targets that are configured no more, so that current state does not show them.

    Their samples stay: what they served was served.
    """
    cursor.execute("DELETE FROM targets WHERE target IN (SELECT unnest(?))", [list(targets)])


def _target(row: Mapping[str, object], names: Sequence[str]) -> TargetRow:
    values: dict[str, object] = {name: _aware(row[name]) for name in names}
    lists = {name: values.pop(name) for name in ("missing_metrics", "missing_advice")}
    values |= {name: tuple(v) if isinstance(v, list) else () for name, v in lists.items()}
    values["frozen"] = bool(values["frozen"])
    return TargetRow(**values)  # type: ignore[arg-type]  # the columns are the fields


def _aware(value: object) -> object:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if kind == _TIME:
        values = [utc_without_zone(v) if isinstance(v, datetime) else None for v in values]
    elif pa.types.is_map(kind):
        values = [list(v.items()) if isinstance(v, dict) else None for v in values]
    elif pa.types.is_list(kind):
        values = [list(v) if isinstance(v, tuple) else None for v in values]
    return pa.array(values, kind)
