"""Objects -> batches of lines, many small objects in one batch.

A row is known by its place: the place of its object (from a keyed hash of the object's name)
and the offset of its line there. So it is the same row whichever prefix, order or batch it was
read in, and after its object was replaced by a longer one.
"""

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from exporter.errors import PrefixscopeError
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.names import with_names
from exporter.sources.formats.reshape import as_lines
from exporter.sources.intake import choose_format
from exporter.sources.laid_out import LaidOut, is_laid_out
from exporter.sources.lines import LINE_LIMIT_BYTES, BadLine, LineBatch, LineReader
from exporter.sources.names import SourceNames
from exporter.sources.packed import DAMAGED, open_input, peek

# A place is 29 bits of an object and 33 bits of an offset in it.
_OFFSET_BITS = 33
_PLACE_BITS = 29
_SAMPLE_BYTES = 1 << 18
_READ_BYTES = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DIGITS = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
_FIRST_KEY = re.compile(rb"[\s\[]*\{\s*(\"[^\"]{0,64}\")")


def place_of(name: str, key: str) -> int:
    """Where the offsets of an object begin."""
    digest = hashlib.blake2b(name.encode(), key=key.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:4]) >> (32 - _PLACE_BITS) << _OFFSET_BITS


@dataclass(frozen=True)
class Unpacked:
    """The lines of a small object, all of them, and what is wrong with the rest if anything is."""

    log_format: LogFormat
    lines: bytes
    broken: str | None = None


class Formats:
    """The formats of the objects of one prefix.

    Objects of one kind of folder whose rows begin alike have one format: telling it for each
    of many small objects would cost more than reading them.
    """

    def __init__(self, name: str, names: SourceNames | None) -> None:
        self._name, self._names = name, names
        self._known: dict[tuple[str, bytes], LogFormat] = {}

    def of(self, key: str, head: bytes) -> LogFormat:
        """Raises PrefixscopeError where the rows are of no format we know."""
        begins = _FIRST_KEY.match(head)
        if begins is None:  # no row yet to tell by, or no JSON
            return self._choose(key, head)
        kind = (_DIGITS.sub("#", key.rpartition("/")[0]), begins[1])
        if kind not in self._known:
            self._known[kind] = self._choose(key, head)
        return self._known[kind]

    def _choose(self, key: str, head: bytes) -> LogFormat:
        return with_names(choose_format(self._name, head, key)[0], self._names)

    def opened(self, key: str, plain: BinaryIO) -> tuple[LogFormat, BinaryIO, LaidOut | None]:
        """The lines of an unpacked object, and what lays them out where that is needed."""
        head, stream = _look_ahead(plain)
        laid_out = None
        if is_laid_out(head, self._name):
            laid_out = LaidOut(stream)
            head, stream = _look_ahead(laid_out.stream)
        log_format = self.of(key, head)
        if log_format.documents:
            stream = as_lines(log_format.documents(stream))
        return log_format, stream, laid_out


def _look_ahead(stream: BinaryIO) -> tuple[bytes, BinaryIO]:
    head, stream = peek(stream, _SAMPLE_BYTES)
    if b"\n" not in head and len(head) == _SAMPLE_BYTES:
        head, stream = peek(stream, LINE_LIMIT_BYTES)
    return head, stream


def unpacked(formats: Formats, key: str, data: bytes, limit_bytes: int) -> Unpacked | None:
    """A small object's lines; None where they are more than the limit.

    Raises PrefixscopeError where it is of no format we know.
    """
    plain, broken = _read(open_input(io.BytesIO(data)), limit_bytes)
    if len(plain) > limit_bytes:
        return None
    log_format, stream, laid_out = formats.opened(key, io.BytesIO(plain))
    lines, unreadable = _read(stream, limit_bytes)
    if len(lines) > limit_bytes:
        return None
    if laid_out is not None:
        unreadable = unreadable or laid_out.broken
    return Unpacked(log_format, lines.removeprefix(_BYTE_ORDER_MARK), broken or unreadable)


