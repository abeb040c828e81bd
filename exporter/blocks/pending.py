"""Operations on the blocks of one cache that wait to be applied together.

A numpy call costs as much for one block as for a hundred, so operations gather until there are
some thousands. Applied together they must come to the same as one by one: a piece that is applied
at once holds no block twice, unless all it says of it is that it was stored.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exporter.blocks.ages import Seconds
from exporter.blocks.columns import Slots
from exporter.blocks.wire import Hash, unsigned
from replay.hash_table import Keys, Places

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Operations:
    """What happened to blocks, in order. Arrays of one length.

    `stores`: stored, else removed. `linked`: has a parent, whose hash is in `parents`. `inner`:
    that parent is the block before it in its event.
    """

    hashes: Keys
    times: Seconds
    stores: Flags
    linked: Flags
    inner: Flags
    parents: Keys
    names: Keys
    depths: Slots

    def pieces(self) -> Iterator[tuple["Operations", bool]]:
        """The same in pieces none of which removes a block it holds a second time, and whether
        any stores a block twice."""
        order = np.argsort(self.hashes, kind="stable")
        ranked = self.hashes[order]
        again = (ranked[1:] == ranked[:-1]).nonzero()[0]
        start = 0
        for cut in [*self._cuts(order[again + 1], order[again]), len(self.hashes)]:
            part = slice(start, cut)
            fields = (getattr(self, name)[part] for name in self.__dataclass_fields__)
            yield Operations(*fields), bool(len(again))
            start = cut

    def _cuts(self, later: Places, before: Places) -> list[int]:
        """Where to cut between two places of one block of which one is a removal."""
        mixed = ~(self.stores[later] & self.stores[before])
        later, before = later[mixed], before[mixed]
        cuts: list[int] = []
        start = 0
        for number in np.argsort(later).tolist():
            if before[number] >= start:
                start = int(later[number])
                cuts.append(start)
        return cuts


class Pending:
    """Gathers operations; `take` hands them over."""

    def __init__(self, named: bool) -> None:
        self._named = named
        self._reset()

    def __len__(self) -> int:
        return len(self._hashes)

    def _reset(self) -> None:
        self._hashes: list[Hash] = []
        # By event: where its blocks begin, time, whether it stores, parent (None = none), whether
        # a chain.
        self._starts: list[int] = []
        self._times: list[float] = []
        self._stores: list[bool] = []
        self._parents: list[int | None] = []
        self._chained: list[bool] = []
        self._names = array("Q")
        self._depths: list[int] = []

    def removing(self, ts: float) -> list[Hash]:
        """Where to add hashes that were removed at this time, until anything else is said.
        Engines publish removals one by one; this takes a run of them for one event."""
        self._event(ts, stores=False)
        return self._hashes

    def store(
        self,
        hashes: Sequence[Hash],
        ts: float,
        parent: int | None,
        chained: bool = True,
        names: "array[int] | None" = None,
        depth: int = 0,
    ) -> None:
        """`chained`: each block is the parent of the next; `depth`: that of the first block, 0 =
        not known; `names`: of all, None = of none."""
        self._event(ts, True, parent, chained, depth)
        self._hashes += hashes
        if self._named:
            self._names.extend(array("Q", bytes(8 * len(hashes))) if names is None else names)

    def _event(
        self,
        ts: float,
        stores: bool,
        parent: int | None = None,
        chained: bool = False,
        depth: int = 0,
    ) -> None:
        if self._starts and self._starts[-1] == len(self._hashes):
            # The event before named no block: what was noted of it would only pile up.
            self._forget_event()
        self._starts.append(len(self._hashes))
        self._times.append(ts)
        self._stores.append(stores)
        self._parents.append(parent)
        self._chained.append(chained)
        self._depths.append(depth)

    def _forget_event(self) -> None:
        noted = (self._starts, self._times, self._stores, self._parents, self._chained)
        for column in (*noted, self._depths):
            column.pop()

    def take(self) -> Operations:
        """All that waited, and nothing waits any more."""
        starts = np.array(self._starts, np.int64)
        counts = np.diff(starts, append=len(self._hashes))
        event = np.repeat(np.arange(len(starts)), counts)
        hashes = np.frombuffer(unsigned(self._hashes), np.uint64)
        stores = np.array(self._stores, bool)[event]
        first = np.zeros(len(hashes), bool)
        first[starts[counts > 0]] = True
        inner = stores & ~first & np.array(self._chained)[event]
        has_parent = np.array([parent is not None for parent in self._parents])
        outer = np.array([parent or 0 for parent in self._parents], np.uint64)
        parents = np.where(inner, np.roll(hashes, 1), outer[event])
        names, depths = self._names_and_depths(event, starts, stores)
        operations = Operations(
            hashes=hashes,
            times=np.array(self._times)[event],
            stores=stores,
            linked=inner | (first & has_parent[event]),
            inner=inner,
            parents=parents,
            names=names,
            depths=depths,
        )
        self._reset()
        return operations

    def _names_and_depths(
        self, event: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], stores: Flags
    ) -> tuple[Keys, Slots]:
        names = np.zeros(len(event), np.uint64)
        if not self._named:
            return names, np.zeros(len(event), np.int32)
        names[stores] = np.frombuffer(self._names, np.uint64)
        depths = np.array(self._depths, np.int64)[event]
        offsets = np.arange(len(event)) - starts[event]
        return names, np.where(depths > 0, depths + offsets, 0).astype(np.int32)
