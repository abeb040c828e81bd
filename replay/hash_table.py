"""A hash table of 64-bit numbers that works on thousands of keys at a time.

A Python dictionary of a million block hashes takes 120 to 160 bytes an entry, most of it for the
numbers as objects, and a call for each. Here keys and values lie in two arrays, and all keys of a
call take each step together. Open addressing with linear probing; a removed entry leaves a mark
until the table is rebuilt.
"""

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Values = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

_EMPTY, _GONE = -1, -2
_GOLDEN = 0x9E3779B97F4A7C15
_LOW_64 = 2**64 - 1
_SMALLEST = 64
# Rebuilt when fuller than this, then to this many places an entry.
_FULL_RATIO = 0.65
_PLACES_PER_ENTRY = 2.5


class HashTable:
    """Unsigned 64-bit keys -> numbers from 0."""

    def __init__(self) -> None:
        self._clear(_SMALLEST)

    def __len__(self) -> int:
        return self._live

    @property
    def bytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    def find(self, keys: Keys) -> Values:
        """The value of every key, -1 where there is none."""
        return self.values_at(self.places(keys))

    def values_at(self, places: Places) -> Values:
        """The values at places that `places` gave, -1 for none."""
        return np.where(places >= 0, self._values[places], np.int32(-1))

    def get(self, key: int) -> int:
        """The value of one key, -1 if there is none; cheaper than `find` for one."""
        size = len(self._keys)
        place = (((key * _GOLDEN) & _LOW_64) >> 32) * size >> 32
        while (value := int(self._values[place])) != _EMPTY:
            if value >= 0 and int(self._keys[place]) == key:
                return value
            place = place + 1 if place + 1 < size else 0
        return -1

    def insert(self, keys: Keys, values: Values) -> None:
        """Add keys that are not there yet, each once. Values must differ from each other."""
        if self._live + self._gone + len(keys) > _FULL_RATIO * len(self._keys):
            self._rebuild(self._live + len(keys))
        self._place(keys, values)
        self._live += len(keys)

    def remove(self, keys: Keys) -> None:
        """Forget keys that are there, each once."""
        self.remove_at(self.places(keys))

    def remove_at(self, places: Places) -> None:
        """Forget what is at places that `places` gave since the last change."""
        self._values[places] = _GONE
        self._live -= len(places)
        self._gone += len(places)

    def items(self) -> tuple[Keys, Values]:
        """All keys and their values, in no order."""
        live = self._values >= 0
        return self._keys[live], self._values[live]

    def _clear(self, size: int) -> None:
        self._keys = np.zeros(size, np.uint64)
        self._values = np.full(size, _EMPTY, np.int32)
        self._live = self._gone = 0

    def _rebuild(self, entries: int) -> None:
        keys, values = self.items()
        self._clear(max(_SMALLEST, int(_PLACES_PER_ENTRY * entries)))
        self._place(keys, values)
        self._live = len(keys)

    def _home(self, keys: Keys) -> Places:
        mixed = (keys * np.uint64(_GOLDEN)) >> np.uint64(32)
        size = np.uint64(len(self._keys))
        return ((mixed * size) >> np.uint64(32)).astype(np.int64)

    def places(self, keys: Keys) -> Places:
        """Where each key lies, -1 where it does not."""
        here = self._home(keys)
        values = self._values[here]
        hit = (self._keys[here] == keys) & (values >= 0)
        result = np.where(hit, here, -1)
        going = (~hit & (values != _EMPTY)).nonzero()[0]
        here = here[going]
        while len(going):
            here = self._next(here)
            values = self._values[here]
            hit = (self._keys[here] == keys[going]) & (values >= 0)
            result[going[hit]] = here[hit]
            further = (~hit & (values != _EMPTY)).nonzero()[0]
            going, here = going[further], here[further]
        return result

    def _place(self, keys: Keys, values: Values) -> None:
        """Each key takes the first place from its home on that holds nothing. Where several reach
        for one place in the same step, the one that is read back has it."""
        here = self._home(keys)
        while len(keys):
            held = self._values[here]
            if self._gone:
                # Several may reach for one mark of a removed entry: it is used up once.
                self._gone -= len(np.unique(here[held == _GONE]))
            vacant = (held < 0).nonzero()[0]
            places, wanted = here[vacant], values[vacant]
            self._values[places] = wanted
            won = self._values[places] == wanted
            self._keys[places[won]] = keys[vacant[won]]
            lost = np.ones(len(keys), bool)
            lost[vacant[won]] = False
            keys, values, here = keys[lost], values[lost], self._next(here[lost])

    def _next(self, places: Places) -> Places:
        places = places + 1
        places[places == len(self._keys)] = 0
        return places
