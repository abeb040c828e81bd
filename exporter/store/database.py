"""A store's file as DuckDB opens it: with row groups a quarter of the usual size.

The row group that rows are appended to is written anew at every checkpoint, all columns of all its
rows, while the writer waits: small ones keep that short. Their size can be chosen only for a file
that is attached, and a cursor begins in the database that is not.
"""

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


_IS_ATTACHED = f"SELECT 1 FROM duckdb_databases() WHERE database_name = '{_CATALOG}'"
_ATTACH = f"""ATTACH IF NOT EXISTS '{{path}}' AS {_CATALOG} (ROW_GROUP_SIZE {_ROW_GROUP_ROWS})"""
