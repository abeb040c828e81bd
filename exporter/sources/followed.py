"""One file that is followed: what it is called now, how it looked last, and its open handle.

The handle stays open while the file is in use, so that a file that is renamed out of the
pattern, or deleted, can still be read to its end.
"""

import os
import stat as modes
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from exporter.errors import PrefixscopeError

# A file is told by its first line. One longer than this is told by its beginning.
FIRST_LINE_BYTES = 1 << 20
_USUAL_LINE_BYTES = 1 << 16
# How much of two files is compared to tell a copy of a log from another log.
_COMPARED_BYTES = 4096

FileId = tuple[int, int]


@dataclass(frozen=True)
class Look:
    """What a file looked like at one moment. Equal looks mean that nothing was written."""

    identity: FileId
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> "Look":
        """Raises PrefixscopeError for anything but a plain file, OSError as the system does."""
        return _look(os.stat(path))  # noqa: PTH116  # os.stat and os.fstat side by side


def _look(status: os.stat_result) -> Look:
    if modes.S_ISDIR(status.st_mode):
        raise PrefixscopeError("this is a folder; name the files in it, such as folder/*.log")
    if not modes.S_ISREG(status.st_mode):
        raise PrefixscopeError("this is not a plain file and cannot be followed")
    return Look((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


@dataclass
class Followed:
    """A file between polls. `seen` is its look when it was last read as far as it went;
    `matched` tells whether the pattern ever led to it, under this name or an earlier one."""

    path: Path
    identity: FileId
    active_at: float
    matched: bool = False
    seen: Look | None = None
    fingerprint: str | None = None
    stream: BinaryIO | None = None

    def open(self) -> BinaryIO:
        """The handle, opened where it is not. Never waits (as a named pipe would make it).

        Unbuffered: a buffer could answer with lines that have been cut away since. Raises
        FileNotFoundError where the path has become another file meanwhile.
        """
        if self.stream is None:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stream = cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0))
            try:
                if _look(os.fstat(descriptor)).identity != self.identity:
                    raise FileNotFoundError(f"{self.path} was replaced while it was opened")
            except BaseException:
                stream.close()
                raise
            self.stream = stream
        return self.stream

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def look(self) -> Look:
        """How the open file looks now, whatever it is called."""
        return _look(os.fstat(self.open().fileno()))

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes from anywhere, without moving; fewer at the end of the file."""
        return os.pread(self.open().fileno(), size, position)

    def beginning(self) -> bytes:
        """The first line with its newline and maybe more, or everything while it has no end."""
        head = self.read_at(0, _USUAL_LINE_BYTES)
        if b"\n" in head or len(head) < _USUAL_LINE_BYTES:
            return head
        return self.read_at(0, FIRST_LINE_BYTES)

    def begins_like(self, other: "Followed", size: int) -> bool:
        """Whether the first `size` bytes are those of the other file, judged by their end."""
        compared = min(size, _COMPARED_BYTES)
        start = size - compared
        return self.read_at(start, compared) == other.read_at(start, compared)
