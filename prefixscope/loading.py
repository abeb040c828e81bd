"""Loading files: request logs and recorded metric pages, into a running exporter or a store.

Both ways run the exporter's one path in. A file sent to an exporter travels as it lies on disk,
so that its rows are known again by their place in it whichever way it was loaded before.
"""

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

from typing_extensions import Buffer

from exporter.causes.sealing import Sealer
from exporter.causes.settings import CauseSettings
from exporter.endpoints.events import EVENTS_PATH
from exporter.errors import PrefixscopeError
from exporter.isolation.judge import judge_newest_scopes
from exporter.isolation.settings import IsolationSettings
from exporter.layout_found.judge import judge_newest
from exporter.sources.events.recorded import FORMAT as KV_EVENTS
from exporter.sources.events.recorded import EventsSummary, ingest_events
from exporter.sources.events.recorded_lines import is_recorded
from exporter.sources.intake import IngestSummary, Intake
from exporter.sources.names import Names
from exporter.sources.objects.intake import ObjectReader
from exporter.sources.objects.place import Prefix
from exporter.sources.packed import open_input, peek
from exporter.sources.page_files import holds_pages, target_name
from exporter.sources.pages import PagesSummary, ingest_pages
from exporter.sources.secrets_in_paths import refuse_password
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.sources.spend_logs.place import Address, is_database_path
from exporter.store.store import Store
from exporter.templates_found.find import find_templates
from prefixscope.client import Exporter, OpenStore

STDIN = Path("-")
DEFAULT_SOURCE = "file"
_CHUNK_BYTES = 1 << 18
# Of a first line so much is enough to tell what it is: its keys may stand behind long values.
_HEAD_BYTES = 1 << 20

Advance = Callable[[int], None]


@dataclass
class Loaded:
    """What became of all inputs. `failed` holds a message for each input that could not be read."""

    logs: dict[str, IngestSummary] = field(default_factory=dict)
    pages: dict[str, PagesSummary] = field(default_factory=dict)
    events: dict[str, EventsSummary] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def nothing_taken(self) -> bool:
        """Was there input, and none of it usable?"""
        rows = sum(log.accepted + log.duplicate + log.corrected for log in self.logs.values())
        seen = sum(pages.pages + pages.skipped for pages in self.pages.values())
        refused = sum(log.rejected + log.conflicting for log in self.logs.values())
        refused += sum(pages.unreadable + pages.foreign for pages in self.pages.values())
        seen += sum(told.batches + told.known + told.repeated for told in self.events.values())
        refused += sum(told.unreadable for told in self.events.values())
        return refused > 0 and rows + seen == 0


def load(
    paths: Sequence[Path | str],
    target: Exporter | OpenStore,
    *,
    source: str,
    log_format: str,
    names: Names | None = None,
    advance: Advance = lambda _: None,
) -> Loaded:
    """Load every input; one that fails does not keep the others from being loaded.

    A path that is text is a prefix of an object store or a database, of which what is new is
    loaded.
    `advance` is told of the bytes read since the last call. `names` are rules for a store that
    is open here; an exporter has its own.
    """
    if names and isinstance(target, Exporter):
        raise PrefixscopeError(
            f"{target.where} names rows by the rules in its own settings: put yours there, under "
            "names, and leave --names out; or stop it, or load into another store with --store"
        )
    loaded = Loaded()
    for path in paths:
        try:
            if isinstance(path, Path):
                refuse_password(str(path))
            if isinstance(path, str):
                name = str(Address.of(path)) if is_database_path(path) else path
                loaded.logs[name] = _load_new(
                    path, target, source, log_format, names, advance, loaded.failed
                )
            elif path != STDIN and holds_pages(path):
                loaded.pages[str(path)] = _load_pages(path, target)
            elif recorded_events(path, log_format):
                with open_file(path) as file:
                    reader = Counting(file, advance)
                    loaded.events[str(path)] = _load_events(path, reader, target, source)
            else:
                with open_file(path) as file:
                    reader = Counting(file, advance)
                    summary = _load_log(str(path), reader, target, source, log_format, names)
                    loaded.logs[str(path)] = summary
        except PrefixscopeError as error:
            loaded.failed.append(str(error))
    if isinstance(target, OpenStore):  # an exporter looks for them itself
        find_templates(target.store)
    return loaded


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """A file as bytes, `-` is standard input; what cannot be opened is an error to read."""
    if path == STDIN:
        yield sys.stdin.buffer
        return
    if path.is_dir():
        raise PrefixscopeError(f"{path} is a folder without metric pages: name the log files in it")
    try:
        file = path.open("rb")
    except OSError as error:
        raise PrefixscopeError(f"{path}: cannot be read: {error.strerror}") from error
    with file:
        yield file


