"""A modelled cache: what would be cached if blocks were lost for want of memory alone.

One cache of blocks a replica, asked in the order of look-ups, every earlier request's blocks being
there: the least recently used block is lost first, and of one prompt its end before its beginning.
It stands in for the observed counts of traces that have none, and says of logs that have them how
far memory alone explains them. It knows no running requests; `blocks.py` does.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from replay.columns import unit_tokens_of
from replay.known_blocks import numbered, within
from replay.rules import CacheRule
from replay.traffic import NOT_REPORTED, Chains, Flags, Numbers, Small, Traffic, starts_of


class LruCache:
    """The cache of one replica; None: it never has to lose anything."""

    def __init__(self, capacity_blocks: int | None) -> None:
        if capacity_blocks is not None and capacity_blocks < 1:
            raise ValueError(f"capacity_blocks must be at least 1, got {capacity_blocks}")
        self._capacity_blocks = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def serve(self, chain: Sequence[int], answer: Sequence[int] = ()) -> int:
        """How many leading blocks of `chain` are there. Then all of it are, and those of the
        answer behind it; what does not fit is lost from the end on."""
        blocks, capacity_blocks = self._blocks, self._capacity_blocks
        hits = 0
        for block in chain:
            if block not in blocks:
                break
            hits += 1
        for part in (answer, chain):
            for block in reversed(part):
                if block in blocks:
                    blocks.move_to_end(block)
                    continue
                blocks[block] = None
                if len(blocks) - 1 == capacity_blocks:
                    blocks.popitem(last=False)
        return hits


@dataclass(frozen=True)
class Agreement:
    """What the model says of requests whose cached count is known, beside what was observed.

    `depends_on_answers`: generated tokens, whose names no log has, decide what was left.
    """

    predicted_tokens: Numbers
    observed_tokens: Numbers
    depends_on_answers: Flags

    @property
    def differs(self) -> Flags:
        """Where model and engine disagree; never where no count is known."""
        known: Flags = self.observed_tokens != NOT_REPORTED
        known &= self.predicted_tokens != self.observed_tokens
        return known


def agreement(traffic: Traffic, rule: CacheRule, capacity_blocks: int | None) -> Agreement:
    """Compare observed cached tokens with those of the model."""
    predicted = modelled_cached_tokens(traffic, rule, capacity_blocks)
    without = modelled_cached_tokens(traffic, rule, capacity_blocks, answers=False)
    return Agreement(predicted, traffic.cached_tokens, predicted != without)


def modelled_cached_tokens(
    traffic: Traffic, rule: CacheRule, capacity_blocks: int | None, answers: bool = True
) -> Numbers:
    """Cached tokens of every request if each replica had such a cache of its own; the traffic's
    own counts are not used.

    `answers`: generated tokens take memory too, where the traffic tells how many there were. A
    cache that counts in less than a block of the chains is modelled by those. Raises ValueError
    for a rule with a lifetime, which is no matter of memory, and BlockSizesDisagree.
    """
    rule = rule.by_memory_alone().of_blocks(traffic.chains.grain_tokens)
    unit_tokens = unit_tokens_of(rule, traffic.chains.grain_tokens)
    blocks, starts = _blocks(traffic, rule, unit_tokens)
    requests = len(traffic)
    replicas = [0] * requests if traffic.replica is None else traffic.replica.tolist()
    capacity_units = capacity_blocks
    if capacity_blocks is not None:
        # At least one: a cache of less than a block of the chains cannot be told.
        capacity_units = max(capacity_blocks * (rule.block_tokens or 1) // unit_tokens, 1)
    caches = {replica: LruCache(capacity_units) for replica in set(replicas)}
    generated = _answer_blocks(traffic, unit_tokens) if answers else [0] * requests
    order = range(requests)
    if traffic.looked_up is not None:
        order = np.argsort(traffic.looked_up, kind="stable").tolist()
    kept = ~rule.too_short(traffic.prompt_tokens)
    kept = (kept if traffic.kept is None else kept & traffic.kept).tolist()
    hits, nameless, places = [0] * requests, count(-1, -1), starts.tolist()
    for row in order:
        if kept[row]:
            chain = blocks[places[row] : places[row + 1]].tolist()
            answer = [next(nameless) for _ in range(generated[row])]
            hits[row] = caches[replicas[row]].serve(chain, answer)
    found = np.maximum(np.array(hits, np.int64) * unit_tokens - rule.held_back_tokens, 0)
    if traffic.ineligible is not None:
        found[traffic.ineligible] = 0  # kept like the others, but the look-up was skipped
    return np.minimum(found, rule.ceiling_tokens(traffic.prompt_tokens))


def _blocks(traffic: Traffic, rule: CacheRule, unit_tokens: int) -> tuple[Small, Numbers]:
    """The blocks of every prompt as numbers, and where those of each begin."""
    grain = traffic.chains.grain_tokens
    named = traffic.prompt_tokens // grain
    if rule.ceiling == "partial":
        named = -(-traffic.prompt_tokens // grain)
    chains = traffic.chains.cut(named)
    names = chains.names
    if traffic.deployment is not None:
        names = within(names, np.repeat(traffic.deployment, chains.lengths))
    return _every(numbered(names)[0], chains, unit_tokens // grain)


def _every(numbers: Small, chains: Chains, step: int) -> tuple[Small, Numbers]:
    """Every so many-th block of each chain: it stands for those before it too."""
    if step == 1:
        return numbers, chains.starts
    place = np.arange(len(numbers)) - np.repeat(chains.starts[:-1], chains.lengths)
    return numbers[(place + 1) % step == 0], starts_of(chains.lengths // step)


def _answer_blocks(traffic: Traffic, unit_tokens: int) -> list[int]:
    """How many whole blocks the answer to each request fills behind its prompt."""
    if traffic.output_tokens is None:
        return [0] * len(traffic)
    prompt = traffic.prompt_tokens
    whole = prompt + np.maximum(traffic.output_tokens, 1) - 1
    filled = whole // unit_tokens - prompt // unit_tokens
    blocks: list[int] = filled.tolist()
    return blocks


def round_robin(places: Numbers, replicas: int) -> Numbers:
    """The request at place i of the traffic goes to replica i mod `replicas`."""
    return places % replicas
