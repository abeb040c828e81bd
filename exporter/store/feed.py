"""Batches of lines as one stream that DuckDB pulls, as many as one transaction should take."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from exporter.prompts.lines import Reshape
from exporter.sources.formats.aside import Aside
from exporter.sources.formats.reshape import reshaped
from exporter.sources.lines import SCHEMA, BadLine, LineBatch

# Many of the store's row groups: what does not fill one takes the long way through DuckDB's log.
_ROWS = 32 * 30_720
# Lines set aside are held in memory, so a log of doubtful rows is taken in smaller bites.
_ASIDE_BYTES = 16 << 20


class Feed:
    """Lines on their way to the store; `alone` where they are one batch and nothing follows.

    After the statement that reads them, `end` and `lines` say how far the input was read and
    `bad` which lines could not be handed on, and `left_out` how many rows were none of ours.
    """

    def __init__(
        self,
        batches: Iterator[LineBatch],
        reshape: Reshape | None,
        aside: Aside,
        *,
        alone: bool = False,
    ) -> None:
        self.alone = alone
        self._batches, self._reshape, self._aside = batches, reshape, aside
        self._failed: BaseException | None = None
        self._places: list[pa.Table] = []
        self.bad: list[BadLine] = []
        self.left_out: Counter[str] = Counter()
        self.end = self.lines = 0

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(SCHEMA, self.record_batches())

    def places(self) -> pa.Table:
        """The position and line number of every line read."""
        return pa.concat_tables(self._places)

    def check(self) -> None:
        """Raises what went wrong while reading the input: DuckDB turns it into words of its own."""
        if self._failed:
            raise self._failed

    def record_batches(self) -> Iterator[pa.RecordBatch]:
        rows = 0
        try:
            while rows < _ROWS and self._aside.bytes < _ASIDE_BYTES:
                batch = next(self._batches, None)
                if batch is None:
                    return
                if self._reshape:
                    batch = reshaped(batch, self._reshape.rows, self._reshape.marks)
                self.end, self.lines = batch.end, batch.lines
                self.bad.extend(batch.bad)
                self.left_out.update(batch.left_out)
                self._places.append(batch.table.select(["position", "line_number"]))
                rows += batch.table.num_rows
                yield from batch.table.to_batches()
        except BaseException as error:
            self._failed = error
            raise
