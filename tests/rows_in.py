"""Rows put into tables as they are, many in one statement: one each costs ten times as much."""

from collections.abc import Iterable, Mapping
from itertools import groupby

import duckdb

# More would save little, and make statements of thousands of values.
_MOST_ROWS = 100


def put_rows(
    connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Mapping[str, object]]
) -> None:
    """In their order; what a row does not have is NULL or the table's default."""
    for columns, alike in groupby(rows, key=tuple):
        waiting = list(alike)
        for first in range(0, len(waiting), _MOST_ROWS):
            _put(connection, table, columns, waiting[first : first + _MOST_ROWS])


def _put(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: tuple[str, ...],
    rows: list[Mapping[str, object]],
) -> None:
    values: list[object] = []
    places = []
    for row in rows:
        marks = []
        for value in row.values():
            is_map = isinstance(value, Mapping)
            marks.append("MAP(?, ?)" if is_map else "?")
            values += [list(value.keys()), list(value.values())] if is_map else [value]
        places.append(f"({', '.join(marks)})")
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join(places)}", values
    )
