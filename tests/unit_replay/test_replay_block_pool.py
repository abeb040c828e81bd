"""The block pool against a slow reference that keeps every physical block in a list."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.blocks import BlockPool, Lease, reusable_blocks
from replay.hashes import chain_hashes


def start(pool: BlockPool, chain: list[int], *, prompt_blocks: int | None = None) -> Lease | None:
    """Start a request whose last, partial prompt block takes one block more."""
    return pool.start(
        chain,
        prompt_blocks=len(chain) if prompt_blocks is None else prompt_blocks,
        reusable=len(chain),
        total_blocks=len(chain) + 1,
    )


def serve(pool: BlockPool, chain: list[int]) -> int:
    """Run one request from start to end with nothing beside it; returns its hit blocks."""
    lease = start(pool, chain)
    assert lease is not None
    pool.end_prefill(lease)
    pool.end(lease)
    return lease.hit_blocks


@dataclass
class Slot:
    """One physical block of the reference."""

    name: int | None = None
    holders: list[int] = field(default_factory=list)
    freed_at: int = 0


class ReferencePool:
    """The same rules over physical blocks; every step is a search through all of them."""

    def __init__(self, capacity: int) -> None:
        self.slots = [Slot() for _ in range(capacity)]
        self.clock = 0

    def find(self, name: int) -> Slot | None:
        return next((slot for slot in self.slots if slot.name == name), None)

    def start(self, request: int, chain: list[int], reusable: int, total: int) -> int | None:
        hits: list[Slot] = []
        for name in chain[:reusable]:
            slot = self.find(name)
            if slot is None:
                break
            hits.append(slot)
        available = [s for s in self.slots if not s.holders and not any(s is h for h in hits)]
        if len(available) < total - len(hits):
            return None
        empty_first = sorted(available, key=lambda s: (s.name is not None, s.freed_at))
        for slot in empty_first[: total - len(hits)]:
            slot.name = None
            slot.holders = [request]
        for slot in hits:
            slot.holders.append(request)
        return len(hits)

    def publish(self, request: int, names: list[int]) -> None:
        for name in names:
            if self.find(name) is None:
                unnamed = next(s for s in self.slots if s.holders == [request] and s.name is None)
                unnamed.name = name

    def end(self, request: int, chain: list[int]) -> None:
        order = {name: position for position, name in enumerate(chain)}
        mine = [slot for slot in self.slots if request in slot.holders]
        for slot in sorted(mine, key=lambda s: -order.get(s.name or 0, -1)):
            slot.holders.remove(request)
            if not slot.holders:
                self.clock += 1
                slot.freed_at = self.clock


# A chain is a path in a small tree, so that prompts share heads of different lengths.
chains = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(
    lambda path: [int("".join(map(str, path[: depth + 1]))) for depth in range(len(path))]
)
requests = st.tuples(chains, st.integers(0, 5), st.integers(0, 5), st.integers(0, 2))
steps = st.lists(st.tuples(st.sampled_from(["start", "prefill", "end"]), requests), max_size=60)


@given(capacity=st.integers(7, 9), steps=steps)
def test_pool_equals_reference_and_t103_stays_within_capacity(
    capacity: int, steps: list[tuple[str, tuple[list[int], int, int, int]]]
) -> None:
    pool, reference = BlockPool(capacity), ReferencePool(capacity)
    running: list[tuple[int, Lease, list[int], bool]] = []
    for number, (action, (chain, prompt, reusable, extra)) in enumerate(steps):
        if action == "start":
            prompt_blocks = min(prompt, len(chain))
            limit = min(reusable, prompt_blocks)
            lease = pool.start(
                chain,
                prompt_blocks=prompt_blocks,
                reusable=reusable,
                total_blocks=len(chain) + extra,
            )
            expected = reference.start(number, chain, limit, len(chain) + extra)
            assert (lease.hit_blocks if lease else None) == expected
            if lease:
                running.append((number, lease, chain, False))
        elif action == "prefill" and any(not done for *_, done in running):
            position = next(i for i, entry in enumerate(running) if not entry[3])
            request, lease, its_chain, _ = running[position]
            pool.end_prefill(lease)
            reference.publish(request, its_chain[: lease.prompt_blocks])
            running[position] = (request, lease, its_chain, True)
        elif action == "end" and any(done for *_, done in running):
            position = next(i for i, entry in enumerate(running) if entry[3])
            request, lease, its_chain, _ = running.pop(position)
            pool.end(lease)
            # The prompt was named, or found named elsewhere, when its prefill ended; a second
            # copy stays without a name even if the first has been evicted since.
            reference.publish(request, its_chain[lease.prompt_blocks :])
            reference.end(request, its_chain)
        assert pool.resident_blocks <= capacity
        assert pool.running_blocks == sum(1 for slot in reference.slots if slot.holders)
        named = [slot for slot in reference.slots if slot.name is not None and not slot.holders]
        assert pool.cached_blocks == len(named)


@given(capacity=st.integers(6, 12), prompts=st.lists(chains, max_size=40))
def test_t103_finite_cache_never_beats_an_unlimited_one(
    capacity: int, prompts: list[list[int]]
) -> None:
    finite, unlimited = BlockPool(capacity), BlockPool(10_000)
    for chain in prompts:
        hits, most = serve(finite, chain), serve(unlimited, chain)
        assert hits <= most <= len(chain)
        assert finite.resident_blocks <= capacity


def test_t103_concurrent_requests_beyond_capacity_wait() -> None:
    pool = BlockPool(68)
    leases = [
        pool.start([number], prompt_blocks=1, reusable=0, total_blocks=1) for number in range(1024)
    ]
    assert [lease is not None for lease in leases] == [True] * 68 + [False] * 956
    assert pool.resident_blocks == pool.running_blocks == 68


def test_t99_hit_stops_at_the_first_missing_block() -> None:
    pool = BlockPool(10)
    serve(pool, [2, 3])
    assert pool.look_up([1, 2, 3]) == 0
    assert serve(pool, [1, 2, 3]) == 0


def test_last_prompt_token_is_always_computed() -> None:
    # From a real engine: an exact repeat of 96 tokens reuses 64, of 773 tokens 768, B = 32.
    assert reusable_blocks(96, 32) * 32 == 64
    assert reusable_blocks(773, 32) * 32 == 768
    assert reusable_blocks(0, 32) == 0


def test_blocks_are_reusable_from_the_end_of_their_prefill() -> None:
    pool = BlockPool(20)
    first = start(pool, [1, 2, 3], prompt_blocks=2)
    assert first is not None
    assert pool.look_up([1, 2, 3]) == 0
    pool.end_prefill(first)
    assert pool.look_up([1, 2, 3]) == 2  # 3 is being generated
    pool.end(first)
    assert pool.look_up([1, 2, 3]) == 3


def test_tail_is_evicted_before_the_head() -> None:
    pool = BlockPool(4)
    serve(pool, [1, 2, 3])
    serve(pool, [7, 8])  # needs 3 blocks of 4, one is free: evicts 3 and 2
    assert pool.look_up([1, 2, 3]) == 1
    assert pool.evicted_blocks == 2


def test_nothing_is_evicted_while_memory_is_free() -> None:
    pool = BlockPool(100)
    for number in range(20):
        serve(pool, [10 * number, 10 * number + 1])
    assert (pool.cached_blocks, pool.evicted_blocks) == (40, 0)


def test_running_requests_take_memory_from_the_cache() -> None:
    pool = BlockPool(6)
    serve(pool, [1, 2, 3])
    lease = start(pool, [7, 8, 9, 10, 11])
    assert lease is not None
    assert (pool.running_blocks, pool.cached_blocks) == (6, 0)
    assert start(pool, [12]) is None


def test_reused_blocks_count_as_memory_of_the_request() -> None:
    pool = BlockPool(6)
    serve(pool, [1, 2, 3])
    assert start(pool, [7]) is not None  # 2 blocks run, 3 are cached
    # 3 reused and 2 fresh blocks beside the 2 that run are 7, although only 4 are not cached.
    assert start(pool, [1, 2, 3, 4]) is None
    assert start(pool, [1, 2, 3]) is not None


def test_second_copy_of_a_block_is_not_kept() -> None:
    pool = BlockPool(20)
    first, second = start(pool, [1, 2]), start(pool, [1, 2])
    assert first is not None
    assert second is not None
    for lease in (first, second):
        pool.end_prefill(lease)
    assert pool.running_blocks == 6
    for lease in (first, second):
        pool.end(lease)
    assert (pool.running_blocks, pool.cached_blocks) == (0, 2)


def test_clear_forgets_and_refuses_while_requests_run() -> None:
    pool = BlockPool(10)
    serve(pool, [1, 2])
    pool.clear()
    assert pool.look_up([1, 2]) == 0
    start(pool, [1, 2])
    with pytest.raises(ValueError, match="3 blocks are held"):
        pool.clear()


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(0)
    with pytest.raises(ValueError, match="never fits"):
        start(BlockPool(2), [1, 2])
    with pytest.raises(ValueError, match="grain_tokens"):
        chain_hashes([1], 0)


@given(
    tokens=st.lists(st.integers(0, 9), max_size=40),
    cut=st.integers(0, 40),
    block_tokens=st.integers(1, 7),
)
def test_chain_hash_names_a_block_and_all_before_it(
    tokens: list[int], cut: int, block_tokens: int
) -> None:
    chain = chain_hashes(tokens, block_tokens)
    assert len(chain) == len(set(chain)) == len(tokens) // block_tokens
    shorter = tokens[:cut]
    assert chain_hashes(shorter, block_tokens) == chain[: len(shorter) // block_tokens]
    if chain:
        changed = [tokens[0] + 1, *tokens[1:]]
        assert not set(chain) & set(chain_hashes(changed, block_tokens))
        assert not set(chain) & set(chain_hashes(tokens, block_tokens, scope="other"))
