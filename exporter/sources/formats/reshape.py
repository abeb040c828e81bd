"""Input that is no flat JSON object a line -> lines of such objects.

The table of a format then reads those lines like any others, so that what a row means is
said in one place. Rows made of one line keep its position, counted on by one each: a line is
always longer than the number of rows in it.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

import pyarrow as pa
from typing_extensions import Buffer

from exporter.sources.formats.mapping import Row
from exporter.sources.lines import LineBatch, for_threads

_BUFFER_BYTES = 1 << 20


def one_object(line: str) -> dict[str, object]:
    """The JSON object in a line. Raises ValueError where there is none."""
    try:
        value = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested beyond reason") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def reshaped(lines: LineBatch, reshape: Callable[[str], Iterable[Row]]) -> LineBatch:
    """The rows of each line as lines of their own; a line that cannot be read stays as it is."""
    positions: list[int] = []
    numbers: list[int] = []
    texts: list[str] = []
    for position, number, line in zip(
        *(lines.table[name].to_pylist() for name in ("position", "line_number", "line")),
        strict=True,
    ):
        for index, text in enumerate(_texts(line, reshape)):
            positions.append(position + index)
            numbers.append(number)
            texts.append(text)
    columns = [
        pa.array(positions, pa.int64()),
        pa.array(numbers, pa.int64()),
        pa.array(texts, pa.string()),
    ]
    table = pa.table(columns, names=["position", "line_number", "line"])
    return LineBatch(for_threads(table), lines.end, lines.lines, lines.bad)


def _texts(line: str, reshape: Callable[[str], Iterable[Row]]) -> list[str]:
    try:
        return [json.dumps(row) for row in reshape(line)]
    except ValueError:
        return [line]


def as_lines(rows: Iterable[Row]) -> BinaryIO:
    """A stream of the rows, one JSON object a line."""
    return cast(BinaryIO, io.BufferedReader(_Lines(rows), _BUFFER_BYTES))


class _Lines(io.RawIOBase):
    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: Iterator[Row] = iter(rows)
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        while not self._pending:
            row = next(self._rows, None)
            if row is None:
                return 0
            self._pending = memoryview(json.dumps(row).encode() + b"\n")
        target = memoryview(buffer).cast("B")
        taken = min(len(target), len(self._pending))
        target[:taken] = self._pending[:taken]
        self._pending = self._pending[taken:]
        return taken