def _read(stream: BinaryIO, limit_bytes: int) -> tuple[bytes, str | None]:
    """Everything up to a little more than the limit, or the whole lines before the damage."""
    parts, size = [], 0
    # One step of unpacking at a time: reading more at once loses what came before the damage.
    step = cast(io.BufferedReader, stream).read1
    try:
        while size <= limit_bytes and (part := step(_READ_BYTES)):
            parts.append(part)
            size += len(part)
    except (*DAMAGED, PrefixscopeError) as error:
        whole = b"".join(parts)
        return whole[: whole.rfind(b"\n") + 1], _damage(error)
    return b"".join(parts), None


def _damage(error: Exception) -> str:
    if isinstance(error, PrefixscopeError):
        return str(error)
    return f"its compressed data is damaged or ends early ({error})"


def combined(objects: Sequence[tuple[int, Unpacked]]) -> LineBatch:
    """Lines of objects of one format as one batch. Objects come with their places."""
    texts = [_ended(unpacked.lines) for _, unpacked in objects]
    places = np.array([place for place, _ in objects], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    before = np.concatenate([[0], np.cumsum([text.count(b"\n") for text in texts])])
    data = b"".join(texts)
    limit = max(LINE_LIMIT_BYTES, objects[0][1].log_format.line_limit_bytes)
    reader = LineReader(io.BytesIO(data), batch_bytes=len(data) + 1, line_limit_bytes=limit)
    batch = next(iter(reader), None) or LineBatch(no_lines(), 0, 0)
    positions = batch.table["position"].to_numpy()
    which = np.searchsorted(starts, positions, side="right") - 1
    numbers = batch.table["line_number"].to_numpy() - before[which]
    positions = positions - starts[which] + places[which]
    table = batch.table.set_column(0, "position", pa.array(positions))
    table = table.set_column(1, "line_number", pa.array(numbers.astype(np.int64)))
    bad = []
    for line in batch.bad:
        at = int(np.searchsorted(starts, line.position, side="right")) - 1
        place = int(line.position - starts[at] + places[at])
        bad.append(replace(line, position=place, line_number=line.line_number - int(before[at])))
    for place, unpacked in objects:
        if unpacked.broken:
            bad.append(_broken(place, unpacked.lines, unpacked.broken))
    return LineBatch(table, batch.end, batch.lines, bad)


def _broken(place: int, lines: bytes, why: str) -> BadLine:
    return BadLine(place + len(lines), lines.count(b"\n") + 1, "damaged", why)


def _ended(lines: bytes) -> bytes:
    return lines if not lines or lines.endswith(b"\n") else lines + b"\n"


def no_lines() -> pa.Table:
    """A batch's table without a line."""
    return pa.schema(
        [("position", pa.int64()), ("line_number", pa.int64()), ("line", pa.string())]
    ).empty_table()


def large_batches(
    formats: Formats, key: str, place: int, raw: BinaryIO, batch_bytes: int
) -> Iterator[tuple[LogFormat, LineBatch]]:
    """The lines of a large object, batch by batch.

    Raises PrefixscopeError where it is damaged, after everything before the damage.
    """
    try:
        log_format, stream, laid_out = formats.opened(key, open_input(raw))
        limit = max(LINE_LIMIT_BYTES, log_format.line_limit_bytes)
        for batch in LineReader(stream, batch_bytes=batch_bytes, line_limit_bytes=limit):
            yield log_format, _at(place, batch)
    except DAMAGED as error:
        raise PrefixscopeError(_damage(error)) from error
    if laid_out is not None and laid_out.broken:
        raise PrefixscopeError(laid_out.broken)


def _at(place: int, batch: LineBatch) -> LineBatch:
    positions = pa.array(batch.table["position"].to_numpy() + place)
    bad = [replace(line, position=line.position + place) for line in batch.bad]
    return LineBatch(batch.table.set_column(0, "position", positions), batch.end, batch.lines, bad)
