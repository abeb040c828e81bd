"""The radix tree: SGLang's rules by hand, and equal to a pool of blocks where these coincide."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.blocks import BlockPool
from replay.radix import RadixCache
from replay.radix_fleet import serve_by_trees
from replay.routers import ROUTERS, Router
from replay.rules import RULES
from replay.untimed import serve as serve_blocks
from tests.unit_what_if.fleets import Requests, conversations, prompts_of


def serve(cache: RadixCache, chain: list[int]) -> int:
    """One request by itself, its answer without pages; how many pages it reused."""
    lock = cache.start(chain, prompt_pages=len(chain), reusable=len(chain), total_pages=len(chain))
    assert lock is not None
    cache.end_prefill(lock)
    cache.end(lock)
    return lock.hit_pages


@settings(max_examples=200, deadline=None)
@given(conversations(), st.integers(1, 24), st.data())
def test_page_by_page_it_is_a_pool_of_blocks(
    requests: Requests, capacity: int, data: st.DataObject
) -> None:
    """Some requests go on running while others come; prefills end at once, and a whole prompt can
    be found, so that no page is computed twice."""
    tree, pool = RadixCache(capacity, whole_leaves=False), BlockPool(capacity)
    running = []
    for _, chain in requests:
        if len(chain) > capacity:
            continue
        assert tree.look_up(chain) == pool.look_up(chain)
        size = len(chain)
        lock = tree.start(chain, prompt_pages=size, reusable=size, total_pages=size)
        lease = pool.start(chain, prompt_blocks=size, reusable=size, total_blocks=size)
        assert (lock is None) == (lease is None)
        if lock is not None and lease is not None:
            assert lock.hit_pages == lease.hit_blocks
            tree.end_prefill(lock)
            pool.end_prefill(lease)
            running.append((lock, lease))
        if running and data.draw(st.booleans()):
            lock, lease = running.pop(data.draw(st.integers(0, len(running) - 1)))
            tree.end(lock)
            pool.end(lease)
        assert tree.resident_pages <= capacity


@settings(max_examples=25, deadline=None)
@given(conversations(), st.integers(1, 3), st.integers(1, 24), st.sampled_from(ROUTERS))
def test_page_by_page_a_fleet_of_trees_is_a_fleet_of_blocks(
    requests: Requests, replicas: int, capacity: int, router: str
) -> None:
    """Under both rules, whoever routes, where prompts are longer than a replica's memory, and where
    the last block of every other request is of its answer, or partial."""
    plain = prompts_of(requests, 4)
    answers = np.minimum(np.arange(len(plain)) % 2, np.diff(plain.starts))
    tokens = plain.prompt_tokens - 4 * answers
    answered = replace(plain, prompt_tokens=np.maximum(tokens, 1), answer_blocks=answers)
    ends = replace(plain, prompt_tokens=plain.prompt_tokens - np.arange(len(plain)) % 4)
    for rule in (RULES["full"], RULES["partial"]):
        for prompts in (plain, answered, ends):
            fleet = (prompts, rule, Router(name=router), replicas, capacity)
            trees, blocks = serve_by_trees(*fleet, whole_leaves=False), serve_blocks(*fleet)
            assert trees.cached_tokens.tolist() == blocks.cached_tokens.tolist()
            assert trees.replica.tolist() == blocks.replica.tolist()


def test_whole_leaves_find_less_than_blocks() -> None:
    """Six pages, as below, and then the first prompt again: of its four pages a tree still has the
    shared one, blocks have lost the last one only."""
    chains = [[0, 1, 2, 3], [0, 9], [0, 8, 7], [0, 1, 2, 3]]
    prompts = prompts_of([(4 * len(chain), chain) for chain in chains], 4)
    fleet = (prompts, RULES["partial"], Router(name="round-robin"), 1, 6)
    assert serve_by_trees(*fleet).cached_tokens.tolist() == [0, 4, 4, 4]
    assert serve_by_trees(*fleet).evicted_blocks.tolist() == [3 + 1]
    assert serve_blocks(*fleet).cached_tokens.tolist() == [0, 4, 4, 12]


@settings(max_examples=150, deadline=None)
@given(conversations(), st.integers(1, 24))
def test_memory_is_never_exceeded_and_nothing_beats_an_unlimited_tree(
    requests: Requests, capacity: int
) -> None:
    small, large = RadixCache(capacity), RadixCache(10_000)
    for _, chain in requests:
        if len(chain) <= capacity:
            assert serve(small, chain) <= serve(large, chain)
        assert small.resident_pages <= capacity
        assert small.running_pages == 0


def test_a_whole_leaf_goes_at_once() -> None:
    """Six pages. A has three of its own behind one that B shares; one page is needed, three go."""
    cache = RadixCache(6)
    assert serve(cache, [0, 1, 2, 3]) == 0
    assert serve(cache, [0, 9]) == 1
    assert serve(cache, [0, 8, 7]) == 1
    assert cache.evicted_pages == 3
    assert (cache.look_up([0, 1, 2, 3]), cache.look_up([0, 9]), cache.look_up([0, 8, 7])) == (
        1,
        2,
        3,
    )


def test_what_a_request_holds_is_not_freed() -> None:
    cache = RadixCache(4)
    lock = cache.start([0, 1], prompt_pages=2, reusable=2, total_pages=2)
    assert lock is not None
    cache.end_prefill(lock)
    assert cache.start([5, 6, 7], prompt_pages=3, reusable=3, total_pages=3) is None
    assert cache.look_up([0, 1]) == 2
    cache.end(lock)
    assert cache.start([5, 6, 7], prompt_pages=3, reusable=3, total_pages=3) is not None


def test_the_second_copy_of_a_page_is_freed_when_it_is_put_into_the_tree() -> None:
    cache = RadixCache(10)
    locks = [cache.start([0, 1], prompt_pages=2, reusable=2, total_pages=3) for _ in range(2)]
    assert cache.resident_pages == 6
    for lock in locks:
        assert lock is not None
        cache.end_prefill(lock)
    assert cache.resident_pages == 4  # two pages once, and one for the answer of each


def test_t99_a_hit_ends_at_the_first_missing_page() -> None:
    cache = RadixCache(9)
    serve(cache, [2, 3])
    assert cache.look_up([1, 2, 3]) == 0


def test_clear_forgets_and_wrong_sizes_are_refused() -> None:
    cache = RadixCache(3)
    serve(cache, [0, 1])
    cache.clear()
    assert (cache.look_up([0, 1]), cache.resident_pages) == (0, 0)
    with pytest.raises(ValueError, match="never fits"):
        cache.start([0], prompt_pages=1, reusable=1, total_pages=4)
    with pytest.raises(ValueError, match="at least 1"):
        RadixCache(0)
    lock = cache.start([0], prompt_pages=1, reusable=1, total_pages=1)
    assert lock is not None
    with pytest.raises(ValueError, match="held by running"):
        cache.clear()
