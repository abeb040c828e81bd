"""Inputs as they come: plain or packed with gzip or zstd, told by their first bytes."""

import gzip
import io
import zlib
from typing import BinaryIO, cast

import zstandard
from typing_extensions import Buffer

from exporter.sources.zstd_reader import open_zstd

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BUFFER_BYTES = 1 << 20
# What reading damaged packed data raises.
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were already read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = memoryview(head)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        target = memoryview(buffer).cast("B")
        data = self._head[: len(target)] or memoryview(self._rest.read(len(target)))
        target[: len(data)] = data
        self._head = self._head[len(data) :]
        return len(data)


def peek(stream: BinaryIO, size: int) -> tuple[bytes, BinaryIO]:
    """The first bytes, and a stream that still has them."""
    head = stream.read(size)
    # gzip calls itself seekable whatever lies under it, and going back is unpacking again.
    if stream.seekable() and not isinstance(cast(object, stream), gzip.GzipFile):
        stream.seek(-len(head), io.SEEK_CUR)
        return head, stream
    return head, cast(BinaryIO, io.BufferedReader(_Rejoined(head, stream), _BUFFER_BYTES))


def open_input(raw: BinaryIO) -> BinaryIO:
    """Undoes gzip or zstd, told by the first bytes; anything else is read as it is."""
    head, stream = peek(raw, len(_ZSTD_MAGIC))
    if head.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    if head.startswith(_ZSTD_MAGIC):
        return cast(BinaryIO, open_zstd(stream))
    return stream
