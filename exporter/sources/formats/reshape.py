"""Input that is no flat JSON object a line -> lines of such objects.

The table of a format then reads those lines like any others, so that what a row means is
said in one place. Rows made of one line keep its position, counted on by one each: a line is
always longer than the number of rows in it.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import Buffer

from exporter.sources.formats.mapping import Row
from exporter.sources.lines import SCHEMA, LineBatch, for_threads

_BUFFER_BYTES = 1 << 20


def one_object(line: str) -> dict[str, object]:
    """The JSON object in a line. Raises ValueError where there is none."""
    try:
        value = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested beyond reason") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    value.pop(LEFT_OUT, None)  # what a log calls so is none of ours
    return value


# A row with this key is no row: it says how many (`rows`) were left out and why. They are
# counted in the tally of the batch, and only there, since they may outnumber what is kept.
LEFT_OUT = "left_out"


def reshaped(
    lines: LineBatch, reshape: Callable[[str], Iterable[Row]], marks: Sequence[str] = ()
) -> LineBatch:
    """The rows of each line as lines of their own; a line that cannot be read stays as it is, and
    so does, where there are `marks`, one that has none of them."""
    if marks and not _any_marked(lines, marks):
        return lines
    left_out: Counter[str] = Counter()
    positions: list[int] = []
    numbers: list[int] = []
    texts: list[str] = []
    for position, number, line in zip(
        *(lines.table[name].to_pylist() for name in ("position", "line_number", "line")),
        strict=True,
    ):
        marked = not marks or any(mark in line for mark in marks)
        for index, text in enumerate(_texts(line, reshape, left_out) if marked else [line]):
            positions.append(position + index)
            numbers.append(number)
            texts.append(text)
    table = pa.table([positions, numbers, texts], schema=SCHEMA)
    return LineBatch(for_threads(table), lines.end, lines.lines, lines.bad, left_out)


def _any_marked(lines: LineBatch, marks: Sequence[str]) -> bool:
    # One pattern for all: ten times as fast as looking for one after the other.
    pattern = "|".join(map(re.escape, marks))
    found = pc.any(pc.match_substring_regex(lines.table["line"], pattern)).as_py()
    return bool(found)


def _texts(line: str, reshape: Callable[[str], Iterable[Row]], left_out: Counter[str]) -> list[str]:
    try:
        rows = list(reshape(line))
        texts = [json.dumps(row) for row in rows if LEFT_OUT not in row]
    except (ValueError, RecursionError):  # no row, or nested beyond reason
        return [line]
    for row in rows:
        if LEFT_OUT in row:
            left_out[str(row[LEFT_OUT])] += cast(int, row["rows"])
    return texts


def as_lines(rows: Iterable[Row | str]) -> BinaryIO:
    """A stream of the rows, one JSON object a line. A text is a line as it is: one that cannot
    be read, to be rejected in its place, or an empty one, which only keeps its number."""
    return cast(BinaryIO, io.BufferedReader(_Lines(rows), _BUFFER_BYTES))


class _Lines(io.RawIOBase):
    def __init__(self, rows: Iterable[Row | str]) -> None:
        self._rows: Iterator[Row | str] = iter(rows)
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        while not self._pending:
            row = next(self._rows, None)
            if row is None:
                return 0
            text = row if isinstance(row, str) else json.dumps(row)
            self._pending = memoryview(text.encode(errors="surrogateescape") + b"\n")
        target = memoryview(buffer).cast("B")
        taken = min(len(target), len(self._pending))
        target[:taken] = self._pending[:taken]
        self._pending = self._pending[taken:]
        return taken
