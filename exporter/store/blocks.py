"""Writing what KV-cache events told, and merging it.

`block_minutes` is additive like the roll-ups: a drain appends what happened since the one before,
readers sum, compaction merges. How things stood (`resident_*`, `uncertain`) is the row's that was
heard last. Streams are replaced row by row, copies by their minute, resident prefixes as a whole.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from exporter.blocks.rows import (
    BlockCopies,
    BlockMinute,
    BlockReset,
    BlockStream,
    Drained,
    Renamed,
    ResidentPrefix,
)
from exporter.store.store import Store
from queries.times import as_utc

logger = logging.getLogger(__name__)

_HISTOGRAM = pa.map_(pa.int32(), pa.int64())
_ARROW: dict[str, pa.DataType] = {
    "datetime": pa.timestamp("us"),
    "str": pa.string(),
    "int": pa.int64(),
    "bool": pa.bool_(),
    "Mapping[int, int]": _HISTOGRAM,
}
# Columns whose numbers use all 64 bits.
_UNSIGNED = {"prefix", "last_sequence"}
_HISTOGRAMS = ("lifetime", "idle", "reuse_gap", "evicted_reuse_gap")
_SUMS = (
    "stored_blocks", "evicted_blocks", "demoted_blocks", "promoted_blocks", "reset_blocks",
    "never_reused_blocks", "reuse_known_blocks",
)  # fmt: skip
_KEY = ("minute", "source", "replica", "model", "tier")
_STANDING = ("block_size", "resident_blocks", "resident_tokens", "uncertain")


def write_drained(store: Store, drained: Drained) -> None:
    """Everything a drain brought, in one transaction."""
    with store.write() as cursor:
        _append(cursor, "block_minutes", BlockMinute, drained.minutes)
        _append(cursor, "block_resets", BlockReset, drained.resets)
        _rename(cursor, drained.renamed)
        _replace_copies(cursor, drained.copies)
        _replace_streams(cursor, drained.streams)
        if drained.prefixes is not None:
            cursor.execute("DELETE FROM resident_prefixes")
            _append(cursor, "resident_prefixes", ResidentPrefix, drained.prefixes)


def known_streams(store: Store) -> list[BlockStream]:
    """What earlier runs heard of every stream: what a replay sends of it again is known."""
    names = [each.name for each in fields(BlockStream)]
    cursor = store.cursor()
    found = cursor.execute(f"SELECT {', '.join(names)} FROM block_streams").fetchall()
    cursor.close()
    return [BlockStream(*map(_in_utc, row)) for row in found]


def compact(cursor: duckdb.DuckDBPyConnection) -> None:
    """Merges the rows of every minute and cache that has more than one. Changes no sum."""
    key = ", ".join(_KEY)
    cursor.execute(
        f"CREATE OR REPLACE TEMP TABLE split_minutes AS SELECT DISTINCT minute AS t"
        f" FROM (SELECT {key} FROM block_minutes GROUP BY ALL HAVING count(*) > 1)"
    )
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in _SUMS)
    histograms = ", ".join(
        f"sum_histograms(list({name}) FILTER ({name} IS NOT NULL)) AS {name}"
        for name in _HISTOGRAMS
    )
    # All from one row: two may have been heard at the same time.
    packed = ", ".join(f"{name} := {name}" for name in _STANDING)
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE merged AS
        SELECT * EXCLUDE (standing), unnest(standing) FROM (
            SELECT {key}, max(heard) AS heard, {sums},
                arg_max(struct_pack({packed}), heard) AS standing, {histograms}
            FROM block_minutes WHERE minute IN (SELECT t FROM split_minutes) GROUP BY {key})"""
    )
    cursor.execute("DELETE FROM block_minutes WHERE minute IN (SELECT t FROM split_minutes)")
    cursor.execute("INSERT INTO block_minutes BY NAME SELECT * FROM merged")


def _rename(cursor: duckdb.DuckDBPyConnection, renamed: Sequence[Renamed]) -> None:
    """Gives what a stream told under its name before the one it has now."""
    for each in renamed:
        values = each._asdict()
        where = "source = $source AND replica = $before AND model IS NOT DISTINCT FROM $model"
        for table in ("block_minutes", "block_resets"):
            cursor.execute(f"UPDATE {table} SET replica = $now WHERE {where}", values)
        del values["now"]
        cursor.execute(f"DELETE FROM block_streams WHERE {where}", values)


