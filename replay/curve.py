"""The token hit ratio of a least-recently-used cache at *every* capacity, in one pass.

A cache of C blocks holds the C blocks touched last. So a block is found in it exactly if fewer
than C other blocks were touched since: its *stack distance* is at most C. A prompt touches its
blocks from the last to the first, as engines free them, so that the head of a chain outlives its
end; a prefix is found as far as the largest distance of its blocks allows. Mattson et al.,
"Evaluation techniques for storage hierarchies", 1970.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from replay.compiled import compiled
from replay.known_blocks import numbered, renumbered
from replay.prompts import Prompts
from replay.rules import CacheRule
from replay.traffic import Flags, Numbers, Small

# Of so many numbers a block or fewer a table with an entry for each is the fastest.
_SPARSE = 4


@dataclass(frozen=True)
class Curve:
    """Token hit ratio by capacity.

    `hit_tokens[c]`: cached tokens with room for c blocks; more room than that of the last entry
    wins nothing. `prompt_tokens`: of the requests counted.
    """

    hit_tokens: Numbers
    prompt_tokens: int

    @property
    def enough_blocks(self) -> int:
        """The smallest capacity that finds all an unlimited cache would."""
        return len(self.hit_tokens) - 1

    def tokens_at(self, capacity_blocks: int) -> int:
        """Cached tokens with room for so many blocks."""
        return int(self.hit_tokens[min(capacity_blocks, self.enough_blocks)])

    def ratio_at(self, capacity_blocks: int) -> float | None:
        """Cached ÷ prompt tokens with room for so many blocks; None without prompt tokens."""
        return self.tokens_at(capacity_blocks) / self.prompt_tokens if self.prompt_tokens else None

    def blocks_for(self, share: float) -> int:
        """The smallest capacity with at least this share of what an unlimited cache finds."""
        return int(np.searchsorted(self.hit_tokens, share * self.hit_tokens[-1]))

    def knee_blocks(self) -> int:
        """Where a block more begins to win less than one does on average from none to
        `enough_blocks`: to there memory wins most for what it costs. 0 where nothing is won."""
        above = self.hit_tokens * float(max(self.enough_blocks, 1))
        above -= np.arange(len(above)) * float(self.hit_tokens[-1])
        return self.enough_blocks - int(np.argmax(above[::-1]))


def curve(prompts: Prompts, rule: CacheRule, counted_from: int = 0) -> Curve:
    """The curve of one cache that sees all prompts; those before `counted_from` only warm it.

    Every earlier prompt's blocks are there at the next (order only, no clock): an upper bound.
    A rule that keeps the last, partial block stores it too; one that does not stores whole blocks
    only, so the two are different curves. ValueError for a rule with a lifetime.
    """
    size = prompts.block_tokens
    stored = prompts.kept_blocks(rule.by_memory_alone())
    found = -(-prompts.ceiling_tokens(rule) // size)
    distinct = prompts.distinct_blocks
    hits, shortfalls = np.zeros(distinct + 1, np.int32), np.zeros(distinct + 1, np.int64)
    _add_distances(
        prompts.blocks, prompts.starts, stored, found, prompts.prompt_tokens, size, counted_from,
        np.full(distinct, -1, np.int32), hits, shortfalls,
    )  # fmt: skip
    enough = int(np.flatnonzero(hits).max(initial=0))
    tokens = hits[: enough + 1] * np.int64(size)
    tokens -= shortfalls[: enough + 1]
    return Curve(np.cumsum(tokens, out=tokens), int(prompts.prompt_tokens[counted_from:].sum()))


def curve_of_replicas(
    prompts: Prompts, rule: CacheRule, replicas: int, counted_from: int = 0
) -> Curve:
    """The curve of so many caches of equal size, request i going to replica i mod `replicas`."""
    if replicas == 1:
        return curve(prompts, rule, counted_from)
    place = np.arange(len(prompts))
    curves = []
    for replica in range(replicas):
        own = place % replicas == replica
        curves.append(curve(prompts.picked(own), rule, int(own[:counted_from].sum())))
    return summed(curves)


def curves_of_groups(
    prompts: Prompts, rule: CacheRule, groups: Numbers, counted_from: int = 0
) -> list[Curve]:
    """The curve of each group's own cache: of the requests with 0 in `groups`, with 1, and so on.
    Requests with a number below 0 are in none."""
    return [
        curve(_alone(prompts, groups == group), rule, int((groups == group)[:counted_from].sum()))
        for group in range(int(groups.max(initial=-1)) + 1)
    ]


def _alone(prompts: Prompts, which: Flags) -> Prompts:
    """Some requests with blocks numbered anew, as tables have an entry for each number."""
    own = prompts.picked(which)
    least = int(own.blocks.min(initial=0))
    span = int(own.blocks.max(initial=-1)) - least + 1
    if span > _SPARSE * len(own.blocks):
        return replace(own, blocks=numbered(own.blocks.astype(np.uint64))[0])
    blocks = own.blocks - np.int32(least)
    return replace(own, blocks=renumbered(blocks, span)[0][blocks])


def summed(curves: Sequence[Curve]) -> Curve:
    """Caches side by side, each with the same capacity. ValueError without any."""
    hit_tokens = np.zeros(max(len(each.hit_tokens) for each in curves), np.int64)
    for each in curves:
        hit_tokens[: len(each.hit_tokens)] += each.hit_tokens
        hit_tokens[len(each.hit_tokens) :] += each.hit_tokens[-1]
    return Curve(hit_tokens, sum(each.prompt_tokens for each in curves))


@compiled
def _add_distances(
    blocks: Small,
    starts: Numbers,
    stored: Numbers,
    found: Numbers,
    prompt_tokens: Numbers,
    block_tokens: int,
    counted_from: int,
    last: Small,
    hits: Small,
    shortfalls: Numbers,
) -> None:
    """Add to `hits[d]` the blocks that are found with room for d, and to `shortfalls[d]` what
    partial ones among them lack of `block_tokens`. `last`: where each block was touched last, -1
    if never.

    Touches take ascending places in a window; a Fenwick tree counts how many of them are still
    the last of their block. A full window is renumbered, so that its length follows the number of
    different blocks, not that of touches.
    """
    tree = np.zeros(len(last) + len(last) // 4 + 2, np.int32)
    window = len(tree) - 1
    place, live = 0, 0
    for request in range(len(starts) - 1):
        begin = starts[request]
        deepest = 0
        for k in range(found[request]):
            touched = last[blocks[begin + k]]
            if touched < 0:
                break
            distance = live
            node = touched
            while node > 0:  # places before `touched` that are still the last of their block
                distance -= tree[node]
                node &= node - 1
            deepest = max(deepest, distance)
            if request >= counted_from:
                hits[deepest] += 1
                left = prompt_tokens[request] - k * block_tokens
                if left < block_tokens:
                    shortfalls[deepest] += block_tokens - left
        for k in range(stored[request] - 1, -1, -1):
            block = blocks[begin + k]
            if last[block] >= 0:
                _count(tree, last[block], -1)
                last[block] = -1  # or a full window would be renumbered with it
                live -= 1
            if place == window:
                _renumber(tree, last)
                place = live
            last[block] = place
            _count(tree, place, 1)
            place += 1
            live += 1


@compiled
def _count(tree: Small, place: int, change: int) -> None:
    node = place + 1
    while node < len(tree):
        tree[node] += change
        node += node & -node


@compiled
def _renumber(tree: Small, last: Small) -> None:
    """Give the touches that still count the places from 0 on, in their order."""
    tree[:] = -1  # a list of what was touched where, before it is a tree again
    for block in range(len(last)):
        if last[block] >= 0:
            tree[last[block]] = block
    place = 0
    for old in range(len(tree)):
        if tree[old] >= 0:
            last[tree[old]] = place
            place += 1
    tree[:] = 0
    tree[1 : place + 1] = 1
    for node in range(1, len(tree)):
        parent = node + (node & -node)
        if parent < len(tree):
            tree[parent] += tree[node]
