"""One pass over a prefix of an object store: everything new in it, many objects a transaction.

What has been read is noted in the transaction of its rows. An object may appear long after
younger ones (a slow upload keeps the time of its start, a listing races with writers), so
objects are compared one by one within the overlap window, and only older ones are taken as
read. An object that could not be read holds that window back. A replaced object is read again:
its rows that are known are recognised by request id, or by their place.
"""

import io
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.intake import IngestSummary, fingerprint
from exporter.sources.lines import BadLine, LineBatch
from exporter.sources.names import SourceNames
from exporter.sources.objects.fetch import Fetched, Fetcher
from exporter.sources.objects.lines import (
    Formats,
    Unpacked,
    combined,
    large_batches,
    no_lines,
    place_of,
    unpacked,
)
from exporter.sources.objects.listing import pages
from exporter.sources.objects.place import (
    Listed,
    ObjectSettings,
    Prefix,
    Truncated,
    library_errors,
    open_store,
    reason_of,
)
from exporter.store.append import Stream, append
from exporter.store.bookmarks import Bookmark, Read, keyed
from exporter.store.store import Store
from replay.counted import counted

_RANGE_BYTES = 4 << 20
# What every place in an object store is an offset in.
_FINGERPRINTED = b"object stores"
_LONG_AGO = datetime.fromtimestamp(0, UTC)


