"""Readings that stay running, so that a small batch pays for mapping and not for planning.

DuckDB binds and plans a statement anew each time it is run, which takes ten times as long as
mapping five hundred rows with it. So a reading that comes again is started once, in a database
of its own in memory, over an input that never ends, and batches flow through it one by one.

A statement that streams asks for more input before it gives the last output away. So marks follow
the lines of a batch for as long as it asks: a mark is no line, has a negative position of its
batch's own, and goes the same way as rows. When it comes out, all rows before it did.
"""

import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType
from duckdb.sqltypes import DuckDBPyType

from exporter.sources.formats.aside import Aside
from exporter.sources.lines import SCHEMA

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,  # which keeps rows in order
    "temp_directory": "",  # lines hold prompts and must never reach the disk
    "autoinstall_known_extensions": False,
}
# What is mapped leaves at once.
_NO_BUFFER = "SET streaming_buffer_size = '1B'"
# Where columns are not lists, a filter holds chunks of less than 64 rows back until they make a
# vector of 2,048: so many marks at a time are the fewest steps that bring the rows before them
# out, in order. Elsewhere one mark does, after a step or two, which saves a tenth of a batch.
_MARKS = 63
_FEW_STEPS = 8
_FIRST_MARK = -1
# Readings kept at a time: each source that sends small batches has one.
_KEPT = 16


class Readings:
    """The standing readings of one store, used under its writer's lock; `writer` sees the rows."""

    def __init__(self, writer: duckdb.DuckDBPyConnection, aside: Aside) -> None:
        self._writer, self._aside = writer, aside
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
            self._aside.listen(self._database)
        name = f"standing_{next(self._numbers)}"
        return StandingReading(self._database.cursor(), name, statement, parameters)

    def _end(self, reading: "StandingReading | None") -> None:
        if reading:
            self._writer.unregister(reading.name)
            reading.close()


class StandingReading:
    """One running statement over `lines`, and the relation of the rows it read last."""

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
        self._mark = _FIRST_MARK
        self._read: list[pa.Table] = []
        self._shown = False
        self._at_once = 1
        cursor.execute(_NO_BUFFER)
        self._give_lines()
        self._names = cursor.sql(statement, params=dict(parameters)).columns
        running = self._running(statement)
        self._marks = cursor.sql(running, params=dict(parameters)).to_arrow_reader(1)
        if self._at_once > 1:
            self._marks.close()
            self._give_lines()
            self._marks = cursor.sql(running, params=dict(parameters)).to_arrow_reader(_MARKS)

    def read(self, lines: Iterable[pa.RecordBatch]) -> int:
        """Maps the lines of a batch; returns the number of rows."""
        self._mark -= 1
        self._waiting.extend(lines)
        while self._marks.read_next_batch()["position"][-1].as_py() != self._mark:
            pass
        parts, self._read = self._read, []
        if parts:
            self._table = pa.concat_tables(parts)
        return sum(len(part) for part in parts)

    def show(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes the rows read last the relation `name`, now and after every later `read`."""
        if not self._shown:
            connection.register(self.name, self)
            self._shown = True

    def close(self) -> None:
        self._marks.close()
        self._cursor.close()

    def __arrow_c_schema__(self) -> object:
        return self._table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def _give_lines(self) -> None:
        lines = pa.RecordBatchReader.from_batches(SCHEMA, self._lines())
        self._cursor.register("lines", lines)

    def _lines(self) -> Iterator[pa.RecordBatch]:
        """What waits, else marks: one at once until many did not bring the first one out."""
        for step in itertools.count():
            if self._waiting:
                yield self._waiting.popleft()
                continue
            if step == _FEW_STEPS and self._mark == _FIRST_MARK:
                self._at_once = _MARKS
            count = self._at_once
            yield pa.record_batch([[self._mark] * count, [0] * count, [""] * count], schema=SCHEMA)

    def _running(self, statement: str) -> str:
        """Rows leave through a function; what comes out of the statement are marks."""
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
