"""A set of 64-bit names that takes thousands at a time, 12 to 20 bytes a name.

Like `hash_table.HashTable` without values: for what is only asked whether it was there. Nothing is
taken out of it; a set that has grown old is dropped as a whole.
"""

import numpy as np

from replay.known_blocks import GOLDEN
from replay.traffic import Flags, Names, Numbers

# Stands for "nothing here"; a name of that value is kept as another one, which costs a chance of
# one in 2^64 of taking two names for one.
_NOTHING = np.uint64(0)
_ITS_STAND_IN = np.uint64(1)
_SMALLEST = 64
# Rebuilt when fuller than this, then to this many places a name.
_FULL_RATIO = 0.65
_PLACES_PER_NAME = 2.2


class NameSet:
    """Names that were added. An empty call is none."""

    def __init__(self) -> None:
        self._names = np.zeros(_SMALLEST, np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        return self._names.nbytes

    def has(self, names: Names) -> Flags:
        """Which of them were added."""
        names = _storable(names)
        place = self._home(names)
        there = self._names[place]
        found: Flags = there == names
        going = np.flatnonzero(~found & (there != _NOTHING))
        place = place[going]
        while len(going):
            place = self._next(place)
            there = self._names[place]
            hit = there == names[going]
            found[going[hit]] = True
            further = ~hit & (there != _NOTHING)
            going, place = going[further], place[further]
        return found

    def add(self, names: Names) -> Names:
        """Add them, each any number of times; those that were not there yet, each once."""
        names = _storable(names)
        fresh: Names = np.unique(names[~self.has(names)])
        if self._count + len(fresh) > _FULL_RATIO * len(self._names):
            self._rebuild(self._count + len(fresh))
        self._place(fresh)
        self._count += len(fresh)
        return fresh

    def _rebuild(self, count: int) -> None:
        names = self._names[self._names != _NOTHING]
        self._names = np.zeros(max(_SMALLEST, int(_PLACES_PER_NAME * count)), np.uint64)
        self._place(names)

    def _place(self, names: Names) -> None:
        """Each takes the first free place from its home on. Where several reach for one in the
        same step, the one that is read back has it."""
        place = self._home(names)
        while len(names):
            free = np.flatnonzero(self._names[place] == _NOTHING)
            self._names[place[free]] = names[free]
            lost = self._names[place] != names
            names, place = names[lost], self._next(place[lost])

    def _home(self, names: Names) -> Numbers:
        upper = (names * GOLDEN) >> np.uint64(32)
        home: Numbers = ((upper * np.uint64(len(self._names))) >> np.uint64(32)).astype(np.int64)
        return home

    def _next(self, places: Numbers) -> Numbers:
        places = places + 1
        places[places == len(self._names)] = 0
        return places


def _storable(names: Names) -> Names:
    return np.where(names == _NOTHING, _ITS_STAND_IN, names)
