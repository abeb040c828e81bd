"""Readings that stay running, so that a small batch pays for mapping and not for planning.

DuckDB binds and plans a statement anew each time it is run, which takes ten times as long as
mapping five hundred rows with it. So a reading that comes again is started once, in a database
of its own in memory, over an input that never ends, and batches flow through it one by one.

Every line becomes one row, so that counting tells when all came out. They leave through a function:
a statement that streams gives its output away in its own time, and what it gives are marks. A mark
is no line and has a negative position; marks follow the lines for as long as the statement asks.
"""

import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType
from duckdb.sqltypes import DuckDBPyType

from exporter.sources.lines import SCHEMA

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,  # which keeps rows in order
    "temp_directory": "",  # lines hold prompts and must never reach the disk
    "autoinstall_known_extensions": False,
}
# What is mapped leaves at once.
_NO_BUFFER = "SET streaming_buffer_size = '1B'"
# Readings kept at a time: each source that sends small batches has one.
_KEPT = 16


class Readings:
    """The standing readings of one store, used under its writer's lock; `writer` sees the rows."""

    def __init__(self, writer: duckdb.DuckDBPyConnection) -> None:
        self._writer = writer
        self._database: duckdb.DuckDBPyConnection | None = None
        self._numbers = itertools.count(1)
        self._known: OrderedDict[object, StandingReading | None] = OrderedDict()

    def again(self, statement: str, parameters: Mapping[str, object]) -> "StandingReading | None":
        """The reading `statement` where it was asked for before. The first time it is only
        noted: one that never comes again is cheaper run once."""
        key = (statement, *sorted(parameters.items()))
        reading = self._known.get(key)
        if reading is None and key in self._known:
            reading = self._begin(statement, parameters)
        self._known[key] = reading
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._end(self._known.popitem(last=False)[1])
        return reading

    def forget(self) -> None:
        """Ends all: after a failure none is known to have come to the end of its batch."""
        while self._known:
            self._end(self._known.popitem()[1])

    def close(self) -> None:
        self.forget()
        if self._database:
            self._database.close()

    def _begin(self, statement: str, parameters: Mapping[str, object]) -> "StandingReading":
        if self._database is None:
            self._database = duckdb.connect(":memory:", config=_CONFIG)
        name = f"standing_{next(self._numbers)}"
        return StandingReading(self._database.cursor(), name, statement, parameters)

    def _end(self, reading: "StandingReading | None") -> None:
        if reading:
            self._writer.unregister(reading.name)
            reading.close()


class StandingReading:
    """One running statement over `lines`, and the relation `name` of rows that were shown last."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        name: str,
        statement: str,
        parameters: Mapping[str, object],
    ) -> None:
        self.name = name
        self._cursor = cursor
        self._waiting: deque[pa.RecordBatch] = deque()
        self._read: list[pa.Table] = []
        self._shown: pa.Table | None = None
        cursor.execute(_NO_BUFFER)
        cursor.register("lines", pa.RecordBatchReader.from_batches(SCHEMA, self._lines()))
        self._names = cursor.sql(statement, params=dict(parameters)).columns
        running = self._running(statement)
        self._marks = cursor.sql(running, params=dict(parameters)).to_arrow_reader(1)

    def read(self, lines: pa.Table) -> pa.Table:
        """Maps the lines of a batch; returns a row for each, in order."""
        self._waiting.extend(lines.to_batches())
        while sum(map(len, self._read)) < lines.num_rows:
            self._marks.read_next_batch()
        parts, self._read = self._read, []
        return pa.concat_tables(parts)

    def show(self, connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
        """Makes these rows the relation `name`."""
        first, self._shown = self._shown is None, rows
        if first:
            connection.register(self.name, self)

    def close(self) -> None:
        self._marks.close()
        self._cursor.close()

    def __arrow_c_schema__(self) -> object:
        return self._shown_rows().schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._shown_rows().__arrow_c_stream__(requested_schema)

    def _shown_rows(self) -> pa.Table:
        assert self._shown is not None, "registered when rows are first shown"
        return self._shown

    def _lines(self) -> Iterator[pa.RecordBatch]:
        """What waits, else a mark."""
        mark = pa.record_batch([[-1], [0], ["{}"]], schema=SCHEMA)
        while True:
            yield self._waiting.popleft() if self._waiting else mark

    def _running(self, statement: str) -> str:
        """A filter would hold small chunks back, but none that has a list, as `flags` is one."""
        leave = f"leave_{self.name}"
        self._cursor.create_function(
            leave,
            self._keep,
            return_type=DuckDBPyType("BOOLEAN"),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
            side_effects=True,
        )
        return f"""SELECT position FROM ({statement})
            WHERE CASE WHEN position < 0 THEN true ELSE {leave}({", ".join(self._names)}) END"""

    def _keep(self, *columns: pa.ChunkedArray) -> pa.Array:
        self._read.append(pa.table(list(columns), self._names))
        return pa.array(np.zeros(len(columns[0]), dtype=np.bool_))
