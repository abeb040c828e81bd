"""Lines the quick reading doubts, held until the careful reading takes them.

Only DuckDB meets them while it reads, so it hands them over through a function of SQL. They
hold prompts and must never reach the disk, so they are kept here and not in a table.
"""

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import PythonUDFType
from duckdb.sqltypes import DuckDBPyType

from exporter.sources.lines import SCHEMA

SET_ASIDE = "set_aside(position, line_number, line)"


class Aside:
    """The lines set aside so far; `bytes` is how much memory they take."""

    def __init__(self) -> None:
        self.bytes = 0
        self._parts: list[pa.RecordBatch] = []

    def listen(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Lets statements of this connection call `set_aside`, which is false for every line."""
        bigint, varchar, boolean = (DuckDBPyType(name) for name in ("BIGINT", "VARCHAR", "BOOLEAN"))
        connection.create_function(
            "set_aside",
            self._keep,
            [bigint, bigint, varchar],
            boolean,
            type=PythonUDFType.ARROW,
            side_effects=True,
        )

    def _keep(
        self, positions: pa.ChunkedArray, numbers: pa.ChunkedArray, lines: pa.ChunkedArray
    ) -> pa.Array:
        """Called by one thread at a time: Python's lock is held."""
        part = pa.table([positions, numbers, lines], schema=SCHEMA)
        self._parts.extend(part.to_batches())
        self.bytes += part.nbytes
        return pa.array(np.zeros(len(positions), dtype=np.bool_))

    def take(self) -> pa.Table:
        """All lines set aside, which are forgotten here."""
        parts, self._parts, self.bytes = self._parts, [], 0
        return pa.Table.from_batches(parts, SCHEMA)
