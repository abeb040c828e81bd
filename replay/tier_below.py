"""The tier below the memory of devices: by least recent use, for each replica or for all."""

from typing import NamedTuple

import numpy as np

from replay.clock import Tier
from replay.compiled import compiled, inlined
from replay.pools import NONE, link_last, unlink
from replay.traffic import Flags, Numbers, Small


class Below(NamedTuple):
    """The tier below by least recent use; the second index is the replica, 0 where it is shared.
    `counts`: blocks kept, and blocks written so far."""

    slot: Small
    block: Small
    behind: Small
    ahead: Small
    counts: Numbers
    is_shared: Flags  # one flag


def empty_below(distinct: int, replicas: int, tier: Tier | None) -> Below:
    size = 0 if tier is None else min(tier.capacity_blocks, distinct)
    groups = 1 if tier is None or tier.is_shared else replicas
    ring = np.full((2, groups, size + 1), size, np.int32)
    return Below(
        slot=np.full((distinct if size else 1, groups), NONE, np.int32),
        block=np.full((groups, size), NONE, np.int32),
        behind=ring[0],
        ahead=ring[1],
        counts=np.zeros((groups, 2), np.int64),
        is_shared=np.array([tier is not None and tier.is_shared]),
    )


@inlined
def group_of(below: Below, replica: int) -> int:
    """Whose part of the tier below a replica reaches."""
    return replica if below.counts.shape[0] > 1 else 0


@compiled
def keep_below(below: Below, replica: int, chain: Small, held: Small) -> None:
    """Make blocks that are about to be loaded the ones used last, or what makes room for them on
    the device might push them out."""
    group, end = group_of(below, replica), below.block.shape[1]
    slot, behind, ahead = below.slot, below.behind[group], below.ahead[group]
    for place in range(len(chain) - 1, -1, -1):
        if held[place] == NONE:
            at = slot[chain[place], group]
            unlink(behind, ahead, at)
            link_last(behind, ahead, at, end)


@compiled
def write_below(below: Below, replica: int, blocks: Small) -> None:
    """Bring blocks to the tier below, where they may push out those used least recently."""
    size = below.block.shape[1]
    if size == 0:
        return
    group = group_of(below, replica)
    slot, block = below.slot, below.block[group]
    behind, ahead = below.behind[group], below.ahead[group]
    for new in blocks:
        at = slot[new, group]
        if at >= 0:
            unlink(behind, ahead, at)
        elif below.counts[group, 0] < size:
            at = below.counts[group, 0]
            below.counts[group, 0] += 1
            below.counts[group, 1] += 1
        else:
            at = ahead[size]
            unlink(behind, ahead, at)
            slot[block[at], group] = NONE
            below.counts[group, 1] += 1
        slot[new, group] = at
        block[at] = new
        link_last(behind, ahead, at, size)


@compiled
def forget_below(below: Below, replica: int) -> None:
    """A replica loses what is in a tier of its own; a shared one stays."""
    if below.is_shared[0] or below.block.shape[1] == 0:
        return
    end = below.block.shape[1]
    for at in range(below.counts[replica, 0]):
        below.slot[below.block[replica, at], replica] = NONE
    below.counts[replica, 0] = 0
    below.ahead[replica, end] = end
    below.behind[replica, end] = end
