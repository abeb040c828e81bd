"""Routers by themselves: what consistent hashing promises, and what a load bound does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.known_blocks import mixed
from replay.routers import ROUTERS, Ring, Router, keys_of, pick
from replay.traffic import Names, Numbers

KEYS: Names = mixed(np.arange(20_000, dtype=np.uint64) + np.uint64(10**9))


def owners_of(keys: Names, replicas: int) -> Numbers:
    ring = Ring.of(replicas)
    return ring.owners[ring.first(keys)].astype(np.int64)


@pytest.mark.parametrize("replicas", [2, 4, 9])
def test_removing_one_replica_moves_only_its_own_keys(replicas: int) -> None:
    """Its own are about 1/N of all, and they spread over those that stay."""
    before, after = owners_of(KEYS, replicas), owners_of(KEYS, replicas - 1)
    moved = before != after
    assert (before[moved] == replicas - 1).all()
    assert moved.mean() == pytest.approx(1 / replicas, rel=0.35)
    assert len(set(after[moved].tolist())) == replicas - 1


def test_keys_spread_evenly() -> None:
    shares = np.bincount(owners_of(KEYS, 8)) / len(KEYS)
    assert shares == pytest.approx(1 / 8, rel=0.35)


def test_a_key_is_the_leading_blocks_or_the_whole_of_a_shorter_prompt() -> None:
    blocks = np.array([5, 6, 7, 5, 6, 8, 5, 9], np.int32)
    starts = np.array([0, 3, 6, 7, 8, 8])
    keys = keys_of(blocks, starts, 2).tolist()
    assert keys[0] == keys[1]  # both begin 5, 6
    assert len({keys[0], keys[2], keys[3], keys[4]}) == 4  # 5 alone, 9 alone, nothing


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=9), st.integers(0, 10**6),
       st.floats(1.0, 3.0))  # fmt: skip
def test_no_replica_above_its_bound_gets_more(loads: list[int], key: int, slack: float) -> None:
    """And one that consistent hashing names and is not above it gets its own."""
    ring = Ring.of(len(loads))
    first = int(ring.first(mixed(np.array([key], np.uint64)))[0])
    taken = np.array(loads, np.int64)
    chosen = pick(
        ROUTERS.index("bounded-load"), 0, first, ring.owners, taken, taken, slack, 1.0, 0, True
    )  # fmt: skip
    limit = slack * (sum(loads) / len(loads))
    assert loads[chosen] <= limit
    if loads[ring.owners[first]] <= limit:
        assert chosen == ring.owners[first]


def test_scored_weighs_what_is_not_cached_against_the_load() -> None:
    """Replica 0 holds all but 100 tokens and has 500 to do, replica 1 holds nothing of 1,000."""
    loads, uncached = np.array([500, 0]), np.array([100, 1000])
    scored, longest = ROUTERS.index("scored"), ROUTERS.index("longest-prefix")
    owners = Ring.of(2).owners

    def chosen(router: int, weight: float) -> int:
        return pick(router, 0, 0, owners, loads, uncached, 1.25, weight, 0, True)

    assert (chosen(scored, 1.0), chosen(scored, 2.0)) == (0, 1)  # 600 < 1000; 1100 > 1000
    assert chosen(longest, 2.0) == 0


@pytest.mark.parametrize("router", ["least-loaded", "scored", "longest-prefix"])
def test_replicas_that_are_alike_take_turns(router: str) -> None:
    alike, owners = np.zeros(3, np.int64), Ring.of(3).owners
    chosen = [
        pick(ROUTERS.index(router), request, 0, owners, alike, alike, 1.25, 1.0, 0, True)
        for request in range(4)
    ]
    assert chosen == [0, 1, 2, 0]


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="known: random"):
        Router(name="roundrobin")
    with pytest.raises(ValueError, match="slack"):
        Router(name="bounded-load", slack=0.5)
