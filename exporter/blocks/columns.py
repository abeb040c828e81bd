"""What is kept of every resident block, a number a column; and which numbers are free."""

from typing import Any

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int32]

# Bits of `flags`.
HAS_CHILD = 1
REUSED = 2

_KINDS: dict[str, type[np.generic]] = {
    "stored": np.float64,
    "touched": np.float64,
    "parent": np.int32,
    "copies": np.int32,
    "flags": np.uint8,
}
# Only where blocks have names of our own.
_NAMED_KINDS: dict[str, type[np.generic]] = {"name": np.uint64, "depth": np.int32}
_SMALLEST = 64
_GROWTH_RATIO = 1.25


class Columns:
    """`stored`, `touched`: seconds; `parent`: slot of the block before, -1 if it is not known;
    `copies`: blocks of memory that hold it; `name`: ours, 0 = none; `depth`: its 1-based place
    in its prompt, 0 = not known."""

    def __init__(self, named: bool) -> None:
        self.stored: npt.NDArray[np.float64]
        self.touched: npt.NDArray[np.float64]
        self.parent: Slots
        self.copies: Slots
        self.flags: npt.NDArray[np.uint8]
        self.name: npt.NDArray[np.uint64]
        self.depth: Slots
        self._kinds = _KINDS | (_NAMED_KINDS if named else {})
        for name, kind in self._kinds.items():
            setattr(self, name, np.zeros(_SMALLEST, kind))
        self._free = np.zeros(_SMALLEST, np.int32)
        self._free_count = 0
        self._used = 0

    @property
    def bytes(self) -> int:
        arrays: list[npt.NDArray[Any]] = [getattr(self, name) for name in self._kinds]
        return sum(array.nbytes for array in arrays) + self._free.nbytes

    def take(self, count: int) -> Slots:
        """So many slots that hold nothing."""
        reused = min(count, self._free_count)
        slots = np.empty(count, np.int32)
        self._free_count -= reused
        slots[:reused] = self._free[self._free_count : self._free_count + reused]
        fresh = count - reused
        if self._used + fresh > len(self.stored):
            self._grow(self._used + fresh)
        slots[reused:] = np.arange(self._used, self._used + fresh)
        self._used += fresh
        return slots

    def give(self, slots: Slots) -> None:
        """These hold nothing any more."""
        end = self._free_count + len(slots)
        if end > len(self._free):
            self._free.resize(int(end * _GROWTH_RATIO), refcheck=False)
        self._free[self._free_count : end] = slots
        self._free_count = end

    def parents(self, slots: Slots) -> Slots:
        """The slots of their parents, -1 where there is none. A slot that was given to another
        block since is younger than the child."""
        parents = self.parent[slots]
        known = parents >= 0
        known[known] = self.copies[parents[known]] > 0
        known[known] = self.stored[parents[known]] <= self.stored[slots[known]]
        return np.where(known, parents, np.int32(-1)).astype(np.int32)

    def _grow(self, needed: int) -> None:
        """In place, so that no second copy is ever held; nobody keeps a view of a column."""
        for name in self._kinds:
            getattr(self, name).resize(int(needed * _GROWTH_RATIO), refcheck=False)
