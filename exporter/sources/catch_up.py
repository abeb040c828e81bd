"""Reads a followed file from where the store says it stands, batch by batch.

A file is told by its first line, whatever it is called: so a rotated file is read on where it
stood, and not again under its new name. Where that is in doubt (the file is shorter than its
offset, or no line ends there) it is read from its start: rows that are known already are
recognised, rows that were never read would be lost.
"""

import threading
from collections.abc import Iterable
from typing import BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources.followed import FIRST_LINE_BYTES, Followed
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.names import with_names
from exporter.sources.intake import choose_format, fingerprint
from exporter.sources.lines import LINE_LIMIT_BYTES, LineBatch, LineReader
from exporter.sources.names import SourceNames
from exporter.sources.packed import DAMAGED, open_input
from exporter.store import offsets
from exporter.store.append import Stream, append
from exporter.store.offsets import Offset
from exporter.store.store import Store

_PACKED_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_SKIP_BYTES = 1 << 20


class CatchUp:
    """Brings files of one source into the store. `stopped` ends a long file between batches."""

    def __init__(
        self,
        store: Store,
        source: str,
        format_name: str,
        defaults: dict[str, object],
        stopped: threading.Event,
        names: SourceNames | None = None,
    ) -> None:
        self._store = store
        self._source = source
        self._format_name = format_name
        self._defaults = defaults
        self._stopped = stopped
        self._names = names
        self._formats: dict[str, LogFormat] = {}

    def read(
        self,
        file: Followed,
        others: Iterable[Followed] = (),
        *,
        known_only: bool = False,
        finished: bool = False,
    ) -> None:
        """Takes every complete line that is not in the store yet.

        `known_only` leaves a file alone that was never read under another name. `finished`
        takes a last line without a newline too. `others` are the files that one may be a copy
        of. Raises PrefixscopeError when the content is no log we know or is damaged.
        """
        if file.read_at(0, 4).startswith(_PACKED_MAGIC):
            self._read_packed(file, known_only)
            return
        head = file.beginning()
        if b"\n" not in head and len(head) < FIRST_LINE_BYTES and not (finished and head):
            return
        file.fingerprint = fingerprint(head, self._store.key)
        start = self._start(file, others, known_only)
        if start is None:
            return
        stream = file.open()
        stream.seek(start.position)
        log_format = self._format(file, head)
        self._take(file, log_format, LineReader(
            stream, position=start.position, lines=start.lines, take_tail=finished,
            line_limit_bytes=max(LINE_LIMIT_BYTES, log_format.line_limit_bytes),
        ))  # fmt: skip

    def skip(self, file: Followed) -> None:
        """Notes a file as read up to its last complete line, without taking any."""
        head = file.beginning()
        if b"\n" not in head or head.startswith(_PACKED_MAGIC):
            return
        end = Offset()
        stream = file.open()
        stream.seek(0)
        for batch in LineReader(stream, take_tail=False):
            end = Offset(batch.end, batch.lines)
        offsets.put(self._store, self._source, fingerprint(head, self._store.key), end)

    def _start(self, file: Followed, others: Iterable[Followed], known_only: bool) -> Offset | None:
        """Where to read on; None when there is nothing to read."""
        assert file.fingerprint is not None
        offset = self._known(file.fingerprint)
        size = file.look().size
        if offset is None:
            return None if known_only else Offset()
        if size == offset.position:
            return None
        if size > offset.position and _ends_a_line(file, offset.position):
            return offset
        if known_only or (size < offset.position and _is_copy(file, size, others)):
            return None
        offsets.put(self._store, self._source, file.fingerprint, Offset())
        return Offset()

    def _known(self, identity: str) -> Offset | None:
        """Always from the store: what is remembered there was committed with its rows."""
        cursor = self._store.cursor()
        try:
            return offsets.find(cursor, self._source, identity)
        finally:
            cursor.close()

    def _read_packed(self, file: Followed, known_only: bool) -> None:
        """A rotated, compressed log. Nobody adds to it, so its last line is complete.

        Its rows may have been read before it was compressed; then only the rest is taken.
        """
        try:
            head = _unpacked(file).read(FIRST_LINE_BYTES)
            file.fingerprint = fingerprint(head, self._store.key)
            offset = self._known(file.fingerprint)
            if not head or (offset is None and known_only):
                return
            stream, start = _unpacked(file), offset or Offset()
            if not _skip(stream, start.position):
                if known_only:
                    return
                stream, start = _unpacked(file), Offset()
            log_format = self._format(file, head)
            limit = max(LINE_LIMIT_BYTES, log_format.line_limit_bytes)
            self._take(file, log_format, LineReader(
                stream, position=start.position, lines=start.lines, line_limit_bytes=limit
            ))  # fmt: skip
        except DAMAGED as error:
            raise PrefixscopeError(
                f"the compressed data is damaged or not complete yet ({error}); "
                "it is tried again when the file changes"
            ) from error

    def _format(self, file: Followed, head: bytes) -> LogFormat:
        """The format named, or the one the first complete lines have; remembered per file."""
        assert file.fingerprint is not None
        known = self._formats.get(file.fingerprint)
        if known is None:
            sample = file.read_at(0, FIRST_LINE_BYTES) if not _packed(file) else head
            complete = sample[: sample.rfind(b"\n") + 1] or sample
            known, _ = choose_format(self._format_name, complete, str(file.path))
            if known.documents:
                raise PrefixscopeError(
                    f"a file of the format {known.name} is read as a whole and cannot be "
                    "followed: when it is complete, take it in with `prefixscope ingest`"
                )
            # A start-up message decides nothing; the first rows will.
            if any(line.lstrip().startswith(b"{") for line in complete.splitlines()):
                self._formats[file.fingerprint] = known
        return known

    def _take(self, file: Followed, log_format: LogFormat, lines: Iterable[LineBatch]) -> None:
        """Stores the batches. Stopped in between, the rest waits for the next start."""
        named = with_names(log_format, self._names)
        target = Stream(self._source, named, file.fingerprint, self._defaults)
        for batch in lines:
            if self._stopped.is_set():
                return
            append(self._store, batch, target)


def _ends_a_line(file: Followed, position: int) -> bool:
    return position == 0 or file.read_at(position - 1, 1) == b"\n"


def _is_copy(file: Followed, size: int, others: Iterable[Followed]) -> bool:
    """Whether a file that is shorter than its offset is a longer one being copied, not cut."""
    for other in others:
        if other is file or other.fingerprint != file.fingerprint:
            continue
        try:
            if other.look().size > size and file.begins_like(other, size):
                return True
        except OSError:
            # Renamed or gone since it was listed: then it cannot vouch for this one.
            continue
    return False


def _packed(file: Followed) -> bool:
    return file.read_at(0, 4).startswith(_PACKED_MAGIC)


def _unpacked(file: Followed) -> BinaryIO:
    stream = file.open()
    stream.seek(0)
    return open_input(stream)


def _skip(stream: BinaryIO, size: int) -> bool:
    """Reads past `size` bytes; False where the stream is shorter."""
    while size > 0:
        data = stream.read(min(size, _SKIP_BYTES))
        if not data:
            return False
        size -= len(data)
    return True
