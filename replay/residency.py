"""What caches held and when, from what their events told, one batch after the other."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from replay.traffic import Moments, Numbers, Stays, Traffic

# Of a block whose chain name is not known.
NO_NAME = 0


@dataclass
class _Held:
    """One block in one cache: when it came, and how many copies there are."""

    name: int
    since: float
    copies: int = 1


@dataclass
class _Cache:
    """One replica's cache, all tiers; keys are the engine's own (tier, hash)."""

    held: dict[tuple[str, int], _Held] = field(default_factory=dict)
    last_seconds: float = -np.inf


class ResidencyBook:
    """Writes down from when until when each replica held each block.

    Batches of a replica come in order; `seconds` are of its publisher's clock, which must be that
    of the requests. A block that is stored again while it is there is one more copy.
    """

    def __init__(self) -> None:
        self._caches: defaultdict[int, _Cache] = defaultdict(_Cache)
        # Name, replica, since when and until when it was there.
        self._ended: list[tuple[int, int, float, float]] = []
        self._resets: list[tuple[int, float]] = []

    def name_of(self, replica: int, block: tuple[str, int]) -> int:
        """The name of a block that is there; NO_NAME of any other."""
        held = self._caches[replica].held.get(block)
        return NO_NAME if held is None else held.name

    def store(
        self, replica: int, seconds: float, blocks: Sequence[tuple[str, int]], names: Sequence[int]
    ) -> None:
        """Blocks came; `names` are chain names, NO_NAME where none is known."""
        held = self._caches[replica].held
        for block, name in zip(blocks, names, strict=True):
            if block in held:
                held[block].copies += 1
            else:
                held[block] = _Held(name, seconds)

    def remove(self, replica: int, seconds: float, blocks: Sequence[tuple[str, int]]) -> None:
        """A copy of each block was lost; one that was never told of changes nothing."""
        cache = self._caches[replica]
        for block in blocks:
            if (held := cache.held.get(block)) is None:
                continue
            held.copies -= 1
            if not held.copies:
                del cache.held[block]
                self._end(replica, held, seconds)

    def end_batch(self, replica: int, seconds: float) -> None:
        """All of a batch was told."""
        cache = self._caches[replica]
        cache.last_seconds = max(cache.last_seconds, seconds)

    def reset(self, replica: int) -> None:
        """Everything was lost: a clear, or another process. It was told with the batch after it,
        so it took effect at the end of the one before; nothing is known of an earlier time."""
        cache = self._caches[replica]
        if cache.last_seconds == -np.inf:
            return
        for held in cache.held.values():
            self._end(replica, held, cache.last_seconds)
        cache.held.clear()
        self._resets.append((replica, cache.last_seconds))

    def _end(self, replica: int, held: _Held, seconds: float) -> None:
        if held.name != NO_NAME:
            self._ended.append((held.name, replica, held.since, seconds))

    def told(self) -> tuple[Stays, Moments]:
        """All stays so far, those that last included, and all resets."""
        rows = list(self._ended)
        for replica, cache in self._caches.items():
            rows += [
                (held.name, replica, held.since, np.inf)
                for held in cache.held.values()
                if held.name != NO_NAME
            ]
        stays = Stays(
            np.array([row[0] for row in rows], np.uint64),
            np.array([row[1] for row in rows], np.int64),
            np.array([row[2] for row in rows], np.float64),
            np.array([row[3] for row in rows], np.float64),
            np.zeros(len(rows), np.int64),
        )
        return stays, Moments.of(self._resets)


def replicas_by_events(traffic: Traffic, stays: Stays) -> Numbers:
    """Which replica served each request, by the blocks that came while it ran; -1 where none did.

    Where ranks share an address a log does not say which of them served a request; the blocks it
    computed first appear in that rank's events. Requests of the same blocks at the same time
    cannot be told apart by this.
    """
    if traffic.looked_up is None or traffic.ended is None:
        raise ValueError("requests need times of look-up and end to be found in events")
    came: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for name, replica, since in zip(
        stays.names.tolist(), stays.replica.tolist(), stays.since.tolist(), strict=True
    ):
        came[name].append((since, replica))
    starts, names = traffic.chains.starts.tolist(), traffic.chains.names
    return np.array(
        [
            _first_to_come(came, names[starts[row] : starts[row + 1]].tolist(), begin, end)
            for row, (begin, end) in enumerate(
                zip(traffic.looked_up.tolist(), traffic.ended.tolist(), strict=True)
            )
        ],
        np.int64,
    )


def _first_to_come(
    came: dict[int, list[tuple[float, int]]], chain: list[int], begin: float, end: float
) -> int:
    """The replica on which a block of the chain came within a time; of several the first."""
    found = [
        (since, replica)
        for name in chain
        for since, replica in came.get(name, ())
        if begin <= since <= end
    ]
    return min(found)[1] if found else -1
