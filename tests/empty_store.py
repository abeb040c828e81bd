"""An empty store, made once a run: its hundred views take longer to create than to copy."""

import atexit
import shutil
import tempfile
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


def in_memory() -> duckdb.DuckDBPyConnection:
    """Tables, macros and views of a store without its owner, for rows put in as they are."""
    connection = duckdb.connect(config={"memory_limit": "512MB", "threads": 2})
    connection.execute(f"ATTACH '{file()}' AS empty (READ_ONLY)")
    connection.execute("COPY FROM DATABASE empty TO memory")
    connection.execute("DETACH empty")
    return connection
