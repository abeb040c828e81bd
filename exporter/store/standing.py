"""Readings that stay running, so that a small batch pays for mapping and not for planning.

DuckDB binds and plans a statement anew each time it is run, which takes ten times as long as
mapping five hundred rows with it. So a reading that comes again is started once, in a database
of its own in memory, over an input that never ends, and batches flow through it one by one.

Every line becomes one row, in order, so what came out is told by counting. A statement that streams
asks for more input before it gives the last output away: then blank lines follow.
"""

import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa

from exporter.sources.lines import SCHEMA

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,  # which keeps rows in order
    "temp_directory": "",  # lines hold prompts and must never reach the disk
    "autoinstall_known_extensions": False,
}
# What is mapped leaves at once.
_NO_BUFFER = "SET streaming_buffer_size = '1B'"
_BLANK = pa.record_batch([[0], [0], [""]], schema=SCHEMA)
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
        self._handed_on = self._came_out = 0  # lines and rows, blank ones included
        self._shown: pa.Table | None = None
        cursor.execute(_NO_BUFFER)
        cursor.register("lines", pa.RecordBatchReader.from_batches(SCHEMA, self._lines()))
        self._rows = cursor.sql(statement, params=dict(parameters)).to_arrow_reader(1)

    def read(self, lines: pa.Table) -> pa.Table:
        """Maps the lines of a batch; returns a row for each."""
        blank = self._handed_on - self._came_out  # they come first
        end = self._handed_on + lines.num_rows
        self._waiting.extend(lines.to_batches())
        parts = []
        while self._came_out < end:
            parts.append(self._rows.read_next_batch())
            self._came_out += len(parts[-1])
        return pa.Table.from_batches(parts, self._rows.schema).slice(blank, lines.num_rows)

    def show(self, connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
        """Makes these rows the relation `name`."""
        first, self._shown = self._shown is None, rows
        if first:
            connection.register(self.name, self)

    def close(self) -> None:
        self._rows.close()
        self._cursor.close()

    def __arrow_c_schema__(self) -> object:
        return self._shown_rows().schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._shown_rows().__arrow_c_stream__(requested_schema)

    def _shown_rows(self) -> pa.Table:
        assert self._shown is not None, "registered when rows are first shown"
        return self._shown

    def _lines(self) -> Iterator[pa.RecordBatch]:
        """What waits, else a blank line."""
        while True:
            lines = self._waiting.popleft() if self._waiting else _BLANK
            self._handed_on += len(lines)
            yield lines
