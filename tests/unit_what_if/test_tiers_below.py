"""Tiers below the device: against a plain simulation of lists, and by hand."""

from collections import OrderedDict
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.clock import Tier
from replay.rules import RULES
from replay.tier_below import NONE, Below, empty_below
from replay.timed import serve_timed
from replay.traffic import Moments
from tests.unit_what_if.fleets import Requests, at, cached, conversations, fleet, ttft

PARTIAL = RULES["partial"]
SPEED = 1e4  # KV tokens a second: ten times as fast as they are computed


class PlainTier:
    """Blocks in the order of their use."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.kept: OrderedDict[int, None] = OrderedDict()
        self.written = 0

    def keep(self, block: int) -> int | None:
        """Returns what falls out."""
        self.written += block not in self.kept and self.tier.capacity_blocks > 0
        self.kept[block] = None
        self.kept.move_to_end(block)
        over = len(self.kept) > self.tier.capacity_blocks
        if self.tier.capacity_blocks == 0:
            del self.kept[block]
            return block
        return self.kept.popitem(last=False)[0] if over else None


class PlainHierarchy:
    """One device and its tiers, asked by one request after the other."""

    def __init__(self, capacity: int, tiers: tuple[Tier, ...]) -> None:
        self.capacity = capacity
        self.device: OrderedDict[int, None] = OrderedDict()
        self.tiers = [PlainTier(tier) for tier in tiers]

    def serve(self, chain: list[int]) -> tuple[int, list[int]]:
        """Leading blocks that are there, and how many of them come from each tier."""
        hits = 0
        while hits < len(chain) and any(chain[hits] in place for place in self.places()):
            hits += 1
        loaded = [0] * len(self.tiers)
        for block in reversed(chain[:hits]):
            if block not in self.device:
                level = next(n for n, tier in enumerate(self.tiers) if block in tier.kept)
                loaded[level] += 1
                self.tiers[level].kept.move_to_end(block)
        held = [block for block in chain[:hits] if block in self.device]
        for block in held:
            del self.device[block]
        while len(self.device) + len(chain) > self.capacity:
            self.fall(0, self.device.popitem(last=False)[0])
        fresh = [block for block in chain if block not in held]
        for level, tier in enumerate(self.tiers):
            for block in fresh if tier.tier.writes_through else []:
                self.fall(level + 1, tier.keep(block))
        for block in reversed(chain):
            self.device[block] = None
        return hits, loaded

    def places(self) -> list[OrderedDict[int, None]]:
        return [self.device, *(tier.kept for tier in self.tiers)]

    def fall(self, level: int, block: int | None) -> None:
        if block is None or level == len(self.tiers) or self.tiers[level].tier.writes_through:
            return
        self.fall(level + 1, self.tiers[level].keep(block))


@st.composite
def tiers_of(draw: st.DrawFn) -> tuple[Tier, ...]:
    """Up to three, of any size and way of writing."""
    return tuple(
        Tier(name=f"tier {level}", capacity_blocks=draw(st.integers(0, 12)),
             tokens_per_second=SPEED, writes_through=draw(st.booleans()))
        for level in range(draw(st.integers(1, 3)))
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(conversations(), tiers_of(), st.integers(1, 12))
def test_every_block_comes_from_where_plain_lists_have_it(
    requests: Requests, tiers: tuple[Tier, ...], capacity: int
) -> None:
    """One request a second, so that none waits for another."""
    requests = [(tokens, chain) for tokens, chain in requests if len(chain) <= capacity]
    plain = PlainHierarchy(capacity, tiers)
    expected = [plain.serve(chain) for _, chain in requests]
    prompts = at(requests, [float(number) for number in range(len(requests))])
    served = serve_timed(prompts, PARTIAL, fleet(capacity=capacity, tiers=tiers))
    assert cached(served) == [4 * hits for hits, _ in expected]
    assert served.loaded_by_tier.tolist() == [[4 * each for each in row] for _, row in expected]
    assert served.stored_by_tier.tolist() == [tier.written for tier in plain.tiers]
    computed = prompts.prompt_tokens - served.cached_tokens
    taken = computed / 1000 + served.loaded_tokens / SPEED
    np.testing.assert_allclose(served.prefill_seconds, taken, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(conversations(), tiers_of(), st.integers(1, 3), st.booleans(), st.integers(4, 30),
       st.lists(st.floats(0, 0.5), max_size=2))  # fmt: skip
def test_t103_no_tier_holds_more_than_it_may_or_a_block_twice(
    requests: Requests,
    tiers: tuple[Tier, ...],
    replicas: int,
    shared: bool,
    capacity: int,
    resets: list[float],
) -> None:
    made: list[Below] = []

    def kept(*sizes: object) -> Below:
        made.append(empty_below(*sizes))  # type: ignore[arg-type]
        return made[-1]

    tiers = (*tiers[:-1], replace(tiers[-1], is_shared=shared))
    moments = Moments.of([(number % replicas, moment) for number, moment in enumerate(resets)])
    wanted = fleet("scored", replicas, capacity, tiers=tiers, resets=moments)
    prompts = at(requests, [0.01 * number for number in range(len(requests))], [3] * len(requests))
    with patch("replay.timed.empty_below", kept):
        served = serve_timed(prompts, PARTIAL, wanted)
    (below,) = made
    assert (served.loaded_tokens <= served.cached_tokens).all()
    assert (served.cached_tokens <= prompts.prompt_tokens).all()
    for shelf in range(below.slot.shape[1]):
        level = next(n for n, own in enumerate(below.shelves) if shelf in own)
        places = below.slot[:, shelf][below.slot[:, shelf] != NONE]
        begin = int(below.begins[shelf])
        assert sorted(places - begin) == list(range(int(below.counts[shelf, 0])))
        assert len(places) <= tiers[level].capacity_blocks


def test_a_tier_below_gives_back_what_the_device_lost() -> None:
    """Two blocks fit the device. A, B, A: B pushes A out, to the tier below; A comes back, 8 tokens
    at 10,000 a second after 1 ms: 1.8 ms, and nothing is left to compute. Then B, likewise."""
    requests = [(8, [0, 1]), (8, [2, 3]), (8, [0, 1]), (8, [2, 3])]
    prompts = at(requests, [0.0, 1.0, 2.0, 3.0])
    tier = Tier(name="host", capacity_blocks=4, tokens_per_second=1e4, latency_seconds=0.001)
    served = serve_timed(prompts, PARTIAL, fleet(capacity=2, tiers=(tier,)))
    assert cached(served) == [0, 0, 8, 8]
    assert served.loaded_tokens.tolist() == [0, 0, 8, 8]
    assert ttft(served) == [0.008, 0.008, 0.0018, 0.0018]
    assert served.stored_blocks == 4  # A once and B once: each is still below when it goes again
    without = serve_timed(prompts, PARTIAL, fleet(capacity=2))
    assert cached(without) == [0, 0, 0, 0]
    small = replace(tier, capacity_blocks=1)
    assert cached(serve_timed(prompts, PARTIAL, fleet(capacity=2, tiers=(small,)))) == [0, 0, 4, 4]


def test_loading_and_computing_may_go_on_at_once() -> None:
    """8 of 12 tokens come back in 0.8 ms while 4 are computed in 4 ms."""
    requests = [(8, [0, 1]), (12, [2, 3, 4]), (12, [0, 1, 5])]
    prompts = at(requests, [0.0, 1.0, 2.0])
    tier = Tier(name="host", capacity_blocks=9, tokens_per_second=1e4)
    one = serve_timed(prompts, PARTIAL, fleet(capacity=3, tiers=(tier,)))
    both = serve_timed(prompts, PARTIAL, fleet(capacity=3, tiers=(replace(tier, overlaps=True),)))
    assert (cached(one)[2], cached(both)[2]) == (8, 8)
    assert (ttft(one)[2], ttft(both)[2]) == (0.0048, 0.004)


def test_a_shared_tier_serves_what_another_replica_wrote() -> None:
    prompts = at([(8, [0, 1]), (8, [0, 1])], [0.0, 1.0])
    own = Tier(name="host", capacity_blocks=9, tokens_per_second=1e4, writes_through=True)
    found = [
        cached(serve_timed(prompts, PARTIAL, fleet(replicas=2, tiers=(tier,))))
        for tier in (own, replace(own, is_shared=True))
    ]
    assert found == [[0, 0], [0, 8]]


def test_a_reset_of_any_replica_with_and_without_a_tier() -> None:
    """Replica 1 forgets; 0 does not. A tier of its own goes with it, a shared one stays."""
    prompts = at([(8, [0, 1])] * 4, [0.0, 1.0, 10.0, 11.0])
    own = Tier(name="host", capacity_blocks=9, tokens_per_second=1e4, writes_through=True)
    found = []
    for tiers in ((), (own,), (replace(own, is_shared=True),)):
        wanted = fleet(replicas=2, tiers=tiers, resets=Moments.of([(1, 5.0)]))
        found.append(cached(serve_timed(prompts, PARTIAL, wanted)))
    assert found == [[0, 0, 8, 0], [0, 0, 8, 0], [0, 8, 8, 8]]


def test_what_a_tier_loses_falls_to_the_next_and_comes_back_from_there() -> None:
    """A device of two blocks, a host of two, a disk of four; A, B, C of two blocks each.

    C pushes B to the host, and that A to the disk, from where A comes back: 8 tokens at 2,000 a
    second after 1 ms, 5 ms. That pushes C to the host and B to the disk; B comes back, which pushes
    A to the host, and C to the disk in A's place there. A comes back from the host, and B pushes it
    to the disk again: ten blocks went to the host, eight to the disk."""
    requests = [(8, [0, 1]), (8, [2, 3]), (8, [4, 5]), (8, [0, 1]), (8, [2, 3]), (8, [0, 1])]
    prompts = at(requests, [float(number) for number in range(6)])
    host = Tier(name="host", capacity_blocks=2, tokens_per_second=SPEED)
    disk = Tier(name="disk", capacity_blocks=4, tokens_per_second=2e3, latency_seconds=0.001)
    served = serve_timed(prompts, PARTIAL, fleet(capacity=2, tiers=(host, disk)))
    assert served.loaded_by_tier.tolist() == [[0, 0]] * 3 + [[0, 8], [0, 8], [8, 0]]
    assert ttft(served) == [0.008] * 3 + [0.005, 0.005, 0.0008]
    assert served.stored_by_tier.tolist() == [10, 8]
    assert served.stored_blocks == 18


def test_a_tier_written_through_has_what_falls_before_it_falls() -> None:
    """A host of one block and a disk with everything that was computed, written once."""
    requests = [(8, [0, 1]), (8, [2, 3]), (8, [0, 1])]
    prompts = at(requests, [0.0, 1.0, 2.0])
    host = Tier(name="host", capacity_blocks=1, tokens_per_second=SPEED)
    disk = Tier(name="disk", capacity_blocks=9, tokens_per_second=SPEED, writes_through=True)
    served = serve_timed(prompts, PARTIAL, fleet(capacity=2, tiers=(host, disk)))
    assert served.loaded_by_tier.tolist() == [[0, 0], [0, 0], [4, 4]]
    assert served.stored_by_tier.tolist() == [4, 4]


def test_a_clipped_last_block_is_loaded_as_far_as_it_is_wanted() -> None:
    """Six tokens: a block of four and half of another one."""
    prompts = at([(6, [0, 1]), (8, [2, 3]), (6, [0, 1])], [0.0, 1.0, 2.0])
    host = Tier(name="host", capacity_blocks=4, tokens_per_second=SPEED)
    served = serve_timed(prompts, PARTIAL, fleet(capacity=2, tiers=(host,)))
    assert served.loaded_by_tier.tolist() == [[0], [0], [6]]
    assert ttft(served)[2] == 0.0006


def test_a_large_tier_makes_up_for_a_small_device() -> None:
    """All that was computed is found, as in a cache that never loses a block."""
    groups = np.random.default_rng(3).integers(0, 6, 60)
    requests = [(12, [group, 10 + group, 100 + own]) for own, group in enumerate(groups.tolist())]
    prompts = at(requests, [float(number) for number in range(60)])
    host = Tier(name="host", capacity_blocks=7, tokens_per_second=SPEED)
    remote = replace(host, name="remote", capacity_blocks=10**6, writes_through=True)
    unlimited = serve_timed(prompts, PARTIAL, fleet(capacity=10**6))
    found = serve_timed(prompts, PARTIAL, fleet(capacity=3, tiers=(host, remote)))
    without = serve_timed(prompts, PARTIAL, fleet(capacity=3, tiers=(host,)))
    assert cached(found) == cached(unlimited)
    assert sum(cached(without)) < sum(cached(unlimited))
