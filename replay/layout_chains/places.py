"""Where prompts of one template part although what lies behind is the same again.

All prompts are walked from their first block at once. Where they part, either each goes its own
way (the user's own text: no place), or blocks that stand behind the parting place in one prompt
stand behind it in others too: then what differs is a *place*, and the walk goes on behind it.
Blocks are cut by counting, so that a value whose length differs by no whole block hides what lies
behind it; prompts in which it has the same length modulo a block still agree, and go on as a
*class* of their own.
"""

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from replay.layout_chains.ahead import Ahead, Gaps
from replay.layout_chains.prompts import Codes, Prompts
from replay.layout_chains.sequence import versions
from replay.traffic import Flags, Numbers, Small

# Of the requests of a template, so many go by its versions.
_VERSIONS_RATIO = 0.2
# A run of equal blocks as short as this between two places does not keep them apart.
_SHORT_BLOCKS = 2


@dataclass(frozen=True, kw_only=True)
class Place:
    """A part of prompts that differs between requests with equal parts around it.

    `rows`: the requests that have it; of each, `begins` and `ends` are blocks (the first of the
    place, the first behind it), `values` a number for what stands there, comparable within a
    `classes` number. `crossed`, `parallel`: as in `Gaps`. `agrees`: what lies behind it is
    the same again; false: all after a moment begin anew here.
    """

    rows: Numbers
    begins: Numbers
    ends: Numbers
    values: Codes
    classes: Codes
    crossed: bool
    parallel: bool
    agrees: bool
    after: int  # number of the place before it, -1: none
    branch: int  # prompts that went different ways before it have different numbers


@dataclass(frozen=True)
class _Step:
    """Requests that agree up to `at`, block of each."""

    rows: Numbers
    at: Numbers
    after: int
    branch: int


@dataclass
class Walk:
    """The walk through all prompts: see `places_of`."""

    prompts: Prompts
    found: list[Place] = field(default_factory=list)
    _steps: deque[_Step] = field(default_factory=deque)
    _branches: int = 0
    _classes: int = 0
    _values: dict[tuple[int, ...], int] = field(default_factory=dict)

    def run(self) -> list[Place]:
        rows = np.array(
            [row for row, own in enumerate(self.prompts.contents) if len(own)], np.int64
        )
        self._steps.append(_Step(rows, np.zeros(len(rows), np.int64), -1, 0))
        while self._steps:
            self._go_on(self._steps.popleft())
        return _joined(self.found)

    def _go_on(self, step: _Step) -> None:
        """To the next place where these requests part, and past it."""
        if not self._is_enough(step.rows):
            return
        parted = self._parting(step)
        if parted is None or not self._is_enough(parted.rows):
            return
        ahead = Ahead.of(self.prompts, parted.rows, parted.at)
        gaps = ahead.gaps()
        if gaps is None or (gaps.parallel and self._versions(parted, ahead)):
            self._own_ways(parted, ahead)
            return
        agreeing = gaps.blocks >= 0
        self._keep(parted, gaps)
        self._behind(parted, agreeing, parted.at + gaps.blocks)
        self._spread(parted, ~agreeing, ahead.child)

    def _is_enough(self, rows: Numbers) -> bool:
        return len(rows) > 1 and len(np.unique(self.prompts.unit[rows])) > 1

    def _parting(self, step: _Step) -> _Step | None:
        """Where the first of them part; requests that end before are left behind. None: they
        never do."""
        contents = self.prompts.contents
        tails = [
            contents[row][at:] for row, at in zip(step.rows.tolist(), step.at.tolist(), strict=True)
        ]
        longest = max(tails, key=len)
        common = np.array([_common(longest, tail) for tail in tails], np.int64)
        going_on = common < np.array([len(tail) for tail in tails])
        if not going_on.any():
            return None
        depth = int(common[going_on].min())
        left = (common > depth) | ((common == depth) & going_on)
        # The longest prompt agrees with itself to its end: it parts from the others here.
        left |= np.array([tail is longest for tail in tails])
        return replace(step, rows=step.rows[left], at=step.at[left] + depth)

    def _own_ways(self, step: _Step, ahead: Ahead) -> None:
        """What lies behind is not the same: a new version, or each one's own text."""
        if self._versions(step, ahead):
            self._keep(step, None)
        self._spread(step, np.ones(len(step.rows), np.bool_), ahead.child)

    def _versions(self, step: _Step, ahead: Ahead) -> bool:
        """Does each way they go replace the one before for good?"""
        rows = step.rows
        if len(rows) < _VERSIONS_RATIO * len(self.prompts):
            return False
        found = versions(ahead.child, self.prompts.unit[rows], self.prompts.started[rows])
        return found is not None

    def _keep(self, step: _Step, gaps: Gaps | None) -> None:
        blocks = np.ones(len(step.rows), np.int64) if gaps is None else gaps.blocks
        here = np.flatnonzero(blocks >= 0)
        begins, lengths = step.at[here], blocks[here]
        place = Place(
            rows=step.rows[here],
            begins=begins,
            ends=begins + lengths,
            values=self._values_of(step.rows[here], begins, begins + lengths),
            classes=np.full(len(here), self._classes, np.int64),
            crossed=gaps is not None and gaps.crossed,
            parallel=gaps is not None and gaps.parallel,
            agrees=gaps is not None,
            after=step.after,
            branch=step.branch,
        )
        self._classes += 1
        self.found.append(place)

    def _values_of(self, rows: Numbers, begins: Numbers, ends: Numbers) -> Codes:
        own = self.prompts.contents
        keys = [
            tuple(own[row][begin:end].tolist())
            for row, begin, end in zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True)
        ]
        return np.array([self._values.setdefault(key, len(self._values)) for key in keys], np.int64)

    def _behind(self, step: _Step, agreeing: Flags, at: Numbers) -> None:
        """Go on behind the place found last, class by class."""
        number = len(self.found) - 1
        contents = self.prompts.contents
        ahead = np.array(
            [
                contents[row][place] if agrees and place < len(contents[row]) else -1
                for row, place, agrees in zip(
                    step.rows.tolist(), at.tolist(), agreeing.tolist(), strict=True
                )
            ],
            np.int64,
        )
        for block in np.unique(ahead[ahead >= 0]).tolist():
            own = ahead == block
            self._steps.append(_Step(step.rows[own], at[own], number, step.branch))

    def _spread(self, step: _Step, of: Flags, child: Codes) -> None:
        """Each group of these goes its own way."""
        for number in np.unique(child[of]).tolist():
            own = of & (child == number)
            if own.sum() > 1:
                self._branches += 1
                self._steps.append(_Step(step.rows[own], step.at[own], step.after, self._branches))


