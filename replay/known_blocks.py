"""Blocks as numbers, and what was known of them when: the tables behind the depths.

Every table is built once from all blocks of all requests and asked for all of them at once.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from replay.timeline import NEVER, Timeline
from replay.traffic import Flags, Names, Numbers, Small

# A table with an entry for every possible key is the fastest, up to this many entries.
_DENSE_KEYS = 1 << 25
# Times 1, 2, 3, … it spreads evenly over 64 bits.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(names: Names) -> Names:
    """Scatter 64-bit names so that sums and sequences of them do not collide."""
    names = names ^ (names >> np.uint64(30))
    names *= np.uint64(0xBF58476D1CE4E5B9)
    names ^= names >> np.uint64(27)
    names *= np.uint64(0x94D049BB133111EB)
    names ^= names >> np.uint64(31)
    return names


def within(names: Names, space: npt.NDArray[np.integer]) -> Names:
    """Names that mean the same in one space only. `space`: a number from 0 for each name."""
    return mixed(names + GOLDEN * space.astype(np.uint64))


def numbered(names: Names) -> tuple[Small, int]:
    """Numbers from 0 for names, in the order in which they appear, and how many there are."""
    if not len(names):
        return np.empty(0, np.int32), 0
    first = _first_places(names)
    is_new = first == np.arange(len(names), dtype=np.int32)
    numbers = np.cumsum(is_new, dtype=np.int32)
    numbers -= 1
    return numbers[first], int(numbers[-1]) + 1


def _first_places(names: Names) -> Small:
    """Where each name stands for the first time.

    Names are hashes, so their lower bits spread them over a table in which few share a slot: a
    table with a place for each slot finds nearly all; what is in the way of others is scattered
    anew and gets a table of its own.
    """
    slots = 1 << (2 * len(names) - 1).bit_length()
    slot = (names & np.uint64(slots - 1)).astype(np.int32)
    table = np.empty(slots, np.int32)  # only slots that were written are read
    # What is written last stays: the first of each slot.
    table[slot[::-1]] = np.arange(len(names) - 1, -1, -1, dtype=np.int32)
    first = table[slot]
    del slot, table  # most of the memory there is at this point
    in_the_way = np.flatnonzero(names[first] != names)
    if len(in_the_way):
        others = _first_places(mixed(names[in_the_way]))
        first[in_the_way] = in_the_way[others]
    return first


def paired(left: Small | Numbers, right: Small | Numbers, right_count: int) -> Small | Numbers:
    """One number for each pair of numbers; of 32 bits where that is room enough."""
    most = int(left.max(initial=0)) + 1
    if most * right_count < 2**31:
        small: Small = left.astype(np.int32) * np.int32(right_count)
        small += right.astype(np.int32, copy=False)
        return small
    return left.astype(np.int64) * right_count + right


def renumbered(blocks: Small, block_count: int) -> tuple[Small, int]:
    """New numbers from 0 for these blocks, -1 for all others, and how many there are."""
    wanted = np.zeros(block_count, np.bool_)
    wanted[blocks] = True
    numbers = np.cumsum(wanted, dtype=np.int32)
    numbers -= 1
    count = int(numbers[-1]) + 1 if block_count else 0
    numbers[~wanted] = -1
    return numbers, count


class Firsts:
    """The smallest value that was given to each key."""

    def __init__(self, keys: Small | Numbers, values: Small, key_count: int) -> None:
        self._names: Numbers | None = None
        if key_count > _DENSE_KEYS:
            self._names, places = np.unique(keys, return_inverse=True)
            keys, key_count = places, len(self._names)
        self._values = np.full(key_count, NEVER, np.int32)
        np.minimum.at(self._values, keys, values)

    def of(self, keys: Small | Numbers) -> Small:
        """NEVER for a key that was given nothing."""
        if self._names is None:
            values: Small = self._values[keys]
            return values
        if not len(self._names):
            return np.full(len(keys), NEVER, np.int32)
        places = np.searchsorted(self._names, keys).clip(max=len(self._names) - 1)
        found: Small = np.where(self._names[places] == keys, self._values[places], NEVER)
        return found


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

    def renamed(self, names: Names) -> "Blocks":
        """The same blocks by other names, of which each block has but one."""
        here = np.zeros(int(self.block.max(initial=-1)) + 1, np.int32)
        here[self.block[::-1]] = np.arange(len(self.block) - 1, -1, -1, dtype=np.int32)
        numbers, count = numbered(names[here])
        return Blocks(numbers[self.block], self.owner, self.starts, count)

    def apart(self, space: Numbers) -> "Blocks":
        """The same blocks kept apart by a number from 0 of their request."""
        spaces = int(space.max(initial=0)) + 1
        if spaces == 1:
            return self
        if self.count * spaces < _DENSE_KEYS:
            block = paired(self.block, space[self.owner], spaces).astype(np.int32, copy=False)
            return Blocks(block, self.owner, self.starts, self.count * spaces)
        names = within(self.block.astype(np.uint64), space[self.owner])
        return Blocks.of(names, self.starts)

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

    block: Small
    stay: Small
    since: Small

    @classmethod
    def none(cls) -> "Sightings":
        return cls(*(np.empty(0, np.int32) for _ in range(3)))

    def with_others(self, others: "Sightings") -> "Sightings":
        if not len(others.block):
            return self
        if not len(self.block):
            return others
        return Sightings(
            np.concatenate([self.block, others.block]),
            np.concatenate([self.stay, others.stay]),
            np.concatenate([self.since, others.since]),
        )

    def of_blocks(self, numbers: Small) -> "Sightings":
        """Only those of blocks that have a new number, by that."""
        block = numbers[self.block]
        kept = np.flatnonzero(block >= 0)
        return Sightings(block[kept], self.stay[kept], self.since[kept])

    def firsts(self, timeline: Timeline, block_count: int) -> Firsts:
        """Since when each block is available during each stay; key: block × stays + stay."""
        stays = len(timeline.stay_replica)
        return Firsts(paired(self.block, self.stay, stays), self.since, block_count * stays)
