"""Which objects of a prefix, or rows of a table, have been read, as the store remembers it.

Objects are noted in the transaction of their rows. Everything written before a prefix's `before`
is done with and forgotten one by one; what is younger is known by name and version. Both are
kept as keyed hashes: names of objects may tell who uses what.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from exporter.store.store import Store
from queries.times import utc_without_zone

_SCHEMA = pa.schema(
    [("name", pa.int64()), ("version", pa.int64()), ("modified", pa.timestamp("us"))]
)


@dataclass(frozen=True)
class Read:
    """An object that was read: keyed hashes of its full name and its version."""

    name: int
    version: int
    modified: datetime


def keyed(text: str, key: str) -> int:
    """A text as 64 bits that say nothing without the key."""
    digest = hashlib.blake2b(text.encode(), key=key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class Bookmark:
    """The bookmark of one prefix of a source. `prefix` is a keyed hash."""

    def __init__(self, store: Store, source: str, prefix: int) -> None:
        self._store = store
        self._which = {"source": source, "prefix": prefix}

    def before(self) -> datetime | None:
        """Objects written before this moment are done with; None before the first whole pass."""
        query = "SELECT before FROM object_marks WHERE source = $source AND prefix = $prefix"
        rows: list[tuple[datetime]] = self._ask(query)
        return rows[0][0].replace(tzinfo=UTC) if rows else None

    def begun(self) -> bool:
        """Whether anything of the prefix was ever read."""
        query = "SELECT 1 FROM objects_read WHERE source = $source AND prefix = $prefix LIMIT 1"
        return self.before() is not None or bool(self._ask(query))

    def versions(self, names: Sequence[int]) -> dict[int, int]:
        """The version last read of each object that is remembered."""
        rows: list[tuple[int, int]] = self._ask(
            """SELECT name, version FROM objects_read WHERE source = $source AND prefix = $prefix
                AND name IN (SELECT unnest($names::BIGINT[]))""",
            {"names": list(names)},
        )
        return dict(rows)

    def keep(self, cursor: duckdb.DuckDBPyConnection, read: Iterable[Read]) -> None:
        """Notes objects as read, inside a transaction."""
        rows = [(entry.name, entry.version, utc_without_zone(entry.modified)) for entry in read]
        if not rows:
            return
        columns = [list(column) for column in zip(*rows, strict=True)]
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
        )
        cursor.register("just_read", table)
        cursor.execute(
            """DELETE FROM objects_read WHERE source = $source AND prefix = $prefix
                AND name IN (SELECT name FROM just_read)""",
            self._which,
        )
        cursor.execute(
            "INSERT INTO objects_read SELECT $source, $prefix, * FROM just_read", self._which
        )
        cursor.unregister("just_read")

    def note(self, read: Iterable[Read]) -> None:
        """The same for objects that brought no rows."""
        with self._store.write() as cursor:
            self.keep(cursor, read)

    def finish(self, before: datetime) -> None:
        """Everything written before this moment was read. Never goes back."""
        with self._store.write() as cursor:
            self.move(cursor, before)

    def move(self, cursor: duckdb.DuckDBPyConnection, before: datetime) -> None:
        """The same inside a transaction."""
        given = {**self._which, "before": utc_without_zone(before)}
        cursor.execute(
            """INSERT INTO object_marks VALUES ($source, $prefix, $before::TIMESTAMP)
                ON CONFLICT DO UPDATE SET before = greatest(before, excluded.before)""",
            given,
        )
        cursor.execute(
            """DELETE FROM objects_read WHERE source = $source AND prefix = $prefix
                AND modified < $before::TIMESTAMP""",
            given,
        )

    def _ask(self, query: str, more: dict[str, object] | None = None) -> list[Any]:
        cursor = self._store.cursor()
        try:
            return cursor.execute(query, {**self._which, **(more or {})}).fetchall()
        finally:
            cursor.close()