def _replace_streams(cursor: duckdb.DuckDBPyConnection, streams: Sequence[BlockStream]) -> None:
    """Of a stream that left and came again within one drain the later row counts."""
    if not streams:
        return
    latest = {(row.source, row.replica, row.model): row for row in streams}
    with _registered(cursor, BlockStream, list(latest.values())) as batch:
        cursor.execute(
            f"""DELETE FROM block_streams AS old USING {batch} AS new
            WHERE old.source = new.source AND old.replica = new.replica
                AND old.model IS NOT DISTINCT FROM new.model"""
        )
        cursor.execute(f"INSERT INTO block_streams BY NAME SELECT * FROM {batch}")


def _replace_copies(cursor: duckdb.DuckDBPyConnection, copies: Sequence[BlockCopies]) -> None:
    """The last look in a minute stands for it. Every look begins with the fleet's row."""
    if not copies:
        return
    looks: dict[tuple[datetime, str | None, str], list[BlockCopies]] = {}
    for row in copies:
        key = (row.minute, row.model, row.tier)
        if row.replica_b is None:
            looks[key] = []
        looks[key].append(row)
    rows = [row for look in looks.values() for row in look]
    with _registered(cursor, BlockCopies, rows) as batch:
        cursor.execute(
            f"""DELETE FROM block_copies AS old USING {batch} AS new
            WHERE old.minute = new.minute AND old.tier = new.tier
                AND old.model IS NOT DISTINCT FROM new.model"""
        )
        cursor.execute(f"INSERT INTO block_copies BY NAME SELECT * FROM {batch}")


def _append(cursor: duckdb.DuckDBPyConnection, table: str, kind: type, rows: Sequence[Any]) -> None:
    if not rows:
        return
    with _registered(cursor, kind, rows) as batch:
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {batch}")


@contextmanager
def _registered(
    cursor: duckdb.DuckDBPyConnection, kind: type, rows: Sequence[Any]
) -> Iterator[str]:
    """Rows as a table of that name. An error leaves it to the end of the cursor: in a transaction
    that was given up nothing can be unregistered."""
    cursor.register("drained_batch", _arrow_table(kind, rows))
    yield "drained_batch"
    cursor.unregister("drained_batch")


def _arrow_table(kind: type, rows: Sequence[Any]) -> pa.Table:
    """The types are those of the columns: what the store could not hold shows here. Such rows are
    left out and told of, for they would keep all others from being written for ever."""
    try:
        return _columns(kind, rows)
    except (ValueError, OverflowError):
        fitting = [row for row in rows if _fits(kind, row)]
        return _columns(kind, fitting)


def _fits(kind: type, row: Any) -> bool:  # noqa: ANN401 - a row of any table
    for each in fields(kind):
        try:
            pa.array([_value(getattr(row, each.name))], _arrow(each.name, each.type))
        except (ValueError, OverflowError):
            logger.error(
                "a row of %s of %s is left out: the store cannot hold its %s",
                kind.__name__, ascii(getattr(row, "replica", None)), each.name,
            )  # fmt: skip
            return False
    return True


def _columns(kind: type, rows: Sequence[Any]) -> pa.Table:
    return pa.table(
        {
            each.name: pa.array(
                [_value(getattr(row, each.name)) for row in rows], _arrow(each.name, each.type)
            )
            for each in fields(kind)
        }
    )


def _arrow(name: str, annotation: object) -> pa.DataType:
    """The Arrow type of a field, by its annotation."""
    if name in _UNSIGNED:
        return pa.uint64()
    if name == "block_size":
        return pa.int32()
    text = annotation if isinstance(annotation, str) else _named(annotation)
    return _ARROW[text.removesuffix(" | None")]


def _named(annotation: object) -> str:
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    return str(annotation).replace("collections.abc.", "").replace("datetime.datetime", "datetime")


def _value(value: object) -> object:
    """As Arrow takes it: times in UTC without a zone, histograms as sorted pairs."""
    if isinstance(value, datetime):
        return as_utc(value).replace(tzinfo=None)
    return sorted(value.items()) if isinstance(value, dict) else value


def _in_utc(value: Any) -> Any:  # noqa: ANN401 - a column of any type
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
