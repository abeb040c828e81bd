"""The KV memory of a fleet, slot by slot, as compiled code: what `blocks.py` does for one replica
in Python, in arrays for all at once.

A slot is free, or held by running requests, or idle: held by nobody, but with a block that was
computed. Idle slots stand in a ring for each replica, the one released first in front; only they
are lost to make room.
"""

from typing import NamedTuple

import numpy as np

from replay.compiled import part, wide
from replay.traffic import Numbers, Small

NONE = -1
# The name of a block that was computed and that no prompt can find: a trace does not tell what
# was generated, but it takes memory until its turn comes.
UNKNOWN = -2
FREE, IDLE, EVICTED = range(3)


class Pools(NamedTuple):
    """`slot[block, replica]`: where a block is, NONE where it is not. Of each slot of a replica:
    `block` it can be found as (NONE: as none, UNKNOWN: as none, but it is kept), `holders`,
    `touched` (microseconds), the request it was taken for (`owner`), and its neighbours in the ring
    of idle ones, whose last entry is the ring's end. `free`: a stack of slots. `counts`: of each
    replica FREE, IDLE slots now, EVICTED blocks so far."""

    slot: Small
    block: Small
    holders: Small
    touched: Numbers
    owner: Small
    behind: Small
    ahead: Small
    free: Small
    counts: Numbers


def empty_pools(distinct_blocks: int, replicas: int, capacity_blocks: int) -> Pools:
    """All slots free."""
    counts = np.zeros((replicas, 3), np.int64)
    counts[:, FREE] = capacity_blocks
    ring = np.full((2, replicas, capacity_blocks + 1), capacity_blocks, np.int32)
    slots = np.arange(capacity_blocks, dtype=np.int32)[::-1]
    return Pools(
        slot=np.full((max(distinct_blocks, 1), replicas), NONE, np.int32),
        block=np.full((replicas, capacity_blocks), NONE, np.int32),
        holders=np.zeros((replicas, capacity_blocks), np.int32),
        touched=np.zeros((replicas, capacity_blocks), np.int64),
        owner=np.zeros((replicas, capacity_blocks), np.int32),
        behind=ring[0],
        ahead=ring[1],
        free=np.tile(slots, (replicas, 1)),
        counts=counts,
    )


@part
def find(pools: Pools, replica: int, chain: Small) -> int:
    """How many leading blocks of a chain are there."""
    slot, found = pools.slot, 0
    while found < len(chain) and slot[chain[found], replica] >= 0:
        found += 1
    return found


@part
def locate(pools: Pools, replica: int, chain: Small, held: Small) -> int:
    """Write the slot of each block of a chain to `held`, NONE where it is not there; how many of
    the slots are idle."""
    slot, holders, idle = pools.slot, pools.holders[replica], 0
    for place in range(len(chain)):
        at = slot[chain[place], replica]
        idle += int(at >= 0 and holders[at] == 0)
        held[place] = at
    return idle


@part
def occupy(
    pools: Pools, replica: int, held: Small, now: int, request: int, evicted: Numbers, lost: Small
) -> int:
    """For a request that starts: hold the slots in `held`, and take others where it has NONE.

    Blocks with a name that are lost for it are written to `lost`; returns how many. All that are
    lost are added to `evicted` of the request they were taken for. Only while there are enough free
    and idle slots.
    """
    slot, block = pools.slot, pools.block[replica]
    holders, touched = pools.holders[replica], pools.touched[replica]
    behind, ahead, owner = pools.behind[replica], pools.ahead[replica], pools.owner[replica]
    free, end = pools.free[replica], len(pools.block[replica])
    unheld, idle = pools.counts[replica, FREE], pools.counts[replica, IDLE]
    for at in held:
        if at >= 0:
            if holders[at] == 0:
                unlink(behind, ahead, at)
                idle -= 1
            holders[at] += 1
            touched[at] = now
    count = 0
    for place in range(len(held)):
        if held[place] >= 0:
            continue
        if unheld:
            unheld -= 1
            at = free[unheld]
        else:
            at = ahead[end]
            unlink(behind, ahead, at)
            idle -= 1
            pools.counts[replica, EVICTED] += 1
            evicted[owner[at]] += 1
            if block[at] != UNKNOWN:
                lost[count] = block[at]
                slot[block[at], replica] = NONE
                count += 1
            block[at] = NONE
        holders[at], owner[at] = 1, request
        held[place] = at
    pools.counts[replica, FREE] = unheld
    pools.counts[replica, IDLE] = idle
    return count