class Problems:
    """What could not be read, by reason: how many objects, and one of them."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, name: str) -> None:
        count, first = self._found.get(reason, (0, name))
        self._found[reason] = (count + 1, first)

    def messages(self) -> list[str]:
        return [
            f"{name}: {reason}" + (f" (and {count - 1:,} more objects)" if count > 1 else "")
            for reason, (count, name) in self._found.items()
        ]


class ObjectReader:
    """Reads a prefix into a store, pass by pass. `filesystem` is given where it is no other's.

    Raises PrefixscopeError where the library of the object store is not installed.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        *,
        source: str,
        format: str = "auto",
        defaults: dict[str, object] | None = None,
        names: SourceNames | None = None,
        settings: ObjectSettings | None = None,
        stopped: threading.Event | None = None,
        filesystem: Any = None,  # noqa: ANN401 - fsspec has no types
    ) -> None:
        self._store, self._source = store, source
        self._defaults = defaults or {}
        self._settings = settings or ObjectSettings()
        self._stopped = stopped or threading.Event()
        self._prefix = Prefix.of(path)
        self._files = filesystem or open_store(self._prefix, self._settings)
        self._fetcher = Fetcher(self._files, self._prefix, self._settings, self._stopped)
        self._formats = Formats(format, names)
        # Another format is another reading, so it begins anew.
        self._bookmark = Bookmark(store, source, keyed(f"{self._prefix} {format}", store.key))
        self._fingerprint = fingerprint(_FINGERPRINTED, store.key)
        self._skips: bool | None = None
        self._begin()

    def _begin(self) -> None:
        """What one pass keeps."""
        self._unread = Problems()
        self.read_objects = self.known_objects = 0
        self._formats_seen: dict[str, None] = {}
        self._summary = IngestSummary(source=self._source, format="none", decided_because="")
        self._whole = True
        self._youngest: datetime | None = None
        self._held: datetime | None = None
        self._batch = _Batch()

    @property
    def problems(self) -> list[str]:
        """What could not be read in the last pass, by reason."""
        return self._unread.messages()

    # ---------------------------------------------------------------- a pass

    def run(self, progress: Callable[[int], None] | None = None) -> IngestSummary:
        """Takes everything new. `progress` is told of the bytes of each object.

        What could not be read is in `problems`, and is tried again by the next pass.
        """
        self._begin()
        for chunk in self._fetcher.fetched(self._wanted(self._bookmark.before())):
            for fetched in chunk:
                self._take(fetched)
                if progress:
                    progress(fetched.listed.size)
            if self._stopped.is_set():
                break
        self._flush()
        self._finish()
        self._store.fold()
        self._summary.format = ", ".join(self._formats_seen) or "none"
        self._summary.decided_because = (
            f"{counted(self.read_objects, 'object')} read, {self.known_objects:,} known before"
        )
        return self._summary

    def skip(self) -> bool:
        """Notes everything there as read, if nothing of the prefix ever was.

        False where it could not be listed to its end: then it is to be done again.
        """
        self._begin()
        if self._skips is None:
            self._skips = not self._bookmark.begun()
        if not self._skips:
            return True
        try:
            for page in pages(self._files, self._prefix):
                self._see(page)
                self._bookmark.note([self._as_read(listed) for listed in page])
        except library_errors() as error:
            self._not_listed(error)
            return False
        self._bookmark.finish(_LONG_AGO)  # a prefix without objects has begun too
        self._finish()
        return True

    def _finish(self) -> None:
        """Moves the window on, up to what could not be read."""
        if self._whole and self._youngest is None:
            self._unread.add("no object there yet", str(self._prefix))
        if not self._whole or self._youngest is None or self._stopped.is_set():
            return
        # A time ahead of now is a clock gone wrong: what is yet to come must not count as old.
        youngest = min(self._youngest, datetime.now(UTC))
        before = youngest - timedelta(seconds=self._settings.overlap_seconds)
        self._bookmark.finish(min(before, self._held or before))

    # ---------------------------------------------------------------- what is new

    def _wanted(self, before: datetime | None) -> Iterator[Listed]:
        try:
            for page in pages(self._files, self._prefix):
                if self._stopped.is_set():
                    return
                self._see(page)
                young = [listed for listed in page if before is None or listed.modified >= before]
                reads = [self._as_read(listed) for listed in young]
                known = self._bookmark.versions([read.name for read in reads])
                new = [
                    listed
                    for listed, read in zip(young, reads, strict=True)
                    if known.get(read.name) != read.version
                ]
                self.known_objects += len(page) - len(new)
                yield from new
        except library_errors() as error:
            self._not_listed(error)

    def _see(self, page: list[Listed]) -> None:
        for listed in page:
            self._youngest = max(self._youngest or listed.modified, listed.modified)

    def _not_listed(self, error: Exception) -> None:
        self._whole = False
        self._unread.add(f"cannot be listed: {reason_of(error)}", str(self._prefix))

    def _as_read(self, listed: Listed) -> Read:
        key = self._store.key
        return Read(keyed(self._name(listed), key), keyed(listed.version, key), listed.modified)

    def _name(self, listed: Listed) -> str:
        return f"{self._prefix.protocol}://{self._prefix.full_name(listed.key)}"

    # ---------------------------------------------------------------- an object

    def _take(self, fetched: Fetched) -> None:
        listed = fetched.listed
        if fetched.error is not None:
            self._fail(listed, fetched.error)
            return
        if fetched.data is None:
            self._take_in_ranges(listed)
            return
        try:
            found = unpacked(self._formats, listed.key, fetched.data, self._fetcher.part_bytes)
        except PrefixscopeError as error:
            self._give_up(listed, str(error))
            return
        if found is None:
            self._take_large(listed, io.BytesIO(fetched.data), len(fetched.data))
            return
        if found.broken:
            self._unread.add(found.broken, self._name(listed))
        place = place_of(self._name(listed), self._store.key)
        if not self._batch.takes(place, found, self._fetcher.part_bytes):
            self._flush()
        self._batch.add(place, found, self._as_read(listed))

    def _fail(self, listed: Listed, error: Exception) -> None:
        """An object that did not come; one that was deleted since it was listed is no failure."""
        if isinstance(error, FileNotFoundError):
            return
        self._unread.add(f"cannot be read: {reason_of(error)}", self._name(listed))
        self._held = min(self._held or listed.modified, listed.modified)

    def _give_up(self, listed: Listed, why: str) -> None:
        """An object that came as it is and cannot be used: only another version can be."""
        self._unread.add(why, self._name(listed))
        self._bookmark.note([self._as_read(listed)])

    def _flush(self) -> None:
        batch, self._batch = self._batch, _Batch()
        if batch.log_format is not None:
            self._store_batch(batch.log_format, combined(batch.objects), batch.read)

    def _store_batch(self, log_format: LogFormat, lines: LineBatch, read: list[Read]) -> None:
        target = Stream(self._source, log_format, self._fingerprint, self._defaults)
        result = append(
            self._store, lines, target, also=lambda cursor: self._bookmark.keep(cursor, read)
        )
        self._formats_seen[log_format.name] = None
        self._summary.add(result)
        self.read_objects += len(read)

    # ---------------------------------------------------------------- a large object

    def _take_in_ranges(self, listed: Listed) -> None:
        """An object too large for memory, a piece at a time."""
        name = self._prefix.full_name(listed.key)
        try:
            with self._files.open(name, "rb", block_size=_RANGE_BYTES) as file:
                self._take_large(listed, file, file.size)
        except library_errors() as error:
            self._fail(listed, error)

    def _take_large(self, listed: Listed, file: BinaryIO, size: int) -> None:
        """Noted as read only when its last batch is stored: until then it is read again."""
        place = place_of(self._name(listed), self._store.key)
        batches = large_batches(self._formats, listed.key, place, file, self._fetcher.part_bytes)
        log_format, end, lines = None, 0, 0
        while True:
            try:
                step = next(batches, None)
            except PrefixscopeError as error:
                if isinstance(error.__cause__, EOFError) and file.tell() < size:
                    raise Truncated from error
                self._give_up(listed, str(error))
                if log_format is not None:
                    damage = BadLine(place + end, lines + 1, "damaged", str(error))
                    self._store_batch(log_format, LineBatch(no_lines(), end, lines, [damage]), [])
                return
            if step is None:
                break
            if self._stopped.is_set():
                return
            log_format, batch = step
            self._store_batch(log_format, batch, [])
            end, lines = batch.end, batch.lines
        # A document may have an end of its own.
        if file.tell() < size and not (log_format and log_format.documents):
            raise Truncated
        self._bookmark.note([self._as_read(listed)])
        self.read_objects += 1


class _Batch:
    """Small objects of one format that will be stored together."""

    def __init__(self) -> None:
        self.log_format: LogFormat | None = None
        self.objects: list[tuple[int, Unpacked]] = []
        self.read: list[Read] = []
        self._places: set[int] = set()
        self._size = 0

    def takes(self, place: int, found: Unpacked, limit_bytes: int) -> bool:
        """Whether an object may be added. Two with one place would be taken for each other."""
        if self.log_format is None:
            return True
        same = self.log_format is found.log_format and place not in self._places
        return same and self._size + len(found.lines) <= limit_bytes

    def add(self, place: int, found: Unpacked, read: Read) -> None:
        self.log_format = found.log_format
        self.objects.append((place, found))
        self.read.append(read)
        self._places.add(place)
        self._size += len(found.lines)
