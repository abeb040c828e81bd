"""One cache: which blocks it holds, since when, and what becomes of them.

Two blocks of memory may hold the same content, so a hash is counted: it is lost with its last
copy. When a block was used last is known from the requests that named it and from the blocks
stored behind it: engines give up the end of a prompt before its beginning, so a block that is
lost hands its last use on to its parent, instead of every block touching all before it.
"""

import math
from collections import deque
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from exporter.blocks.ages import Seconds, Tally
from exporter.blocks.columns import HAS_CHILD, REUSED, Columns, Slots
from exporter.blocks.lost import Lost
from exporter.blocks.pending import Flags, Operations, Pending
from replay.hash_table import HashTable, Keys

# How long after a block left a tier it may turn up in a lower one: a copy under way.
DEMOTION_WINDOW_SECONDS = 10.0


class Residency:
    """The state of one tier (and group) of one replica. Times are seconds since the epoch.

    `named`: whether blocks have names of our own. Operations gather in `pending` and are applied
    by `flush`; figures are right after one. `unknown_removals` counts removals of blocks that
    were not there, which shows that events were missed. `live`: what is applied happened just
    now. What left is remembered for `remember_seconds`, to tell what was held a while ago.
    """

    def __init__(self, named: bool, remember_seconds: float = 0.0) -> None:
        self.named = named
        self._remember_seconds = remember_seconds
        # Of what left: name, since when it was here, until when.
        self._left: deque[tuple[Keys, Seconds, Seconds]] = deque()
        self.block_size: int | None = None
        self.pending = Pending(named)
        self.resident_blocks = 0
        self.unknown_removals = 0
        # From this moment on requests would tell of a reuse.
        self.uses_known_since = math.inf
        self.live = True
        # By minute, and whether it was heard when it happened.
        self.tallies: dict[tuple[int, bool], Tally] = {}
        self._now = 0.0
        self._heard: datetime | None = None
        self._undecided: list[tuple[Keys, Seconds]] = []
        self._forget_all()

    def _forget_all(self) -> None:
        self._table = HashTable()
        self._by_name = HashTable()
        self._columns = Columns(self.named)
        self._lost = Lost()
        self.resident_blocks = 0

    @property
    def distinct_blocks(self) -> int:
        return len(self._table)

    @property
    def bytes(self) -> int:
        """Memory of the state; what waits to be applied is not in it."""
        parts = (self._table, self._by_name, self._columns, self._lost)
        return sum(part.bytes for part in parts)

    def tally(self, ts: float) -> Tally:
        """What is counted for the minute of a moment."""
        key = int(ts // 60), self.live
        if key not in self.tallies:
            self.tallies[key] = Tally(
                resident_blocks=self.resident_blocks, heard=self._heard, live=self.live
            )
        return self.tallies[key]

    @property
    def _latest(self) -> Tally:
        """Where what is found out later counts: earlier minutes say how things stood then."""
        return self.tally(self._now)

    # ------------------------------------------------------------------ look-ups

    def name_and_depth(self, block_hash: int) -> tuple[int, int] | None:
        """Our name of one block and its place in its prompt, if it is here or was of late; None
        if not. What waits to be applied is not looked at."""
        slot = self._table.get(block_hash)
        if slot < 0:
            return self._lost.name_and_depth(block_hash)
        return int(self._columns.name[slot]), int(self._columns.depth[slot])

    def held_before(self, hashes: Keys, times: Seconds) -> Flags:
        """Whether each is here and was already before its moment."""
        slots = self._table.find(hashes)
        return (slots >= 0) & (self._columns.stored[slots] < times)

    def held_after(self, hashes: Keys, times: Seconds) -> Flags:
        """Whether each was here at its moment, or came soon after it."""
        slots = self._table.find(hashes)
        here = (slots >= 0) & (self._columns.stored[slots] <= times + DEMOTION_WINDOW_SECONDS)
        return here | (self._lost.times(hashes) > times)

    def holding(self) -> tuple[Keys, Keys, Slots, Slots, Seconds]:
        """Of every block with a name: name, name of its parent (0 = none or not known), depth,
        copies, last use as far as it is known."""
        slots = self._table.items()[1]
        columns = self._columns
        slots = slots[columns.name[slots] != 0]
        parents = columns.parents(slots)
        parent_names = np.where(parents >= 0, columns.name[parents], np.uint64(0))
        return (
            columns.name[slots],
            parent_names,
            columns.depth[slots],
            columns.copies[slots],
            columns.touched[slots],
        )

    def stays(self, since: float) -> tuple[Keys, Seconds, Seconds]:
        """Name, begin and end of every block with a name that was here after a moment, as far as
        that is remembered; infinity: still here."""
        slots = self._table.items()[1]
        slots = slots[self._columns.name[slots] != 0]
        here = self._columns.name[slots], self._columns.stored[slots], np.full(len(slots), np.inf)
        parts = [here]
        parts += [
            (names[until > since], begun[until > since], until[until > since])
            for names, begun, until in self._left
        ]
        names, begun, until = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return names, begun, until

    def _leave(self, names: Keys, begun: Seconds, until: Seconds) -> None:
        """Remember what left; forget what left long ago."""
        if not self._remember_seconds or not len(names):
            return
        self._left.append((names[names != 0], begun[names != 0], until[names != 0]))
        while self._left[0][2].max(initial=-np.inf) < until[-1] - self._remember_seconds:
            self._left.popleft()

    # ------------------------------------------------------------------ changes

    def touch(self, names: Keys, ts: float) -> None:
        """A request that began at `ts` looked these blocks up: what was there then was reused."""
        slots = self._by_name.find(names)
        slots = slots[slots >= 0]
        slots = slots[self._columns.stored[slots] < ts]
        self._columns.flags[slots] |= REUSED
        slots = slots[self._columns.touched[slots] < ts]
        if len(slots):
            self._latest.reuse_gap.add(ts - self._columns.touched[slots])
            self._columns.touched[slots] = ts

    def reset(self, ts: float, heard: datetime) -> int:
        """Everything is gone at once, and not to make room. Blocks that were here."""
        blocks = self.resident_blocks
        self.decide(math.inf, ())
        slots = self._table.items()[1]
        if self.named:
            names, begun = self._columns.name[slots], self._columns.stored[slots]
            self._leave(names, begun, np.full(len(slots), ts))
        self._forget_all()
        self._now, self._heard = ts, heard
        tally = self._latest
        tally.reset += blocks
        tally.resident_blocks, tally.heard = 0, heard
        return blocks

    def flush(self, lower: Sequence["Residency"], heard: datetime) -> None:
        """Apply what waits. `lower`: the tiers below, flushed before. All that waits lies in one
        minute."""
        if not len(self.pending):
            return
        operations = self.pending.take()
        self._now, self._heard = float(operations.times[-1]), heard
        tally = self._latest
        for piece, repeats in operations.pieces():
            self._store(piece, repeats, tally, lower)
            self._remove(piece, tally, lower)
        tally.resident_blocks, tally.heard = self.resident_blocks, heard
        self.decide(self._now - DEMOTION_WINDOW_SECONDS, lower)

    def _store(
        self, piece: Operations, repeats: bool, tally: Tally, lower: Sequence["Residency"]
    ) -> None:
        chosen = piece.stores
        hashes, times = piece.hashes[chosen], piece.times[chosen]
        if not len(hashes):
            return
        slots = self._table.find(hashes)
        fresh = self._add(hashes, times, slots, repeats)
        columns, again = self._columns, slots[~fresh]
        np.add.at(columns.copies, again, 1)
        np.maximum.at(columns.touched, again, times[~fresh])
        self._link(piece, chosen, slots, fresh)
        if self.named:
            self._name(piece.names[chosen][fresh], piece.depths[chosen][fresh], slots[fresh])
        wanted = times[fresh] - self._lost.take(hashes[fresh])
        tally.evicted_reuse_gap.add(wanted[~np.isnan(wanted)])
        tally.promoted += int(_any_held(lower, hashes[fresh], times[fresh]).sum())
        tally.stored += len(hashes)
        self.resident_blocks += len(hashes)

    def _add(self, hashes: Keys, times: Seconds, slots: Slots, repeats: bool) -> Flags:
        """Make room for blocks without a slot (-1), and write it down in `slots`. Which are new:
        of several copies the first."""
        missing = (slots < 0).nonzero()[0]
        distinct = hashes[missing]
        first = copy_of = np.arange(len(missing))
        if repeats:
            distinct, first, copy_of = np.unique(distinct, return_index=True, return_inverse=True)
        new = self._columns.take(len(distinct))
        self._table.insert(distinct, new)
        columns, began = self._columns, times[missing[first]]
        columns.stored[new] = began
        columns.touched[new] = began
        columns.copies[new] = 1
        columns.flags[new] = 0
        slots[missing] = new[copy_of]
        fresh = np.zeros(len(hashes), bool)
        fresh[missing[first]] = True
        return fresh

    def _link(self, piece: Operations, chosen: Flags, slots: Slots, fresh: Flags) -> None:
        """Parents of new blocks, and what a new child tells of its parent: that it was used, and
        by a second request where it had a child before."""
        columns = self._columns
        linked, inner = piece.linked[chosen], piece.inner[chosen].copy()
        inner[0] = False
        parents = np.where(inner, np.roll(slots, 1), np.int32(-1)).astype(np.int32)
        outer = linked & ~inner
        parents[outer] = self._table.find(piece.parents[chosen][outer])
        columns.parent[slots[fresh]] = parents[fresh]
        columns.flags[parents[inner]] |= HAS_CHILD
        # A block before the cut of a piece is the child's own request's.
        cut = outer & piece.inner[chosen]
        branched = parents[outer & ~cut & (parents >= 0)]
        known, counts = np.unique(branched, return_counts=True)
        twice = known[(counts > 1) | (columns.flags[known] & HAS_CHILD > 0)]
        columns.flags[twice] |= REUSED
        used = outer & (parents >= 0)
        columns.flags[parents[used]] |= HAS_CHILD
        np.maximum.at(columns.touched, parents[used], piece.times[chosen][used])

    def _name(self, names: Keys, depths: Slots, slots: Slots) -> None:
        self._columns.name[slots] = names
        self._columns.depth[slots] = depths
        # Engine hashes of two scopes we cannot tell apart would share a name: the first has it.
        distinct, first = np.unique(names, return_index=True)
        free = (self._by_name.find(distinct) < 0) & (distinct != 0)
        self._by_name.insert(distinct[free], slots[first[free]])

    def _remove(self, piece: Operations, tally: Tally, lower: Sequence["Residency"]) -> None:
        hashes, times = piece.hashes[~piece.stores], piece.times[~piece.stores]
        if not len(hashes):
            return
        places = self._table.places(hashes)
        slots = self._table.values_at(places)
        known = slots >= 0
        self.unknown_removals += int((~known).sum())
        hashes, times, slots = hashes[known], times[known], slots[known]
        self.resident_blocks -= len(slots)
        parents = self._columns.parents(slots)
        self._columns.copies[slots] -= 1
        gone = self._columns.copies[slots] == 0
        tally.evicted += int((~gone).sum())
        hashes, times, slots = hashes[gone], times[gone], slots[gone]
        if len(slots):
            self._table.remove_at(places[known][gone])
            self._hand_on(slots, parents[gone])
            self._age(slots, times, tally)
            self._judge(hashes, times, tally, lower)
            self._drop(hashes, times, slots)

    def _hand_on(self, slots: Slots, parents: Slots) -> None:
        """Give the last use of lost blocks to their parents, through those lost with them too."""
        columns = self._columns
        order = np.argsort(slots)
        place = np.searchsorted(slots[order], parents).clip(max=len(slots) - 1)
        among = order[place]
        above = np.where((parents >= 0) & (slots[among] == parents), among, -1)
        touched, reused = columns.touched[slots], columns.flags[slots] & REUSED
        ancestors = above
        # Each step doubles the way. Events that lie about parents may make a ring of them.
        for _ in range(len(slots).bit_length()):
            some = ancestors >= 0
            if not some.any():
                break
            target = ancestors[some]
            np.maximum.at(touched, target, touched[some])
            np.bitwise_or.at(reused, target, reused[some])
            ancestors = np.where(some, ancestors[ancestors], -1)
        columns.touched[slots] = touched
        columns.flags[slots] |= reused
        out = (parents >= 0) & (above < 0)
        np.maximum.at(columns.touched, parents[out], touched[out])
        np.bitwise_or.at(columns.flags, parents[out], reused[out])

    def _age(self, slots: Slots, times: Seconds, tally: Tally) -> None:
        columns = self._columns
        stored, touched = columns.stored[slots], columns.touched[slots]
        tally.lifetime.add(times - stored)
        tally.idle.add(times - touched)
        reused = columns.flags[slots] & REUSED > 0
        known = reused | (stored >= self.uses_known_since)
        tally.reuse_known += int(known.sum())
        tally.never_reused += int((known & ~reused).sum())

    def _judge(
        self, hashes: Keys, times: Seconds, tally: Tally, lower: Sequence["Residency"]
    ) -> None:
        """Lost or moved down? Where there are lower tiers, a copy may still be under way."""
        kept = np.zeros(len(hashes), bool)
        for tier in lower:
            kept |= tier.held_after(hashes, times)
        tally.demoted += int(kept.sum())
        if lower:
            self._undecided.append((hashes[~kept], times[~kept]))
        else:
            tally.evicted += int((~kept).sum())

    def decide(self, until: float, lower: Sequence["Residency"]) -> None:
        """Judge blocks that left before `until` and have had time to turn up further down."""
        waiting = []
        for hashes, times in self._undecided:
            if len(times) and times[-1] > until:
                waiting.append((hashes, times))
                continue
            kept = np.zeros(len(hashes), bool)
            for tier in lower:
                kept |= tier.held_after(hashes, times)
            self._latest.demoted += int(kept.sum())
            self._latest.evicted += int((~kept).sum())
        self._undecided = waiting

    def _drop(self, hashes: Keys, times: Seconds, slots: Slots) -> None:
        columns = self._columns
        names, depths = np.zeros(len(slots), np.uint64), np.zeros(len(slots), np.int32)
        if self.named:
            names, depths = columns.name[slots], columns.depth[slots]
            own = self._by_name.find(names) == slots
            self._by_name.remove(names[own])
            self._leave(names, columns.stored[slots], times)
        self._lost.add(hashes, times, names, depths, self.resident_blocks)
        columns.give(slots)


def _any_held(tiers: Sequence[Residency], hashes: Keys, times: Seconds) -> Flags:
    held = np.zeros(len(hashes), bool)
    for tier in tiers:
        held |= tier.held_before(hashes, times)
    return held