@part
def publish(pools: Pools, replica: int, chain: Small, held: Small, now: int, fresh: Small) -> int:
    """Let held slots be found as the blocks of a chain, but for those that other slots are named
    by already. Newly named blocks are written to `fresh`; returns how many."""
    slot, block, touched = pools.slot, pools.block[replica], pools.touched[replica]
    count = 0
    for place in range(len(chain)):
        at = held[place]
        touched[at] = now
        if block[at] == NONE and slot[chain[place], replica] < 0:
            block[at] = chain[place]
            slot[chain[place], replica] = at
            fresh[count] = chain[place]
            count += 1
    return count


@part
def release(pools: Pools, replica: int, held: Small, now: int, stored: int, filled: int) -> None:
    """Give slots back, the last first: they become idle, or free where they have no name. Behind
    the `stored` blocks that prompts can find stand those of the answer, until `filled`."""
    block, holders = pools.block[replica], pools.holders[replica]
    touched, free = pools.touched[replica], pools.free[replica]
    behind, ahead = pools.behind[replica], pools.ahead[replica]
    unheld, idle = pools.counts[replica, FREE], pools.counts[replica, IDLE]
    end = len(block)
    for place in range(len(held) - 1, -1, -1):
        at = held[place]
        holders[at] -= 1
        touched[at] = now
        if holders[at]:
            continue
        if block[at] == NONE and stored <= place < filled:
            block[at] = UNKNOWN
        if block[at] == NONE:
            free[unheld] = at
            unheld += 1
        else:
            link_last(behind, ahead, at, end)
            idle += 1
    pools.counts[replica, FREE] = unheld
    pools.counts[replica, IDLE] = idle


@part
def idle_longest(pools: Pools, replica: int) -> int:
    """The slot that was given back first of those that are idle; NONE without any."""
    end = pools.block.shape[1]
    at = pools.ahead[replica, end]
    return NONE if at == end else wide(at)


@part
def drop(pools: Pools, replica: int, at: int) -> None:
    """An idle slot loses its name."""
    if pools.block[replica, at] != UNKNOWN:
        pools.slot[pools.block[replica, at], replica] = NONE
    pools.block[replica, at] = NONE
    unlink(pools.behind[replica], pools.ahead[replica], at)
    pools.counts[replica, IDLE] -= 1
    pools.free[replica, pools.counts[replica, FREE]] = at
    pools.counts[replica, FREE] += 1


@part
def forget(pools: Pools, replica: int, lost: Small) -> int:
    """Nothing of a replica can be found any more; what runs keeps its memory. The blocks are
    written to `lost`; returns how many."""
    count = 0
    for at in range(pools.block.shape[1]):
        if pools.block[replica, at] == NONE:
            continue
        if pools.block[replica, at] != UNKNOWN:
            lost[count] = pools.block[replica, at]
            count += 1
        if pools.holders[replica, at] == 0:
            drop(pools, replica, at)
        else:
            pools.slot[pools.block[replica, at], replica] = NONE
            pools.block[replica, at] = NONE
    return count


@part
def unlink(behind: Small, ahead: Small, at: int) -> None:
    """Take a slot out of a ring."""
    ahead[behind[at]] = ahead[at]
    behind[ahead[at]] = behind[at]


@part
def link_last(behind: Small, ahead: Small, at: int, end: int) -> None:
    """Make a slot the one used last. `end` is before the first and after the last."""
    last = behind[end]
    ahead[last] = at
    behind[at] = last
    ahead[at] = end
    behind[end] = at
