"""A fleet of caches by order of requests alone: no clock, no queue, no running requests.

Every earlier request's blocks are there, so what it finds is an upper bound for the capacity.
Each replica keeps its blocks by least recent use, a prompt's tail freed before its head.
"""

from dataclasses import dataclass

import numpy as np

from replay.balance import imbalance_ratio
from replay.compiled import compiled
from replay.pools import link_last, unlink
from replay.prompts import Prompts
from replay.routers import LONGEST, SCORED, Ring, Router, pick
from replay.rules import CacheRule
from replay.traffic import Names, Numbers, Small


@dataclass(frozen=True)
class Served:
    """What became of each request: tokens found, and where it went; and how many blocks each
    replica lost. `evicted_of`: the same of each request that had them computed; None: not told."""

    prompt_tokens: Numbers
    cached_tokens: Numbers
    replica: Small
    evicted_blocks: Numbers
    evicted_of: Numbers | None = None

    @property
    def token_hit_ratio(self) -> float | None:
        """Cached ÷ prompt tokens; None without any."""
        whole = int(self.prompt_tokens.sum())
        return int(self.cached_tokens.sum()) / whole if whole else None

    @property
    def computed_tokens(self) -> Numbers:
        """By replica."""
        computed = self.prompt_tokens - self.cached_tokens
        replicas = len(self.evicted_blocks)
        return np.bincount(self.replica, computed, replicas).astype(np.int64)

    @property
    def imbalance_ratio(self) -> float | None:
        """Computed tokens of the busiest replica ÷ their mean; None where none were computed."""
        return imbalance_ratio(self.computed_tokens)


def serve(
    prompts: Prompts,
    rule: CacheRule,
    router: Router,
    replicas: int,
    capacity_blocks: int | None,
    sessions: Names | None = None,
) -> Served:
    """Run all requests in their order. `capacity_blocks`: of each replica, None: never full.

    ValueError for a rule with a lifetime, or fewer than one replica or block.
    """
    if replicas < 1 or (capacity_blocks is not None and capacity_blocks < 1):
        raise ValueError("replicas and capacity_blocks must be at least 1")
    distinct = max(prompts.distinct_blocks, 1)
    capacity = distinct if capacity_blocks is None else min(capacity_blocks, distinct)
    ring = Ring.of(replicas)
    keys = router.keys(prompts, sessions)
    replica = np.empty(len(prompts), np.int32)
    cached = np.empty(len(prompts), np.int64)
    evicted = np.zeros(replicas, np.int64)
    evicted_of = np.zeros(len(prompts), np.int64)
    _serve(
        prompts.blocks, prompts.starts, prompts.kept_blocks(rule.by_memory_alone()),
        prompts.ceiling_tokens(rule), prompts.prompt_tokens, prompts.block_tokens,
        ring.first(keys), ring.owners, router.draws(len(prompts)), router.number, router.slack,
        router.load_weight, router.takes_turns, capacity, distinct, replica, cached, evicted,
        evicted_of,
    )  # fmt: skip
    return Served(prompts.prompt_tokens, cached, replica, evicted, evicted_of)


@compiled
def _serve(
    blocks: Small,
    starts: Numbers,
    stored: Numbers,
    ceiling_tokens: Numbers,
    prompt_tokens: Numbers,
    block_tokens: int,
    firsts: Numbers,
    owners: Small,
    draws: Numbers,
    router: int,
    slack: float,
    load_weight: float,
    takes_turns: bool,
    capacity: int,
    distinct: int,
    replica_of: Small,
    cached_tokens: Numbers,
    evicted: Numbers,
    evicted_of: Numbers,
) -> None:
    replicas = len(evicted)
    # One look at a block's row tells which replicas hold it: their slots, -1 where they do not.
    slot = np.full((distinct, replicas), -1, np.int32)
    # A ring of slots for each replica, least recently used first; the last slot stands for none.
    behind = np.empty((replicas, capacity + 1), np.int32)
    ahead = np.empty((replicas, capacity + 1), np.int32)
    held = np.empty((replicas, capacity), np.int32)
    owner = np.empty((replicas, capacity), np.int32)
    used = np.zeros(replicas, np.int64)
    behind[:, capacity] = capacity
    ahead[:, capacity] = capacity
    loads = np.zeros(replicas, np.int64)
    uncached = np.empty(replicas, np.int64)
    for request in range(len(prompt_tokens)):
        begin, kept = starts[request], stored[request]
        most = -(-ceiling_tokens[request] // block_tokens)
        for replica in range(replicas):
            uncached[replica] = prompt_tokens[request]
            if router in (SCORED, LONGEST):
                hits = _look_up(blocks, begin, most, slot, replica)
                uncached[replica] -= min(hits * block_tokens, ceiling_tokens[request])
        chosen = pick(
            router, request, firsts[request], owners, loads, uncached, slack, load_weight,
            draws[request], takes_turns,
        )  # fmt: skip
        hits = _look_up(blocks, begin, most, slot, chosen)
        cached = min(hits * block_tokens, ceiling_tokens[request])
        replica_of[request], cached_tokens[request] = chosen, cached
        loads[chosen] += prompt_tokens[request] - cached
        lost = _touch(
            blocks[begin : begin + kept], slot[:, chosen], behind[chosen], ahead[chosen],
            held[chosen], used, chosen, owner[chosen], request, evicted_of,
        )  # fmt: skip
        evicted[chosen] += lost


@compiled
def _touch(
    chain: Small,
    slot: Small,
    behind: Small,
    ahead: Small,
    held: Small,
    used: Numbers,
    replica: int,
    owner: Small,
    request: int,
    evicted_of: Numbers,
) -> int:
    """Make the blocks of a prompt those used last, from its tail on; how many others were lost."""
    capacity, lost = len(held), 0
    for place in range(len(chain) - 1, -1, -1):
        at = slot[chain[place]]
        if at >= 0:
            unlink(behind, ahead, at)
        elif used[replica] < capacity:
            at = used[replica]
            used[replica] += 1
        else:
            at = ahead[capacity]
            slot[held[at]] = -1
            lost += 1
            evicted_of[owner[at]] += 1
            unlink(behind, ahead, at)
        if slot[chain[place]] < 0:
            owner[at] = request
        slot[chain[place]] = at
        held[at] = chain[place]
        link_last(behind, ahead, at, capacity)
    return lost


@compiled
def _look_up(blocks: Small, begin: int, most: int, slot: Small, replica: int) -> int:
    """How many leading blocks a replica holds."""
    hits = 0
    while hits < most and slot[blocks[begin + hits], replica] >= 0:
        hits += 1
    return hits
