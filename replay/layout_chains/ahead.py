"""What lies behind a place where prompts part: is it the same again, and how far behind?"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from replay.layout_chains.orders import (
    first_cut,
    in_another_order,
    in_common_ratio,
    longest_runs,
)
from replay.layout_chains.prompts import NOT_GIVEN, Codes, Prompts
from replay.traffic import Flags, Numbers

# Of the requests on each side of a parting place, so many must agree again behind it.
_SAME_PLACE_RATIO, _SHIFTED_RATIO = 0.8, 0.5
# From so many on that went one way, that is the usual one.
_USUAL_WAY_RATIO = 0.3
# Behind a place stands what is held by so many, as a share of what most blocks there are held by.
_OFTEN_RATIO = 0.8
# Of what lies behind, so much must be the same again.
_MIN_SHARED_RATIO, _MIN_SHARED_BLOCKS = 0.02, 4
# So many blocks behind a parting place are looked through.
_AHEAD_BLOCKS = 4096
# A block that comes at distances as far apart as these was moved, not shifted by a value.
_MOVED_BLOCKS = 4
# Of the blocks of a set in another order, so many are held by others too.
_HELD_RATIO = 0.3
# The orders of so many requests are compared, each with each; of the pairs so many must contradict
# each other. What is merely shifted never does.
_COMPARED_ROWS = 100
_MIN_CROSSED, _CROSSED_RATIO = 4, 0.003
# Pieces that two requests have in common of a set, where prompts are cut into pieces.
_SAME_SET_RATIO = 0.6
# Ways that stay together for at least so many blocks, and for the same number but this.
_PARALLEL_BLOCKS, _PARALLEL_SPREAD = 8, 2
# Of pairs of requests of one user or session, so many go the same way.
_KEPT_RATIO, _MIN_KEPT_PAIRS = 0.9, 6
# What two ways alone have in common must be longer.
_PARALLEL_BLOCKS_OF_TWO = 16


@dataclass(frozen=True)
class Gaps:
    """How many blocks the place takes in each request, -1 where nothing agrees behind it.

    `crossed`: the same blocks in another order. `parallel`: what lies behind is as long in every
    way they go and taken for the same, although no block of it agrees.
    """

    blocks: Numbers
    crossed: bool = False
    parallel: bool = False


@dataclass(frozen=True)
class Ahead:
    """What lies behind a parting place: `blocks` has a row for each request, -1 behind its end;
    `child` numbers the ways they go, `unit` what is one witness only."""

    rows: Numbers
    blocks: npt.NDArray[np.int64]
    child: Codes
    unit: Codes
    tenant: Codes
    by_pieces: bool

    @classmethod
    def of(cls, prompts: Prompts, rows: Numbers, at: Numbers) -> "Ahead":
        tails = [
            prompts.contents[row][place : place + _AHEAD_BLOCKS]
            for row, place in zip(rows.tolist(), at.tolist(), strict=True)
        ]
        blocks = np.full((len(tails), max(len(tail) for tail in tails)), -1, np.int64)
        for number, tail in enumerate(tails):
            blocks[number, : len(tail)] = tail
        _, child = np.unique(blocks[:, 0], return_inverse=True)
        _, unit = np.unique(prompts.unit[rows], return_inverse=True)
        return cls(
            rows,
            blocks,
            child.astype(np.int64),
            unit.astype(np.int64),
            prompts.tenant[rows],
            by_pieces=prompts.ends is not None,
        )

    def gaps(self) -> Gaps | None:
        """The place, if there is one here; None where everyone goes on with a text of their own."""
        same = self._same_gap()
        moved = self._moved_gap(same)
        if moved is not None:
            return moved
        if same is not None and self._is_worth(same):
            return Gaps(same)
        parallel = self._parallel_gaps()
        if parallel is not None:
            return parallel
        gaps = self._shifted_gaps()
        return Gaps(gaps) if gaps is not None and self._is_worth(gaps) else None

    def _same_gap(self) -> Numbers | None:
        """Blocks of the place where it is as long in nearly all; None: there is no such length."""
        # What more than half of them have stands in the middle of the sorted column.
        usual = np.sort(self.blocks, axis=0)[len(self.blocks) // 2]
        same = np.logical_and(self.blocks == usual, usual >= 0)
        for column in np.flatnonzero(same.mean(axis=0) >= 0.5).tolist():
            if column and self._on_both_sides(same[:, column], _SAME_PLACE_RATIO):
                return np.where(same[:, column], column, -1)
        return None

    def _moved_gap(self, same: Numbers | None) -> Gaps | None:
        """Blocks that come in another order in other requests, up to where none was moved across
        or, if they do, all agree again. A value that shifts what lies behind keeps its order."""
        ids, back = np.unique(self.blocks, return_inverse=True)
        back = back.reshape(self.blocks.shape)
        column = np.broadcast_to(np.arange(self.blocks.shape[1]), self.blocks.shape)
        nearest = np.full(len(ids), self.blocks.shape[1])
        farthest = np.full(len(ids), -1)
        np.minimum.at(nearest, back, column)
        np.maximum.at(farthest, back, column)
        apart = (farthest - nearest >= _MOVED_BLOCKS) & (ids >= 0)
        apart &= self._held_by_many(ids, back, self.unit)
        if same is None:
            length = first_cut(nearest[apart], farthest[apart], self.blocks.shape[1])
            gaps = np.where((self.blocks >= 0).sum(axis=1) >= length, length, -1)
        else:
            length, gaps = int(same.max()), same
        if not length:
            return None
        held = (self._held_by_many(ids, back, self.unit) & (ids >= 0))[back][:, :length]
        enough: npt.NDArray[np.bool_] = np.greater_equal(gaps, 0)
        if held.mean() < _HELD_RATIO or not self._on_both_sides(enough, _SHIFTED_RATIO):
            return None
        if not self._is_crossed(length):
            return None
        return Gaps(gaps if same is not None else self._up_to_shared(gaps), crossed=True)

    def _up_to_shared(self, gaps: Numbers) -> Numbers:
        """Up to where most sessions agree in two turns that went different ways; as it is where
        there are no such turns."""
        length, ends = int(gaps.max()), []
        for unit in np.unique(self.unit).tolist():
            own = np.flatnonzero(self.unit == unit)
            others = own[self.child[own] != self.child[own[0]]]
            if not len(others):
                continue
            one, other = self.blocks[own[0]], self.blocks[others[0]]
            agree = np.flatnonzero((one[length:] == other[length:]) & (one[length:] >= 0))
            ends += [length + int(agree[0])] if len(agree) else []
        usual = int(np.bincount(ends).argmax()) if ends else length
        return np.where((self.blocks >= 0).sum(axis=1) >= usual, usual, gaps)

    def _is_crossed(self, length: int) -> bool:
        """Do parts before this column come in one order in some requests, in another in others?
        Counted over pairs of requests."""
        rows = np.unique(np.linspace(0, len(self.rows) - 1, _COMPARED_ROWS).astype(np.int64))
        heads = [np.unique(self.blocks[row, :length], return_index=True) for row in rows.tolist()]
        crossed, compared, in_common = 0, 0, 0.0
        for one in range(len(rows)):
            for other in range(one):
                if self.unit[rows[one]] != self.unit[rows[other]]:
                    compared += 1
                    crossed += in_another_order(heads[one], heads[other])
                    in_common += in_common_ratio(heads[one][0], heads[other][0])
        # Blocks of a set in another order are cut anew; pieces of it are all there.
        if self.by_pieces and in_common < _SAME_SET_RATIO * compared:
            return False
        return crossed >= max(_MIN_CROSSED, _CROSSED_RATIO * compared)

    def _shifted_gaps(self) -> Numbers | None:
        """Blocks of the place where its length differs: up to the first block that also stands
        behind the parting place of a request that went another way."""
        shared = self._shared()
        has_any = np.logical_or.reduce(shared, axis=1)
        if not self._on_both_sides(has_any, _SHIFTED_RATIO):
            return None
        # What most have, not what came back by chance in a few (a passage that was found again).
        often = np.where(shared, self._holders(), np.nan)
        often[~has_any] = 0
        usual = often >= _OFTEN_RATIO * np.nanmedian(often, axis=1, keepdims=True)
        return np.where(has_any, longest_runs(shared & usual), -1)

    def _holders(self) -> Numbers:
        """How many witnesses hold each block."""
        ids, back = np.unique(self.blocks, return_inverse=True)
        units = np.broadcast_to(self.unit[:, None], self.blocks.shape).ravel()
        pairs = np.unique(back.ravel() * (int(self.unit.max()) + 1) + units)
        counts = np.bincount(pairs // (int(self.unit.max()) + 1), minlength=len(ids))
        holders: Numbers = counts[back.reshape(self.blocks.shape)]
        return holders

    def _parallel_gaps(self) -> Gaps | None:
        """Ways that stay together for the same number of blocks: a value whose length differs by
        no whole block stands before the same text."""
        runs = self._runs()
        known = runs[runs >= _PARALLEL_BLOCKS]
        if not len(known):
            return None
        usual = int(np.median(known))
        alike = np.abs(runs - usual) <= _PARALLEL_SPREAD
        least = _PARALLEL_BLOCKS if alike.sum() > 2 else _PARALLEL_BLOCKS_OF_TWO
        together = alike[self.child]
        if not self._is_kept():
            return None
        if alike.sum() < 2 or usual < least or together.mean() < _SHIFTED_RATIO:
            return None
        return Gaps(np.where(together, 1, -1), parallel=True)

    def _is_kept(self) -> bool:
        """Does each user, or each session, always go the same way? What is chosen anew with every
        request is no value that stands for somebody."""
        for label in (self.tenant, self.unit):
            pairs = label[:, None] == label[None, :]
            pairs &= (label[:, None] != NOT_GIVEN) & ~np.eye(len(label), dtype=np.bool_)
            same = (self.child[:, None] == self.child[None, :])[pairs]
            if len(same) >= _MIN_KEPT_PAIRS and same.mean() >= _KEPT_RATIO:
                return True
        return False

    def _runs(self) -> Numbers:
        """Blocks that all requests of each way share; -1 where one witness alone goes it."""
        runs = np.full(int(self.child.max()) + 1, -1, np.int64)
        for way in range(len(runs)):
            own = self.blocks[self.child == way]
            if len(np.unique(self.unit[self.child == way])) > 1:
                differs = ((own != own[0]) | (own < 0)).any(axis=0)
                runs[way] = int(differs.argmax()) if differs.any() else own.shape[1]
        return runs

    def _shared(self) -> Flags:
        """Which blocks stand behind the place of requests of at least two ways."""
        ids, back = np.unique(self.blocks, return_inverse=True)
        back = back.reshape(self.blocks.shape)
        flags: Flags = (self._held_by_many(ids, back, self.child) & (ids >= 0))[back]
        return flags

    def _held_by_many(self, ids: Numbers, back: Numbers, label: Codes) -> Flags:
        """Which ids do requests of at least two labels hold?"""
        labels = np.broadcast_to(label[:, None], back.shape)
        least = np.full(len(ids), len(self.rows))
        most = np.full(len(ids), -1)
        np.minimum.at(least, back, labels)
        np.maximum.at(most, back, labels)
        flags: Flags = most > least
        return flags

    def _on_both_sides(self, agreeing: Flags, ratio: float) -> bool:
        """Do so many agree: of all, and where many went one way of these and of the others too?"""
        ways = np.bincount(self.child)
        if len(ways) == 1 or agreeing.mean() < ratio:
            return False
        largest = self.child == ways.argmax()
        if largest.mean() < _USUAL_WAY_RATIO:
            return True
        return bool(agreeing[largest].mean() >= ratio and agreeing[~largest].mean() >= ratio)

    def _is_worth(self, gaps: Numbers) -> bool:
        """Is what agrees again behind the place enough of what lies there?"""
        behind = np.arange(self.blocks.shape[1])[None, :] >= gaps[:, None]
        behind &= (gaps >= 0)[:, None] & (self.blocks >= 0)
        shared = (self._shared() & behind).sum(axis=1)[gaps >= 0]
        return bool(
            np.median(shared) >= _MIN_SHARED_BLOCKS
            and shared.sum() >= _MIN_SHARED_RATIO * behind.sum()
        )
