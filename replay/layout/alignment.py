"""Which atoms of two prompts are the same, in order: what stands between is what differs.

Common text is found from its rare runs: runs of a few atoms that both have exactly once, in the
longest chain that keeps their order, and then again between those. Single words of two texts that
have nothing in common are not paired up for being words of one language.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from replay.layout.atoms import Ints

# Runs that make an anchor, long ones first.
_RUNS = (6, 3)


def align(left: Ints, right: Ints) -> Ints:
    """For every atom of `left` the place of its partner in `right`, -1 where it has none."""
    partner = np.full(len(left), -1, np.int64)
    a, b = left.tolist(), right.tolist()
    due = [(0, len(a), 0, len(b))]
    while due:
        a0, a1, b0, b1 = due.pop()
        equal = _equal(left[a0:a1], right[b0:b1])
        partner[a0 : a0 + equal] = np.arange(b0, b0 + equal)
        a0, b0 = a0 + equal, b0 + equal
        equal = _equal(left[a0:a1][::-1], right[b0:b1][::-1])
        partner[a1 - equal : a1] = np.arange(b1 - equal, b1)
        a1, b1 = a1 - equal, b1 - equal
        if a0 == a1 or b0 == b1:
            continue
        for run in _RUNS:
            anchors = _anchors(a[a0:a1], b[b0:b1], run)
            if anchors:
                due += _between(anchors, (a0, a1, b0, b1), run, partner)
                break
    return partner


def _equal(left: Ints, right: Ints) -> int:
    """How many leading atoms are the same."""
    least = min(len(left), len(right))
    differs = left[:least] != right[:least]
    return int(differs.argmax()) if differs.any() else least


def _anchors(a: Sequence[int], b: Sequence[int], run: int) -> list[tuple[int, int]]:
    """Places of runs that both have exactly once, in the longest chain in order in both."""
    mine, other = _once(a, run), _once(b, run)
    pairs = sorted((place, other[key]) for key, place in mine.items() if key in other)
    return _longest_rising(pairs)


def _once(items: Sequence[int], run: int) -> dict[tuple[int, ...], int]:
    places: dict[tuple[int, ...], int] = {}
    for place, key in enumerate(zip(*(items[n:] for n in range(run)), strict=False)):
        places[key] = -1 if key in places else place
    return {key: place for key, place in places.items() if place >= 0}


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs, sorted by the first, in which the second rises too."""
    ends: list[int] = []
    last: list[int] = []
    previous: list[int] = []
    for number, (_, second) in enumerate(pairs):
        at = bisect_left(ends, second)
        if at == len(ends):
            ends.append(second)
            last.append(number)
        else:
            ends[at], last[at] = second, number
        previous.append(last[at - 1] if at else -1)
    chain: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]


def _between(
    anchors: Sequence[tuple[int, int]],
    bounds: tuple[int, int, int, int],
    run: int,
    partner: Ints,
) -> list[tuple[int, int, int, int]]:
    """Pair the anchors up; returns the stretches between them. Places are within `bounds`."""
    a0, a1, b0, b1 = bounds
    stretches = []
    from_a, from_b = a0, b0
    for in_a, in_b in anchors:
        at_a, at_b = a0 + in_a, b0 + in_b
        if at_a < from_a or at_b < from_b:  # overlaps the anchor before
            skip = max(from_a - at_a, from_b - at_b)
            if skip >= run:
                continue
            at_a, at_b, left = at_a + skip, at_b + skip, run - skip
        else:
            left = run
        stretches.append((from_a, at_a, from_b, at_b))
        partner[at_a : at_a + left] = np.arange(at_b, at_b + left)
        from_a, from_b = at_a + left, at_b + left
    stretches.append((from_a, a1, from_b, b1))
    return [each for each in stretches if each[0] < each[1] and each[2] < each[3]]
