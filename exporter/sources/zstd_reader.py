"""zstd as a file to read from that notices when the data ends early.

The library's own reader takes a cut file for a whole one and says nothing, so rows would be
lost in silence. It also may unpack far more at once than was asked for; here a small slice goes
in at a time, which bounds what can come out.
"""

import io
from typing import BinaryIO

import zstandard
from typing_extensions import Buffer

# A slice of zstd unpacks to at most about 32,000 times its size.
_SLICE_BYTES = 4096


class ZstdReader(io.RawIOBase):
    """Unpacks one or several frames in a row. Raises EOFError where the last one is cut."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = False
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        """Always: the end shows when it is reached."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Fill with unpacked bytes; 0 at the end of a whole frame."""
        target = memoryview(buffer).cast("B")
        while not self._output:
            if not self._unpack_slice():
                return 0
        size = min(len(target), len(self._output))
        target[:size] = self._output[:size]
        self._output = self._output[size:]
        return size

    def _unpack_slice(self) -> bool:
        """Unpack the next slice; False at the end."""
        data = self._input or self._packed.read(_SLICE_BYTES)
        if not data:
            if self._started:
                raise EOFError("the zstd data ends inside a frame")
            return False
        self._output = memoryview(self._frame.decompress(data))
        self._started, self._input = True, b""
        if self._frame.eof:
            self._input = self._frame.unused_data
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._started = False
        return True


def open_zstd(packed: BinaryIO) -> io.BufferedReader:
    """A buffered reader over zstd data."""
    return io.BufferedReader(ZstdReader(packed), 1 << 20)
