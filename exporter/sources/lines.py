"""Bytes -> batches of lines. Files, HTTP bodies and followed logs all come through here.

A batch holds whole lines only. Each line is decoded by itself, so one bad byte costs one line.
A line longer than the limit is skipped and reported, and never held in memory.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BATCH_BYTES = 16 << 20
# Where batches are only steps of a large load: so small that they stay in a processor's cache.
STEP_BYTES = 2 << 20
LINE_LIMIT_BYTES = 1 << 20
# DuckDB hands one record batch to one thread, so a batch is given in several.
_ROWS_PER_RECORD_BATCH = 8_192
# Steps of a reading copy whole lines, a record batch at a time: long lines get small batches.
_BYTES_PER_RECORD_BATCH = 1 << 19
_NEWLINE = ord("\n")
# Only lines this short can be blank; they are skipped without a word.
_SHORT_BYTES = 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Offsets = npt.NDArray[np.int64]

# How lines are handed on: byte offset, 1-based number, text.
SCHEMA = pa.schema([("position", pa.int64()), ("line_number", pa.int64()), ("line", pa.string())])


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be handed on: where it starts, its number, and why."""

    position: int
    line_number: int
    reason: str
    detail: str


@dataclass
class LineBatch:
    """Whole lines. `table` has position (byte offset), line_number (1-based) and line;
    `left_out` counts rows that were in them and are none of ours, by reason.

    `end` is the offset just behind the last line, `lines` the number of the last line.
    """

    table: pa.Table
    end: int
    lines: int
    bad: list[BadLine] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


class LineReader:
    """Cuts a stream into batches of whole lines.

    `position` and `lines` say where the stream begins (a followed file resumes in the middle).
    With `take_tail` a last line without a newline counts as a line; a followed file leaves it
    until it is finished.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        position: int = 0,
        lines: int = 0,
        take_tail: bool = True,
        batch_bytes: int = BATCH_BYTES,
        line_limit_bytes: int = LINE_LIMIT_BYTES,
    ) -> None:
        self._stream = stream
        self._position = position
        self._lines = lines
        self._take_tail = take_tail
        self._batch_bytes = batch_bytes
        self._line_limit_bytes = line_limit_bytes
        self._bad: list[BadLine] = []

    def __iter__(self) -> Iterator[LineBatch]:
        pending = b""
        while block := self._stream.read(self._batch_bytes):
            data = pending + block
            end = data.rfind(b"\n") + 1
            if end:
                yield self._batch(data[:end])
            pending = data[end:]
            while len(pending) > self._line_limit_bytes:
                pending = self._skip_line(len(pending))
                end = pending.rfind(b"\n") + 1
                if end:
                    yield self._batch(pending[:end])
                    pending = pending[end:]
        end = len(pending) if self._take_tail else pending.rfind(b"\n") + 1
        if end or self._bad:
            yield self._batch(pending[:end])

    def _skip_line(self, length: int) -> bytes:
        """Reads past an over-long line and reports it; returns what was read behind it.

        Without an end it is reported only where the tail counts as a line.
        """
        while block := self._stream.read(self._batch_bytes):
            newline = block.find(b"\n")
            if newline >= 0:
                self._report_long(length + newline + 1)
                return block[newline + 1 :]
            length += len(block)
        if self._take_tail:
            self._report_long(length)
        return b""

    def _report_long(self, length: int) -> None:
        self._lines += 1
        self._bad.append(self._too_long(self._position, self._lines, length))
        self._position += length

    def _too_long(self, position: int, line_number: int, length: int) -> BadLine:
        detail = (
            f"{length} bytes, the limit is {self._line_limit_bytes}; "
            "leave prompt and answer text out of the log"
        )
        return BadLine(position, line_number, "too_long", detail)

    def _batch(self, data: bytes) -> LineBatch:
        borders = _borders(data, starts_stream=self._position == 0)
        positions = borders[:-1] + self._position
        numbers = np.arange(1, len(borders), dtype=np.int64) + self._lines
        lines = _lines_at(data, borders)
        keep = np.ones(len(positions), dtype=np.bool_)
        lengths = np.diff(borders)
        for index in np.flatnonzero(lengths <= _SHORT_BYTES):
            keep[index] = data[borders[index] : borders[index + 1]].strip() != b""
        for index in np.flatnonzero(lengths > self._line_limit_bytes):
            keep[index] = False
            at, number = int(positions[index]), int(numbers[index])
            self._bad.append(self._too_long(at, number, int(lengths[index])))
        if lines is None:
            lines = self._decode_each(data, borders, positions, numbers, keep)
        table = pa.table([positions, numbers, lines], schema=SCHEMA)
        self._position += len(data)
        self._lines += len(positions)
        bad, self._bad = self._bad, []
        if not keep.all():
            table = table.filter(pa.array(keep))
        return LineBatch(for_threads(table), self._position, self._lines, bad)

    def _decode_each(
        self,
        data: bytes,
        borders: Offsets,
        positions: Offsets,
        numbers: Offsets,
        keep: npt.NDArray[np.bool_],
    ) -> pa.Array:
        """Decodes line by line and reports those that are not UTF-8."""
        lines: list[str | None] = []
        for index in range(len(positions)):
            try:
                lines.append(data[borders[index] : borders[index + 1]].decode())
            except UnicodeDecodeError as error:
                lines.append(None)
                if keep[index]:
                    keep[index] = False
                    at = int(positions[index])
                    self._bad.append(
                        BadLine(at, int(numbers[index]), "invalid_utf8", f"byte {error.start}")
                    )
        return pa.array(lines, pa.string())


def _borders(data: bytes, *, starts_stream: bool) -> Offsets:
    """Where lines start, and the end of the data behind them.

    A byte order mark is left out where it stands: at the very start of a stream.
    """
    newlines = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE) + 1
    start = len(_BYTE_ORDER_MARK) if starts_stream and data.startswith(_BYTE_ORDER_MARK) else 0
    tail = [] if (len(newlines) and newlines[-1] == len(data)) or not data else [len(data)]
    return np.concatenate([[start], newlines, tail]).astype(np.int64)


def _lines_at(data: bytes, borders: Offsets) -> pa.Array | None:
    """The lines as an Arrow array over the same bytes; None if some line is not UTF-8."""
    offsets = pa.py_buffer(borders.astype(np.int32))
    lines = pa.Array.from_buffers(
        pa.string(), len(borders) - 1, [None, offsets, pa.py_buffer(data)]
    )
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return lines


def for_threads(table: pa.Table) -> pa.Table:
    """The table in record batches that are small in rows and in bytes."""
    line_bytes = max(1, table.nbytes // max(1, table.num_rows))
    rows = min(_ROWS_PER_RECORD_BATCH, max(1, _BYTES_PER_RECORD_BATCH // line_bytes))
    parts = table.combine_chunks().to_batches(max_chunksize=rows)
    return pa.Table.from_batches(parts, table.schema)