class Counting(io.RawIOBase):
    """A binary file that tells how far it was read; bytes read again are not told again."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        self._file = file
        self._advance = advance
        self._position = self._told = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read, and say how much further that was."""
        data = self._file.read(memoryview(buffer).nbytes)
        memoryview(buffer).cast("B")[: len(data)] = data
        self._position += len(data)
        if self._position > self._told:
            self._advance(self._position - self._told)
            self._told = self._position
        return len(data)

    def seekable(self) -> bool:
        """As the file is: standard input is not."""
        return self._file.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go on from elsewhere; the way there was told already."""
        self._position = self._file.seek(offset, whence)
        return self._position

    def chunks(self) -> Iterator[bytes]:
        """Everything in pieces, as it is sent over HTTP."""
        while chunk := self.read(_CHUNK_BYTES):
            yield chunk


def _load_log(
    name: str,
    file: Counting,
    target: Exporter | OpenStore,
    source: str,
    log_format: str,
    names: Names | None,
) -> IngestSummary:
    if isinstance(target, OpenStore):
        return Intake(target.store, names=names).ingest(
            open_input(cast(BinaryIO, file)),
            source=source,
            format=log_format,
            origin="file",
            name=name,
        )
    return _send_log(name, file, target, source, log_format)


def _load_new(
    path: str,
    target: Exporter | OpenStore,
    source: str,
    log_format: str,
    names: Names | None,
    advance: Advance,
    failed: list[str],
) -> IngestSummary:
    """Take what is new in an object store or a database; only whoever holds the store knows what
    that is."""
    kind: type[ObjectReader | SpendLogReader]
    if is_database_path(path):
        kind, place, noun, read = SpendLogReader, str(Address.of(path)), "address", "rows"
    else:
        kind, place, noun, read = ObjectReader, str(Prefix.of(path)), "prefix", "objects"
    if isinstance(target, Exporter):
        raise PrefixscopeError(
            f"{place}: which {read} were read is kept in the store, so an exporter reads them "
            f"itself: put the {noun} under logs in the settings of {target.url}; or stop it, or "
            "name another store with --store"
        )
    rules = names.get(source) if names else None
    reader = kind(target.store, path, source=source, format=log_format, names=rules)
    summary = reader.run(advance)
    failed += reader.problems
    return summary


def _send_log(
    name: str, file: Counting, exporter: Exporter, source: str, log_format: str
) -> IngestSummary:
    """Stream a file to the exporter; it answers when everything is committed."""
    try:
        answer = exporter.send(
            "POST",
            "/v1/requests",
            params={"source": source, "format": log_format, "input": "file"},
            headers={"Content-Type": "application/octet-stream"},
            data=file.chunks(),
        )
    except PrefixscopeError as error:
        raise type(error)(f"{name}: {error}") from error
    known = {entry.name for entry in fields(IngestSummary)}
    return IngestSummary(**{key: value for key, value in answer.json().items() if key in known})


def _load_pages(path: Path, target: Exporter | OpenStore) -> PagesSummary:
    """Take recorded metric pages; only whoever holds the store can do that."""
    if isinstance(target, Exporter):
        raise PrefixscopeError(
            f"{path}: recorded metric pages go straight into a store: stop the exporter at "
            f"{target.url}, or name another store with --store"
        )
    return ingest_pages(target.store, [path])


def recorded_events(path: Path, log_format: str) -> bool:
    """Whether a file is a recorded stream of KV-cache events: said, or told by its first line."""
    if log_format != "auto" or path == STDIN:
        return log_format == KV_EVENTS
    with open_file(path) as file:
        head, _ = peek(open_input(file), _HEAD_BYTES)
    return is_recorded(head)


def _load_events(
    path: Path, file: Counting, target: Exporter | OpenStore, source: str
) -> EventsSummary:
    """Take a recorded stream; its replica is named after its folder, as that of pages is."""
    replica = source if path == STDIN else target_name(path.parent)
    if isinstance(target, OpenStore):
        stream = open_input(cast(BinaryIO, file))
        return ingest_events(target.store, stream, source=source, replica=replica, name=str(path))
    try:
        answer = target.send(
            "POST",
            EVENTS_PATH,
            params={"source": source, "replica": replica},
            headers={"Content-Type": "application/octet-stream"},
            data=file.chunks(),
        )
    except PrefixscopeError as error:
        raise type(error)(f"{path}: {error}") from error
    known = {entry.name for entry in fields(EventsSummary)}
    return EventsSummary(**{key: value for key, value in answer.json().items() if key in known})


def judge_loaded(
    store: Store,
    causes: CauseSettings | None = None,
    isolation: IsolationSettings | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> None:
    """Do at once what an exporter does by and by with the rows that came; each step is said."""
    say("Naming causes of missed tokens")
    Sealer(store, causes).seal(datetime.now(UTC), wait_for_older=False)
    say("Looking at the layout of prompts")
    judge_newest(store)
    say("Looking at what scopes keep apart")
    judge_newest_scopes(store, isolation or IsolationSettings())


def by_name(counts: dict[str, int]) -> str:
    """` (3 no_time, 1 too_long)`, most first; nothing for nothing."""
    if not counts:
        return ""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return f" ({', '.join(f'{count:,} {name}' for name, count in ordered)})"
