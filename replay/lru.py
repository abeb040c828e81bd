"""A modelled cache for traces that do not tell what was cached.

One cache of blocks a replica, asked in the order of the trace, every earlier request's blocks
being there: the least recently used block is lost first, and of one prompt its end before its
beginning. It knows neither time nor running requests; `blocks.py` does.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from replay.known_blocks import numbered, within
from replay.rules import CacheRule
from replay.traffic import Numbers, Traffic


class LruCache:
    """The cache of one replica; None: it never has to lose anything."""

    def __init__(self, capacity_blocks: int | None) -> None:
        if capacity_blocks is not None and capacity_blocks < 1:
            raise ValueError(f"capacity_blocks must be at least 1, got {capacity_blocks}")
        self._capacity_blocks = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def serve(self, chain: Sequence[int]) -> int:
        """How many leading blocks are there. Then all of the chain are, its beginning at least."""
        blocks, capacity_blocks = self._blocks, self._capacity_blocks
        hits = 0
        for block in chain:
            if block not in blocks:
                break
            hits += 1
        for block in reversed(chain):
            if block in blocks:
                blocks.move_to_end(block)
                continue
            blocks[block] = None
            if len(blocks) - 1 == capacity_blocks:
                blocks.popitem(last=False)
        return hits


def modelled_cached_tokens(
    traffic: Traffic, rule: CacheRule, capacity_blocks: int | None
) -> Numbers:
    """Cached tokens of every request if each replica had such a cache of its own.

    The blocks are those of the chain; the traffic's own cached counts are not used.
    """
    grain = traffic.chains.grain_tokens
    rule = rule.of_blocks(grain)
    if rule.block_tokens != grain:
        raise ValueError(
            f"the model keeps blocks of {grain} tokens, as the chains have them,"
            f" not of {rule.block_tokens}"
        )
    prompt_tokens = traffic.prompt_tokens
    named = -(-prompt_tokens // grain) if rule.ceiling == "partial" else prompt_tokens // grain
    chains = traffic.chains.cut(named)
    names = chains.names
    if traffic.deployment is not None:
        names = within(names, np.repeat(traffic.deployment, chains.lengths))
    numbers = numbered(names)[0]
    count = len(traffic)
    replicas = [0] * count if traffic.replica is None else traffic.replica.tolist()
    caches = {replica: LruCache(capacity_blocks) for replica in set(replicas)}
    starts = chains.starts.tolist()
    hits = [
        caches[replica].serve(numbers[starts[i] : starts[i + 1]].tolist())
        for i, replica in enumerate(replicas)
    ]
    cached = np.array(hits, np.int64) * grain
    return np.minimum(cached, rule.ceiling_tokens(prompt_tokens))


def round_robin(requests: int, replicas: int) -> Numbers:
    """Request i goes to replica i mod `replicas`."""
    return np.arange(requests, dtype=np.int64) % replicas
