"""How far each file of a source has been read, as the store remembers it.

Offsets move forward in the transaction of the rows they cover (see `append`), so what is here
is true after any crash. Here they are only looked up, and set where there are no rows to write.
"""

from dataclasses import dataclass

import duckdb

from exporter.store.store import Store


@dataclass(frozen=True)
class Offset:
    """`position` is the byte behind the last line taken, `lines` the number of that line."""

    position: int = 0
    lines: int = 0


def find(cursor: duckdb.DuckDBPyConnection, source: str, fingerprint: str) -> Offset | None:
    """Where a file stands; None for a file never read."""
    row = cursor.execute(
        "SELECT position, lines FROM offsets WHERE source = $source AND fingerprint = $fingerprint",
        {"source": source, "fingerprint": fingerprint},
    ).fetchone()
    return None if row is None else Offset(*row)


def any_of(cursor: duckdb.DuckDBPyConnection, source: str) -> bool:
    """Whether any file of the source was ever read."""
    query = "SELECT 1 FROM offsets WHERE source = $source LIMIT 1"
    return cursor.execute(query, {"source": source}).fetchone() is not None


def put(store: Store, source: str, fingerprint: str, offset: Offset) -> None:
    """Sets an offset to what it is said to be, backwards too: the file was cut, or is skipped."""
    with store.write() as cursor:
        cursor.execute(
            "INSERT OR REPLACE INTO offsets VALUES"
            " ($source, $fingerprint, $position, $lines, make_timestamp(epoch_us(now())))",
            {
                "source": source,
                "fingerprint": fingerprint,
                "position": offset.position,
                "lines": offset.lines,
            },
        )
