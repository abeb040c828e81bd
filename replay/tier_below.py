"""Tiers below the memory of devices: by least recent use, each for every replica or for all.

A tier is written through, with every block as soon as it is computed, or back, with what is lost
above it. What it loses falls to the next one, down to one that is written through: that one had
it before.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from replay.clock import MICROSECOND, Tier
from replay.compiled import part, wide
from replay.pools import NONE, link_last, unlink
from replay.traffic import Flags, Numbers, Seconds, Small, starts_of


class Below(NamedTuple):
    """Shelves: what one tier keeps for one replica, or for all. `shelves[tier, replica]` is the
    shelf a replica reaches, whose places stand from `begins[shelf]` on; the last of them is the end
    of its ring. `slot[block, shelf]`: its place, NONE where it is not there. `counts`: of each
    shelf blocks kept now, and written so far. Of each tier: microseconds a token and before the
    first one, and the rest as in `Tier`."""

    slot: Small
    block: Small
    behind: Small
    ahead: Small
    begins: Numbers
    counts: Numbers
    shelves: Numbers
    speed: Seconds
    latency: Numbers
    is_shared: Flags
    writes_through: Flags
    overlaps: Flags

    def written(self) -> Numbers:
        """Blocks written to each tier so far."""
        by_shelf, tiers = self.counts[:, 1], range(len(self.shelves))
        return np.array([by_shelf[np.unique(self.shelves[tier])].sum() for tier in tiers], np.int64)


def empty_below(distinct_blocks: int, replicas: int, tiers: Sequence[Tier]) -> Below:
    """The nearest tier first; all empty."""
    shelves = np.zeros((len(tiers), replicas), np.int64)
    sizes: list[int] = []
    for level, tier in enumerate(tiers):
        shelves[level] = len(sizes) + np.arange(replicas) * (not tier.is_shared)
        # More than there are blocks need not be there; one place is the end of the ring.
        own = min(tier.capacity_blocks, distinct_blocks) + 1
        sizes += [own] * (1 if tier.is_shared else replicas)
    begins = starts_of(sizes)
    ring = np.repeat(begins[1:] - 1, sizes).astype(np.int32)
    return Below(
        slot=np.full((distinct_blocks if tiers else 1, len(sizes)), NONE, np.int32),
        block=np.full(len(ring), NONE, np.int32),
        behind=ring,
        ahead=ring.copy(),
        begins=begins,
        counts=np.zeros((len(sizes), 2), np.int64),
        shelves=shelves,
        speed=np.array([1 / (tier.tokens_per_second * MICROSECOND) for tier in tiers], np.float64),
        latency=np.array([round(tier.latency_seconds / MICROSECOND) for tier in tiers], np.int64),
        is_shared=np.array([tier.is_shared for tier in tiers], np.bool_),
        writes_through=np.array([tier.writes_through for tier in tiers], np.bool_),
        overlaps=np.array([tier.overlaps for tier in tiers], np.bool_),
    )


@part
def tier_of(below: Below, replica: int, block: int) -> int:
    """The nearest tier that has a block for a replica; NONE where none has."""
    for tier in range(len(below.shelves)):
        if below.slot[block, below.shelves[tier, replica]] >= 0:
            return tier
    return NONE


@part
def load_up(
    below: Below,
    replica: int,
    chain: Small,
    held: Small,
    block_tokens: int,
    tokens: int,
    loaded: Numbers,
) -> None:
    """Load the blocks of a chain that the device does not hold: each is the one used last in its
    tier, the first of them last of all. `tokens` of the chain are wanted, and those of them that
    are loaded added to `loaded` by tier."""
    for place in range(len(chain) - 1, -1, -1):
        if held[place] != NONE:
            continue
        tier = tier_of(below, replica, chain[place])
        shelf = below.shelves[tier, replica]
        at, end = below.slot[chain[place], shelf], below.begins[shelf + 1] - 1
        unlink(below.behind, below.ahead, at)
        link_last(below.behind, below.ahead, at, end)
        loaded[tier] += min(block_tokens, tokens - place * block_tokens)


@part
def load_microseconds(below: Below, loaded: Numbers) -> tuple[int, int]:
    """What it takes to load so many tokens of each tier: before the rest is computed, and while it
    is."""
    ahead, beside = 0, 0
    for tier in range(len(loaded)):
        taken = 0
        if loaded[tier]:
            taken = below.latency[tier] + round(loaded[tier] * below.speed[tier])
        if below.overlaps[tier]:
            beside += taken
        else:
            ahead += taken
    return ahead, beside


@part
def write_back(below: Below, replica: int, blocks: Small) -> None:
    """What the device loses falls to the tiers below."""
    for block in blocks:
        _fall(below, replica, wide(0), wide(block))


@part
def write_through(below: Below, replica: int, blocks: Small) -> None:
    """Bring what was computed to the tiers that are written through."""
    for tier in range(len(below.shelves)):
        if below.writes_through[tier]:
            for block in blocks:
                fallen = _keep(below, below.shelves[tier, replica], wide(block))
                _fall(below, replica, tier + 1, fallen)


@part
def _fall(below: Below, replica: int, tier: int, block: int) -> None:
    """A block comes down to a tier, may push out another one there, and so on."""
    while tier < len(below.shelves) and block != NONE and not below.writes_through[tier]:
        block = _keep(below, below.shelves[tier, replica], block)
        tier += 1


@part
def _keep(below: Below, shelf: int, block: int) -> int:
    """Bring a block to a shelf as the one used last; returns the one that it pushes out: itself
    where there is no room at all, NONE where there is room enough."""
    begin, end = below.begins[shelf], below.begins[shelf + 1] - 1
    if begin == end:
        return block
    at, fallen = below.slot[block, shelf], NONE
    if at >= 0:
        unlink(below.behind, below.ahead, at)
    else:
        below.counts[shelf, 1] += 1
        if below.counts[shelf, 0] < end - begin:
            at = begin + below.counts[shelf, 0]
            below.counts[shelf, 0] += 1
        else:
            at = below.ahead[end]
            unlink(below.behind, below.ahead, at)
            fallen = below.block[at]
            below.slot[fallen, shelf] = NONE
    below.slot[block, shelf] = at
    below.block[at] = block
    link_last(below.behind, below.ahead, at, end)
    return fallen


@part
def forget_below(below: Below, replica: int) -> None:
    """A replica loses what is in tiers of its own; shared ones stay."""
    for tier in range(len(below.shelves)):
        if below.is_shared[tier]:
            continue
        shelf = below.shelves[tier, replica]
        begin, end = below.begins[shelf], below.begins[shelf + 1] - 1
        for at in range(begin, begin + below.counts[shelf, 0]):
            below.slot[below.block[at], shelf] = NONE
        below.counts[shelf, 0] = 0
        below.ahead[end] = end
        below.behind[end] = end
