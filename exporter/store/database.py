"""A store's file as DuckDB opens it: with row groups a quarter of the usual size.

The row group that rows are appended to is written anew at every checkpoint, all columns of all its
rows, while the writer waits: small ones keep that short. Their size can be chosen only for a file
that is attached, and a cursor begins in the database that is not.
"""

import re
from pathlib import Path

import duckdb

# What DuckDB would call it if it were not attached.
_CATALOG = "prefixscope"
# A multiple of 2,048. Half of it takes as long to load, and a little more room.
_ROW_GROUP_ROWS = 30_720

Config = dict[str, str | bool | int | float | list[str]]


def attached(path: Path, config: Config) -> duckdb.DuckDBPyConnection:
    """Opens or creates the file. Raises duckdb.IOException where it cannot be used."""
    # By its path, so that a store that was left without being closed is not opened beside itself.
    connection = duckdb.connect(f":memory:{path.resolve()}", config=config)
    try:
        connection.execute(_ATTACH.format(path=str(path).replace("'", "''")))
        connection.execute(f"USE {_CATALOG}")
    except BaseException:
        connection.close()
        raise
    return connection


def cursor_of(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A further cursor on the tables of an attached file."""
    own = connection.cursor()
    own.execute(f"USE {_CATALOG}")
    return own


def cursor_beside(cursor: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A further cursor on the same tables, whether they are of an attached file or in memory."""
    own = cursor.cursor()
    if own.execute(_IS_ATTACHED).fetchall():
        own.execute(f"USE {_CATALOG}")
    return own


def attach_anew(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Opens the file again under cursors that exist, once DuckDB gave it up: with all that was
    committed. Its log of changes may grow before the checkpoint that failed is tried once more;
    meanwhile there may be room for the one, though not for the other."""
    log = path.with_name(path.name + ".wal")
    later = (log.stat().st_size if log.exists() else 0) + _LOG_BYTES
    fresh = connection.cursor()
    fresh.execute(f"DETACH DATABASE IF EXISTS {_CATALOG}")
    fresh.execute(f"SET GLOBAL checkpoint_threshold = '{later}B'")
    fresh.execute(_ATTACH.format(path=str(path).replace("'", "''")))
    fresh.close()


def is_given_up(error: BaseException) -> bool:
    """Whether DuckDB answers nothing more from this file until it is attached anew: after a
    checkpoint that found no room."""
    return isinstance(error, duckdb.Error) and "has been invalidated" in str(error)


def is_kept(error: duckdb.Error) -> bool:
    """Whether a COMMIT that failed stored its rows all the same: only what follows it failed."""
    return "COMMIT succeeded" in str(error)


def is_damaged(error: duckdb.Error) -> bool:
    """Whether the file or its log of changes is not what was written."""
    return any(words in str(error) for words in ("Corrupt", "replaying WAL", "checksum"))


def is_of_disk(error: BaseException) -> bool:
    """Whether it is the disk, which a person can mend: full, read-only, taken away or broken.
    Such a message quotes a path and never a row. A file that was given up is in use for as long
    as a question asked before goes on."""
    if isinstance(error, duckdb.TransactionException):
        return _FILE_FAILED.search(str(error)) is not None
    return isinstance(error, duckdb.IOException | duckdb.ResourceInUseException)


_FILE_FAILED = re.compile(r"Could not \w+ (to |from )?file")
# DuckDB's own measure.
_LOG_BYTES = 16 << 20
_IS_ATTACHED = f"SELECT 1 FROM duckdb_databases() WHERE database_name = '{_CATALOG}'"
_ATTACH = f"""ATTACH IF NOT EXISTS '{{path}}' AS {_CATALOG} (ROW_GROUP_SIZE {_ROW_GROUP_ROWS})"""
