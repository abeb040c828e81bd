"""What the store has of recorded streams: taken again, it is not counted again.

A recording is compared by the time its messages came, stream by stream. That proves nothing if the
file is another stream's, such as another rank's, so the message the store has last must be in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from exporter.blocks.order import StreamName
from exporter.blocks.rows import Drained, Renamed
from exporter.errors import PrefixscopeError
from exporter.sources.events.recorded_lines import Recorded
from exporter.store.store import Store
from queries.times import as_utc

# The store keeps microseconds, messages have fractions of them.
_SAME_SECONDS = 5e-6


class _Head(msgspec.Struct, array_like=True, gc=False):
    """As much of a batch as tells it from others."""

    ts: float
    events: msgspec.Raw = msgspec.Raw()
    rank: int | None = None


class _Row(Protocol):
    @property
    def replica(self) -> str:
        """The name of the stream it is of."""
        ...


_R = TypeVar("_R", bound=_Row)


@dataclass
class _Known:
    """Up to when messages of a stream are known, and which is the last of them."""

    until: datetime
    last_ts: float | None
    messages: int = 0
    last_is_met: bool = False


class KnownRecordings:
    """The streams of one replica that the store has, and what of a recording is new to it."""

    def __init__(self, store: Store, source: str, replica: str) -> None:
        self._source = source
        self._replica = replica
        self._renamed: list[Renamed] = []
        cursor = store.cursor()
        found = cursor.execute(
            """SELECT replica, max(last_heard), max_by(last_batch_ts, last_heard)
            FROM block_streams
            WHERE source = $source AND last_heard IS NOT NULL AND (
                replica = $replica OR starts_with(replica, $replica || '/')
                OR starts_with(replica, $replica || '@'))
            GROUP BY replica ORDER BY replica""",
            {"source": source, "replica": replica},
        ).fetchall()
        cursor.close()
        self._known = {name: _Known(as_utc(until), _unix(last)) for name, until, last in found}

    @property
    def has_ranks_only(self) -> bool:
        """Whether the replica is known by its ranks, and not by its plain name."""
        ranked = any(name.startswith(f"{self._replica}/") for name in self._known)
        return ranked and self._replica not in self._known

    def goes_on_as(self, stream: StreamName) -> None:
        """What was known by the plain name is that stream's past: now there are several ranks."""
        before, now = self._replica, name_of(stream)
        if before in self._known and now not in self._known:
            self._known[now] = self._known.pop(before)
            self._renamed = [Renamed(self._source, stream.model, before, now)]

    def is_known(self, stream: StreamName, line: Recorded) -> bool:
        """Whether the store has this message."""
        known = self._known.get(name_of(stream))
        if known is None or line.at > known.until:
            return False
        known.messages += 1
        if not known.last_is_met:
            known.last_is_met = known.last_ts is None or _is_at(line, known.last_ts)
        return True

    def part(self, at: datetime) -> tuple[bool, ...]:
        """Which streams are known at a moment."""
        return tuple(at <= known.until for known in self._known.values())

    def new(self, drained: Drained, at: datetime, *, is_end: bool = False) -> Drained | None:
        """What is to be written of what was heard until `at`, no part of which lies in two
        `part`s. None = nothing. A stream gets its new name with its first new row, at the end at
        the latest.

        PrefixscopeError where what seemed known is another stream's.
        """
        self._prove(at)
        due = [each for each in self._renamed if is_end or self._is_new(each.now, at)]
        self._renamed = [each for each in self._renamed if each not in due]
        named_now = {each.now for each in due}
        streams = [
            row
            for row in drained.streams
            if self._is_new(row.replica, at) or row.replica in named_now
        ]
        if not streams:
            return None
        return replace(
            drained,
            minutes=self._new(drained.minutes, at),
            resets=self._new(drained.resets, at),
            streams=streams,
            renamed=[*drained.renamed, *due],
        )

    def prove(self) -> None:
        """At the end of a recording: the same as in `new`, of all streams."""
        self._prove(None)

    def _new(self, rows: Sequence[_R], at: datetime) -> Sequence[_R]:
        return [row for row in rows if self._is_new(row.replica, at)]

    def _is_new(self, name: str, at: datetime) -> bool:
        return name not in self._known or at > self._known[name].until

    def _prove(self, at: datetime | None) -> None:
        for name, known in self._known.items():
            is_past = at is None or at > known.until
            if is_past and known.messages and not known.last_is_met:
                raise PrefixscopeError(
                    f"the store has events of replica {name} until {known.until:%Y-%m-%d %H:%M:%S} "
                    f"UTC, and the last of them is not among these {known.messages:,} older ones: "
                    "they are another stream's, such as another rank's, or of a recording before "
                    "it. Give the file of each rank a folder of its own, which names the replica, "
                    "or record all ranks in one file; take older recordings first"
                )


def name_of(stream: StreamName) -> str:
    """The name of a stream's rows."""
    return stream.replica if stream.rank is None else f"{stream.replica}/{stream.rank}"


def rank_of(line: Recorded) -> int | None:
    """The data-parallel rank a batch states; None where it does not, or cannot be read."""
    head = _head(line)
    return None if head is None else head.rank


def _is_at(line: Recorded, ts: float) -> bool:
    head = _head(line)
    return head is not None and abs(head.ts - ts) < _SAME_SECONDS


def _head(line: Recorded) -> _Head | None:
    try:
        return _HEAD.decode(line.batch.payload)
    except (msgspec.DecodeError, RecursionError):
        return None


def _unix(moment: datetime | None) -> float | None:
    return None if moment is None else as_utc(moment).timestamp()


_HEAD = msgspec.msgpack.Decoder(_Head)
