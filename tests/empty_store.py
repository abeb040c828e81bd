"""An empty store, made once a run: its hundred views take longer to create than to copy."""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import duckdb

from exporter.store.store import FILE_NAME, Store


@cache
def file() -> Path:
    """The file of a store that was opened and closed again; to be copied, never written."""
    place = Path(tempfile.mkdtemp(prefix="empty-store-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    Store.open(place).close()
    return place / FILE_NAME


def in_memory(threads: int = 2) -> duckdb.DuckDBPyConnection:
    """Tables, macros and views of a store without its owner, for rows put in as they are."""
    connection = duckdb.connect(config={"memory_limit": "512MB", "threads": threads})
    connection.execute(f"ATTACH '{file()}' AS empty (READ_ONLY)")
    connection.execute("COPY FROM DATABASE empty TO memory")
    connection.execute("DETACH empty")
    return connection


# Stores that were lent and given back.
_SPARE: list[duckdb.DuckDBPyConnection] = []
_MADE_OF = """SELECT database_name, schema_name, table_name FROM duckdb_tables()
    UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() ORDER BY ALL"""
# Deleted rows keep their memory, so a store that had many is not lent again.
_MOST_ROWS = 10_000


@contextmanager
def lent() -> Iterator[duckdb.DuckDBPyConnection]:
    """The same for as long as it is held: emptied, it is the next one's, unless tables or views
    were made. Whoever replaces a macro or sets what holds for the whole database takes
    `in_memory`."""
    whole = _SPARE.pop() if _SPARE else in_memory()
    made_of, meta = whole.execute(_MADE_OF).fetchall(), whole.execute("FROM meta").fetchall()
    own = whole.cursor()
    try:
        yield own
    finally:
        own.close()
        if whole.execute(_MADE_OF).fetchall() == made_of and _emptied(whole):
            whole.executemany("INSERT INTO meta VALUES (?, ?)", meta)
            _SPARE.append(whole)


def _emptied(connection: duckdb.DuckDBPyConnection) -> bool:
    """False where there were too many rows."""
    filled = connection.execute(
        "SELECT table_name, estimated_size FROM duckdb_tables() WHERE estimated_size > 0"
    ).fetchall()
    if sum(rows for _, rows in filled) > _MOST_ROWS:
        return False
    for table, _ in filled:
        connection.execute(f"DELETE FROM {table}")
    return True
