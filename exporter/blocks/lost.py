"""Blocks lost of late: when, and under which name, to see which are wanted again or moved."""

import numpy as np

from exporter.blocks.ages import Seconds
from exporter.blocks.columns import Slots
from replay.hash_table import HashTable, Keys

_SMALLEST_GENERATION = 65_536


class _Generation:
    """Blocks in the order they were lost."""

    def __init__(self) -> None:
        self.table = HashTable()
        self.times = np.zeros(64)
        self.names = np.zeros(64, np.uint64)
        self.depths = np.zeros(64, np.int32)
        self.count = 0

    @property
    def bytes(self) -> int:
        columns = (self.times, self.names, self.depths)
        return self.table.bytes + sum(column.nbytes for column in columns)

    def append(self, hashes: Keys, times: Seconds, names: Keys, depths: Slots) -> None:
        end = self.count + len(hashes)
        if end > len(self.times):
            self.times = np.resize(self.times, 2 * end)
            self.names = np.resize(self.names, 2 * end)
            self.depths = np.resize(self.depths, 2 * end)
        self.times[self.count : end] = times
        self.names[self.count : end] = names
        self.depths[self.count : end] = depths
        self.table.insert(hashes, np.arange(self.count, end, dtype=np.int32))
        self.count = end


class Lost:
    """Two generations: when the younger is full, the older is forgotten. So a block is remembered
    for at least as many losses as a generation holds."""

    def __init__(self) -> None:
        self._young, self._old = _Generation(), _Generation()

    def __len__(self) -> int:
        return len(self._young.table) + len(self._old.table)

    @property
    def bytes(self) -> int:
        return self._young.bytes + self._old.bytes

    def add(
        self, hashes: Keys, times: Seconds, names: Keys, depths: Slots, resident_blocks: int
    ) -> None:
        """Remember blocks, each once in the call; an eighth of what is resident at most twice."""
        self.take(hashes)
        limit = max(_SMALLEST_GENERATION, resident_blocks // 8)
        if self._young.count and self._young.count + len(hashes) > limit:
            self._young, self._old = _Generation(), self._young
        self._young.append(hashes, times, names, depths)

    def take(self, hashes: Keys) -> Seconds:
        """When each was lost (NaN = not known), and forget it: a loss is wanted again once."""
        times = np.full(len(hashes), np.nan)
        for generation in (self._young, self._old):
            if not len(generation.table):
                continue
            places = generation.table.find(hashes)
            found = places >= 0
            times[found] = generation.times[places[found]]
            generation.table.remove(hashes[found])
        return times

    def times(self, hashes: Keys) -> Seconds:
        """When each was lost, NaN = not known."""
        times = np.full(len(hashes), np.nan)
        for generation in (self._old, self._young):
            places = generation.table.find(hashes)
            times[places >= 0] = generation.times[places[places >= 0]]
        return times

    def name_and_depth(self, block_hash: int) -> tuple[int, int] | None:
        """Our name of a block and its place in its prompt; None if it is not remembered."""
        for generation in (self._young, self._old):
            place = generation.table.get(block_hash)
            if place >= 0:
                return int(generation.names[place]), int(generation.depths[place])
        return None
