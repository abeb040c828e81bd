"""Recorded streams of KV-cache events as input: they end in the tables live ones end in.

A replica is named after the folder of its file, as recorded metric pages are; several endpoints in
one file are data-parallel ranks, counted from the lowest port. `recorded_lines` reads the lines.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import BinaryIO

from exporter.blocks.order import Heard, StreamName
from exporter.blocks.residency import DEMOTION_WINDOW_SECONDS
from exporter.blocks.rows import Drained, UsedPrefix
from exporter.blocks.tracker import Tracker
from exporter.errors import PrefixscopeError
from exporter.records import EngineSample
from exporter.sources.events.endpoints import Endpoint
from exporter.sources.events.recorded_known import KnownRecordings, rank_of
from exporter.sources.events.recorded_lines import Recorded, read_recorded
from exporter.sources.events.touched import Past, past_rows, past_samples
from exporter.store.blocks import write_drained
from exporter.store.store import Store
from queries.times import as_utc

FORMAT = "kv-events"
# Lines looked at before the first is taken: by then every rank has spoken.
LOOK_AHEAD_LINES = 2_000
LOOK_AHEAD_BYTES = 32 * 2**20
KEPT_MESSAGES = 20


@dataclass
class EventsSummary:
    """What `ingest_events` did. Every line is in one of `batches`, `known`, `repeated`,
    `unreadable`; blocks are counted as in block_minutes.

    `known` are not newer than what the store has of their stream. `missed_batches` are missing
    in the recording; `uncertain` says for which replicas the state may be wrong, and why.
    """

    batches: int = 0
    known: int = 0
    repeated: int = 0
    unreadable: int = 0
    missed_batches: int = 0
    restarts: int = 0
    stored_blocks: int = 0
    evicted_blocks: int = 0
    demoted_blocks: int = 0
    promoted_blocks: int = 0
    reset_blocks: int = 0
    resets: dict[str, int] = field(default_factory=dict)
    resident_blocks: dict[str, int] = field(default_factory=dict)
    uncertain: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def refuse(self, message: str) -> None:
        """Count a message that cannot be read."""
        self.unreadable += 1
        self.say(message)

    def say(self, message: str) -> None:
        """Keep the first few messages, each once."""
        if message not in self.messages and len(self.messages) < KEPT_MESSAGES:
            self.messages.append(message)

    def add(self, drained: Drained) -> None:
        """Count what goes into the store."""
        for name in ("stored", "evicted", "demoted", "promoted", "reset"):
            column = f"{name}_blocks"
            told = sum(getattr(minute, column) for minute in drained.minutes)
            setattr(self, column, getattr(self, column) + told)
        for reset in drained.resets:
            self.resets[reset.reason] = self.resets.get(reset.reason, 0) + 1


def ingest_events(
    store: Store, stream: BinaryIO, *, source: str, replica: str, name: str = "input"
) -> EventsSummary:
    """Take a recorded stream into the store; the same again adds nothing, a longer one the rest.

    `name` is what the input is called in messages. Request rows with hash chains that are in the
    store already tell which blocks were used.
    """
    summary = EventsSummary()
    lines = _Ending(read_recorded(stream, name, summary))
    ahead = list(_first_lines(lines))
    known = KnownRecordings(store, source, replica)
    names = _Names(source, replica, [line.endpoint for line in ahead])
    if known.has_ranks_only and ahead:
        names.rank_alone(rank_of(ahead[0]) or 0)
    known.goes_on_as(names.lowest)
    intake = _Intake(store, names, known, summary)
    for line in chain(ahead, lines):
        intake.take(line)
    intake.finish()
    if lines.fault is not None:
        raise lines.fault
    return summary


class _Ending:
    """Lines until damaged data ends them; what came before the fault counts."""

    def __init__(self, lines: Iterator[Recorded]) -> None:
        self._lines = lines
        self.fault: PrefixscopeError | None = None

    def __iter__(self) -> "_Ending":
        return self

    def __next__(self) -> Recorded:
        try:
            return next(self._lines)
        except PrefixscopeError as error:
            self.fault = error
            raise StopIteration from error


def _first_lines(lines: Iterator[Recorded]) -> Iterator[Recorded]:
    size = 0
    for line in islice(lines, LOOK_AHEAD_LINES):
        yield line
        size += len(line.batch.payload)
        if size > LOOK_AHEAD_BYTES:
            return


class _Names:
    """Which stream an endpoint is: one alone is the replica, several are its ranks."""

    def __init__(self, source: str, replica: str, endpoints: Iterable[str]) -> None:
        self.source = source
        self.replica = replica
        self._known: dict[str, StreamName] = {}
        distinct = sorted(set(endpoints))
        ports = {endpoint: _port(endpoint) for endpoint in distinct}
        lowest = min((port for port in ports.values() if port is not None), default=0)
        for place, endpoint in enumerate(distinct):
            port = ports[endpoint]
            rank = place if port is None or None in ports.values() else port - lowest
            several = len(distinct) > 1
            self._known[endpoint] = StreamName(source, replica, None, rank if several else None)

    @property
    def lowest(self) -> StreamName:
        """The stream with the lowest rank; the replica itself where there are no ranks."""
        plain = StreamName(self.source, self.replica)
        return min(self._known.values(), key=lambda stream: stream.rank or 0, default=plain)

    def rank_alone(self, rank: int) -> None:
        """The only endpoint is one of several ranks that were recorded together before."""
        if len(self._known) == 1:
            self._known = {
                endpoint: replace(stream, rank=rank) for endpoint, stream in self._known.items()
            }

    def stream(self, endpoint: str) -> StreamName:
        """The stream of an endpoint; one that speaks up late is a replica of its own."""
        if endpoint not in self._known:
            late = f"{self.replica}@{endpoint}"
            self._known[endpoint] = StreamName(self.source, late)
        return self._known[endpoint]


def _port(endpoint: str) -> int | None:
    try:
        return Endpoint.of(endpoint).port
    except ValueError:
        return None


class _Intake:
    """Hears recorded messages and writes what they tell, a recorded minute at a time."""

    def __init__(
        self, store: Store, names: _Names, known: KnownRecordings, summary: EventsSummary
    ) -> None:
        self._store = store
        self._names = names
        self._summary = summary
        self._tracker = Tracker(store.key)
        self._rows: Past[UsedPrefix] | None = None
        self._samples: Past[EngineSample] | None = None
        self._known = known
        # When the message taken last came, and the latest of them: files may be put together.
        self._at: datetime | None = None
        self._last: datetime | None = None

    def take(self, line: Recorded) -> None:
        """One message, in its turn."""
        if self._at is not None and self._part(self._at) != self._part(line.at):
            self._drain(self._last or self._at)
        self._at = line.at
        self._last = line.at if self._last is None else max(self._last, line.at)
        self._show_the_past(line.at)
        stream = self._names.stream(line.endpoint)
        heard = self._hear(line, stream)
        if self._known.is_known(stream, line):
            self._summary.known += 1
        elif heard is Heard.REPEATED:
            self._summary.repeated += 1
        elif heard is Heard.UNREADABLE:
            self._summary.refuse(f"batch {line.batch.sequence}: its events cannot be read")
        else:
            self._summary.batches += 1

    def finish(self) -> None:
        """What is left, and how things stand at the end."""
        if self._last is None:
            return
        self._known.prove()
        self._drain(self._last)
        # A copy still under way at the end of the recording is none any more.
        later = self._last + timedelta(seconds=DEMOTION_WINDOW_SECONDS + 1)
        self._drain(later, is_end=True)
        for stream in self._tracker.drain(later).streams:
            self._summary.missed_batches += stream.missed_batches
            self._summary.restarts += stream.restarts
            if stream.uncertain:
                self._summary.uncertain[stream.replica] = stream.uncertain
        for cache in self._tracker.snapshot().caches:
            self._summary.resident_blocks[f"{cache.replica} {cache.tier}"] = cache.resident_blocks

    def _part(self, at: datetime) -> tuple[tuple[bool, ...], datetime]:
        """The minute, cut where what the store knows of a stream ends."""
        return self._known.part(at), at.replace(second=0, microsecond=0)

    def _hear(self, line: Recorded, stream: StreamName) -> Heard:
        batch = line.batch
        heard = self._tracker.hear(stream, batch.sequence, batch.payload, line.at)
        missing = self._tracker.missing(stream)
        if heard not in (Heard.GAP, Heard.RESTARTED) or not missing:
            return heard
        first = "the recording begins with batch" if missing.start == 0 else "batches are missing"
        where = batch.sequence if missing.start == 0 else f"before {batch.sequence}"
        self._tracker.give_up(stream, f"{first} {where}")
        return self._tracker.hear(stream, batch.sequence, batch.payload, line.at)

    def _show_the_past(self, at: datetime) -> None:
        """Requests that began until now, and what pages told until now."""
        if self._rows is None or self._samples is None:
            self._rows = past_rows(self._store, at)
            self._samples = past_samples(self._store, self._names.replica, at)
        if rows := self._rows.until(at):
            self._tracker.touch(rows)
        if samples := self._samples.until(at):
            self._tracker.sampled([sample.model_copy(update={"ts": as_utc(sample.ts)})
                                   for sample in samples])  # fmt: skip

    def _drain(self, now: datetime, *, is_end: bool = False) -> None:
        """Write what happened, unless the store has it from before."""
        drained = self._tracker.drain(now)
        if self._at is None:
            return
        new = self._known.new(drained, self._at, is_end=is_end)
        if new is None:
            return
        if is_end or self._is_heard_live():
            new = replace(new, copies=(), prefixes=None)
        write_drained(self._store, new)
        self._summary.add(new)

    def _is_heard_live(self) -> bool:
        """Whether engines are heard now: contents and copies are theirs, of this moment."""
        cursor = self._store.cursor()
        row = cursor.execute("SELECT bool_or(connected) FROM block_streams").fetchone()
        cursor.close()
        return bool(row and row[0])
