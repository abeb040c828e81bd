"""A fleet of radix trees by order of requests alone: what `untimed.py` is for blocks.

With neither clock nor running requests what is left of SGLang's rules is that memory is freed a
whole leaf at a time: a tree loses more than it must, and finds less than blocks would.
"""

import numpy as np

from replay.prompts import Prompts
from replay.radix import RadixCache
from replay.routers import LONGEST, SCORED, Ring, Router, pick
from replay.rules import CacheRule
from replay.traffic import Names, Small
from replay.untimed import Served


def serve_by_trees(
    prompts: Prompts,
    rule: CacheRule,
    router: Router,
    replicas: int,
    capacity_pages: int | None,
    sessions: Names | None = None,
    *,
    whole_leaves: bool = True,
) -> Served:
    """Run all requests in their order. `capacity_pages`: of each replica, None: never full; of a
    prompt that is longer the head is kept. ValueError as `untimed.serve`."""
    if replicas < 1 or (capacity_pages is not None and capacity_pages < 1):
        raise ValueError("replicas and capacity_pages must be at least 1")
    capacity = capacity_pages or max(prompts.distinct_blocks, 1)
    trees = [RadixCache(capacity, whole_leaves) for _ in range(replicas)]
    fleet = _Fleet(trees, router, Ring.of(replicas).owners, prompts.block_tokens)
    firsts = Ring.of(replicas).first(router.keys(prompts, sessions))
    columns = zip(
        prompts.prompt_tokens.tolist(),
        prompts.ceiling_tokens(rule).tolist(),
        np.minimum(prompts.kept_blocks(rule.by_memory_alone()), capacity).tolist(),
        prompts.starts.tolist(),
        firsts.tolist(),
        router.draws(len(prompts)).tolist(),
        strict=False,
    )
    served = [
        fleet.serve(request, tokens, ceiling, prompts.blocks[begin : begin + stored].tolist(),
                    first, draw)
        for request, (tokens, ceiling, stored, begin, first, draw) in enumerate(columns)
    ]  # fmt: skip
    cached, replica = zip(*served, strict=True) if served else ((), ())
    return Served(
        prompts.prompt_tokens, np.array(cached, np.int64), np.array(replica, np.int32),
        np.array([tree.evicted_pages for tree in trees], np.int64),
    )  # fmt: skip


class _Fleet:
    """Trees, and the tokens that each has computed so far."""

    def __init__(
        self, trees: list[RadixCache], router: Router, owners: Small, page_tokens: int
    ) -> None:
        self._trees, self._router, self._owners = trees, router, owners
        self._page_tokens = page_tokens
        self._loads = np.zeros(len(trees), np.int64)

    def serve(
        self, request: int, prompt_tokens: int, ceiling_tokens: int, chain: list[int], first: int,
        draw: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Cached tokens of a request, and the replica it went to."""
        findable = chain[: -(-ceiling_tokens // self._page_tokens)]
        uncached = np.full(len(self._trees), prompt_tokens, np.int64)
        if self._router.number in (SCORED, LONGEST):
            uncached -= [self._found(tree, findable, ceiling_tokens) for tree in self._trees]
        chosen = pick(
            self._router.number, request, first, self._owners, self._loads, uncached,
            float(self._router.slack), float(self._router.load_weight), draw,
            self._router.takes_turns,
        )  # fmt: skip
        cached = self._found(self._trees[chosen], findable, ceiling_tokens)
        self._loads[chosen] += prompt_tokens - cached
        _keep(self._trees[chosen], chain)
        return cached, chosen

    def _found(self, tree: RadixCache, findable: list[int], ceiling_tokens: int) -> int:
        return min(tree.look_up(findable) * self._page_tokens, ceiling_tokens)


def _keep(tree: RadixCache, chain: list[int]) -> None:
    """Bring a prompt into a tree in which nothing runs."""
    pages = len(chain)
    lock = tree.start(chain, prompt_pages=pages, reusable=pages, total_pages=pages)
    assert lock is not None
    tree.end_prefill(lock)
    tree.end(lock)