def places_of(prompts: Prompts) -> list[Place]:
    """Every place of these prompts, in the order in which they are met; of one prompt none."""
    return Walk(prompts).run()


def _common(left: Small, right: Small) -> int:
    """How many leading blocks are the same."""
    length = min(len(left), len(right))
    differs = left[:length] != right[:length]
    return int(differs.argmax()) if differs.any() else length


def _joined(found: list[Place]) -> list[Place]:
    """One place for what was met class by class, and for places with next to nothing between."""
    kept: list[Place] = []
    number_of: dict[int, int] = {-1: -1}
    for number, met in enumerate(found):
        place = replace(met, after=number_of[met.after])
        into = next((at for at, other in enumerate(kept) if _is_same(other, place, kept)), None)
        if into is None and place.after >= 0 and _touches(kept[place.after], place):
            into = place.after
            kept[into] = _extended(kept[into], place)
        elif into is not None:
            kept[into] = _together(kept[into], place)
        else:
            into = len(kept)
            kept.append(place)
        number_of[number] = into
    return kept


def _is_same(one: Place, other: Place, kept: list[Place]) -> bool:
    """The same place of another class: what lies before it is shifted by as much as lengths of
    the place before differ."""
    if (one.after, one.branch, one.agrees) != (other.after, other.branch, other.agrees):
        return False
    lengths = kept[one.after].ends - kept[one.after].begins if one.after >= 0 else np.zeros(1)
    room = int(lengths.max() - lengths.min()) + _SHORT_BLOCKS
    return abs(float(np.median(one.begins)) - float(np.median(other.begins))) <= room


def _touches(before: Place, place: Place) -> bool:
    shared, here, there = np.intersect1d(before.rows, place.rows, return_indices=True)
    if not len(shared) or not place.agrees:
        return False
    between = float(np.median(place.begins[there] - before.ends[here]))
    inside = float(np.median(place.begins)) < float(np.quantile(before.ends, 0.9))
    return inside or between <= _SHORT_BLOCKS


def _together(one: Place, other: Place) -> Place:
    return replace(
        one,
        rows=np.concatenate([one.rows, other.rows]),
        begins=np.concatenate([one.begins, other.begins]),
        ends=np.concatenate([one.ends, other.ends]),
        values=np.concatenate([one.values, other.values]),
        classes=np.concatenate([one.classes, other.classes]),
        crossed=one.crossed or other.crossed,
        parallel=one.parallel or other.parallel,
    )


def _extended(one: Place, other: Place) -> Place:
    """The place, as far as the other reaches in the requests that have both."""
    # What stands there is both together.
    ends, values = one.ends.copy(), one.values * (int(other.values.max()) + 2)
    _, here, there = np.intersect1d(one.rows, other.rows, return_indices=True)
    ends[here] = np.maximum(ends[here], other.ends[there])
    values[here] += other.values[there] + 1
    return replace(one, ends=ends, values=values, crossed=one.crossed or other.crossed)
