"""Orders and runs of blocks: small things that are asked of what lies behind a place."""

import numpy as np

from replay.traffic import Flags, Numbers

# The different blocks of a request in the order of their numbers, and where each comes first.
Head = tuple[Numbers, Numbers]


# Of blocks that were moved, so few may have been moved across the end of the place.
_STRAY_RATIO = 0.02


def longest_runs(flags: Flags) -> Numbers:
    """Where the longest run of every row begins, the first of several; 0 where there is none."""
    columns = np.arange(flags.shape[1])
    begins = np.maximum.accumulate(np.where(flags, -1, columns + 1), axis=1).clip(min=0)
    lengths = np.where(flags, columns + 1 - begins, 0)
    ends = lengths.argmax(axis=1)
    found: Numbers = begins[np.arange(len(flags)), ends]
    return np.where(lengths.max(axis=1) > 0, found, 0)


def first_cut(nearest: Numbers, farthest: Numbers, width: int) -> int:
    """The first column, behind the first that blocks were moved across, across which next to none
    were moved; 0 where there is none."""
    across = np.zeros(width + 1, np.int64)
    np.add.at(across, nearest + 1, 1)
    np.add.at(across, farthest + 1, -1)
    across = np.cumsum(across)
    busy = across > _STRAY_RATIO * len(nearest)
    if not busy.any():
        return 0
    begin = int(busy.argmax())
    quiet = np.flatnonzero(~busy[begin:])
    return begin + int(quiet[0]) if len(quiet) else 0


def in_common_ratio(one: Numbers, other: Numbers) -> float:
    return len(np.intersect1d(one, other, assume_unique=True)) / max(len(one), len(other))


def in_another_order(one: Head, other: Head) -> bool:
    """Do two requests hold blocks in orders that contradict each other?"""
    places = np.searchsorted(other[0], one[0]).clip(max=len(other[0]) - 1)
    both = (other[0][places] == one[0]) & (one[0] >= 0)
    here, there = one[1][both], other[1][places[both]]
    return bool((np.diff(there[np.argsort(here)]) < 0).any())
