"""The numbers of a stream of batches: what may be applied, what is missing, what came before.

A publisher numbers its batches from 0 and begins anew when its process does. It drops batches
without a word when it cannot send them, and a replay sends some of them again. A number alone
does not tell a repetition from a new beginning, so a digest of every batch of late is kept.
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum

# Batches remembered; more than the 10,000 that publishers keep for a replay by default.
_REMEMBERED = 16_384
_END_BYTES = 64
_LOW_64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class StreamName:
    """One publisher: `source` is the configured name, `replica` the engine's name without the
    data-parallel rank.

    Every publisher has a name of its own. Where several ranks of a replica share a source, `rank`
    tells them apart; without it the rank is taken from the batches, and enters the name as soon
    as two of them were heard. `model_fingerprint`: the version of the weights that the taps of the
    engine state, which is part of the scope of its blocks.
    """

    source: str
    replica: str
    model: str | None = None
    rank: int | None = None
    model_fingerprint: str | None = None


class Heard(Enum):
    """What became of a batch.

    APPLIED: it is part of the state. REPEATED: it was already; nothing changed. GAP: batches are
    missing before it; it was not applied. RESTARTED: the publisher began anew; the state before
    is dropped, and the batch applied unless batches are missing before it. UNREADABLE: its number
    was right, its content was not; nothing of it was applied.
    """

    APPLIED = "applied"
    REPEATED = "repeated"
    GAP = "gap"
    RESTARTED = "restarted"
    UNREADABLE = "unreadable"


def digest(payload: bytes) -> int:
    """Tells batches apart: by their length and both ends, of which the first has the time. Never
    0; stays in memory."""
    return hash((len(payload), payload[:_END_BYTES], payload[-_END_BYTES:])) & _LOW_64 or 1


@dataclass
class Order:
    """Where one stream stands. `last` is the number applied last, None before the first."""

    last: int | None = None
    waiting: int | None = None  # the batch that came too early
    given_up: bool = False
    _digests: "array[int]" = field(default_factory=lambda: array("Q", bytes(8)), repr=False)

    @property
    def expected(self) -> int:
        return 0 if self.last is None else self.last + 1

    @property
    def missing(self) -> range:
        """The numbers missing before the batch that came too early; empty if none is waiting."""
        return range(self.expected, self.waiting or 0)

    def place(self, sequence: int, mark: int, replayed: bool) -> Heard:
        """Decide what a batch is, and take its number where it may be applied.

        GAP, and RESTARTED with something `missing`, leave it waiting.
        """
        if sequence < self.expected:
            known = self._digest(sequence)
            # Of a batch too old to be remembered only the way it came tells what it is.
            if known == mark or (not known and replayed):
                return Heard.REPEATED
            self.begin_anew()
            self._take(sequence, mark)
            return Heard.RESTARTED
        return Heard.APPLIED if self._take(sequence, mark) else Heard.GAP

    def give_up(self) -> None:
        """The missing batches will not come: the next one may be applied without them."""
        self.given_up = True

    def begin_anew(self) -> None:
        """The publisher's process is another one: it counts from 0."""
        self.last = self.waiting = None
        self.given_up = False
        self._digests = array("Q", bytes(8))

    def _take(self, sequence: int, mark: int) -> bool:
        if sequence != self.expected and not self.given_up:
            self.waiting = sequence
            return False
        for skipped in range(max(self.expected, sequence - _REMEMBERED), sequence):
            self._remember(skipped, 0)
        self._remember(sequence, mark)
        self.last, self.given_up = sequence, False
        if not self.missing:
            self.waiting = None
        return True

    def _remember(self, sequence: int, mark: int) -> None:
        """Room grows as batches come: most streams of tests and small engines stay short."""
        place = sequence % _REMEMBERED
        while place >= len(self._digests):
            self._digests.extend(bytes(len(self._digests)))
        self._digests[place] = mark

    def _digest(self, sequence: int) -> int:
        if self.last is None or sequence <= self.last - _REMEMBERED:
            return 0
        place = sequence % _REMEMBERED
        return self._digests[place] if place < len(self._digests) else 0
