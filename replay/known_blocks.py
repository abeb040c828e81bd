"""Blocks as numbers, and what was known of them when: the tables behind the depths.

Every table is built once from all blocks of all requests and asked for all of them at once.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replay.timeline import NEVER, Timeline
from replay.traffic import Flags, Names, Numbers, Small

# A table with an entry for every possible key is the fastest, up to this many entries.
_DENSE_KEYS = 1 << 25
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(names: Names) -> Names:
    """Scatter 64-bit names so that sums and sequences of them do not collide."""
    names = (names ^ (names >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    names = (names ^ (names >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return names ^ (names >> np.uint64(31))


def within(names: Names, space: npt.NDArray[np.integer]) -> Names:
    """Names that mean the same in one space only. `space`: a number from 0 for each name."""
    return mixed(names + _GOLDEN * space.astype(np.uint64))


def numbered(names: Names) -> tuple[Small, int]:
    """Numbers from 0 for names, in the order in which they appear, and how many there are."""
    numbers = pa.array(names).dictionary_encode()
    return numbers.indices.to_numpy(), len(numbers.dictionary)


class Firsts:
    """The smallest value that was given to each key."""

    def __init__(
        self, keys: npt.NDArray[np.integer], values: npt.NDArray[np.integer], key_count: int
    ) -> None:
        self._names: Numbers | None = None
        if key_count > _DENSE_KEYS:
            self._names, places = np.unique(keys, return_inverse=True)
            keys, key_count = places, len(self._names)
        self._values = np.full(key_count, NEVER, np.int32)
        np.minimum.at(self._values, keys, values.astype(np.int32, copy=False))

    def of(self, keys: npt.NDArray[np.integer]) -> Small:
        """NEVER for a key that was given nothing."""
        if self._names is None:
            values: Small = self._values[keys]
            return values
        if not len(self._names):
            return np.full(len(keys), NEVER, np.int32)
        places = np.searchsorted(self._names, keys).clip(max=len(self._names) - 1)
        found: Small = np.where(self._names[places] == keys, self._values[places], NEVER)
        return found

    def entries(self) -> tuple[Numbers, Small]:
        """The keys that were given something, and its smallest."""
        places = np.flatnonzero(self._values < NEVER)
        keys = places if self._names is None else self._names[places]
        return keys, self._values[places]


class Spans:
    """Spans of requests during which a key holds: from `since` until before `until`."""

    def __init__(self, keys: Numbers, since: Small, until: Small, requests: int) -> None:
        self._width = requests + 2
        begins = keys * self._width + np.minimum(since, requests + 1)
        order = np.argsort(begins)
        self._begins = begins[order]
        ends = keys * self._width + np.minimum(until, requests + 1)
        # Keys ascend, so the running maximum starts anew with each.
        self._ends = np.maximum.accumulate(ends[order]) if len(order) else ends
        self._keys = keys[order]

    def hold(self, keys: Numbers, at: npt.NDArray[np.integer]) -> Flags:
        """Is there a span of each key that holds at that request?"""
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_)
        moments = keys * self._width + at
        places = np.searchsorted(self._begins, moments, side="right") - 1
        holds: Flags = (places >= 0) & (self._keys[places] == keys)
        holds &= self._ends[places] > moments
        return holds


@dataclass(frozen=True)
class Blocks:
    """The blocks of all requests in the order of look-ups: `block` is a number, `owner` the
    request it belongs to."""

    block: Small
    owner: Small
    starts: Numbers
    count: int

    @classmethod
    def of(cls, names: Names, starts: Numbers) -> "Blocks":
        """From the names of blocks, and where those of each request begin."""
        block, count = numbered(names)
        owner = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        return cls(block, owner, starts, count)

    def places(self) -> Small:
        """The place of each block in its chain, from 0."""
        begins = self.starts[:-1].astype(np.int32)
        return np.arange(len(self.block), dtype=np.int32) - begins[self.owner]

    def picked(self, keep: Flags) -> "Blocks":
        """Only these blocks."""
        ahead = np.zeros(len(keep) + 1, np.int64)
        np.cumsum(keep, out=ahead[1:])
        return Blocks(self.block[keep], self.owner[keep], ahead[self.starts], self.count)


@dataclass(frozen=True)
class Sightings:
    """Blocks that became available on a replica during a stay, for requests from `since` on."""

    block: Small | Numbers
    stay: Numbers
    since: Small

    @classmethod
    def none(cls) -> "Sightings":
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))

    def with_others(self, others: "Sightings") -> "Sightings":
        if not len(others.block):
            return self
        return Sightings(
            np.concatenate([self.block, others.block]),
            np.concatenate([self.stay, others.stay]),
            np.concatenate([self.since, others.since]),
        )

    def firsts(self, timeline: Timeline, block_count: int) -> Firsts:
        """Since when each block is available during each stay; key: block × stays + stay."""
        stays = len(timeline.stay_replica)
        keys = self.block.astype(np.int64) * stays + self.stay
        return Firsts(keys, self.since, block_count * stays)
