"""Beginnings that many callers share: how many, how long, and what one scope for them would win."""

from dataclasses import replace

import numpy as np
import pytest

from replay.hashes import chain_hashes, content_hashes
from replay.public_prefixes import public_prefixes
from replay.rules import CacheRule
from replay.traffic import Chains, Traffic

BLOCKS = CacheRule("test", "test", block_tokens=16)


def asked_of(prompts: list[tuple[int, list[int]]]) -> Traffic:
    """Scopes and prompts, one after the other; a number stands for a block of 16 such tokens."""
    ids = [[number for number in blocks for _ in range(16)] + [7] for _, blocks in prompts]
    return Traffic(
        prompt_tokens=np.array([len(each) for each in ids]),
        cached_tokens=np.zeros(len(ids), np.int64),
        chains=Chains.of(
            [chain_hashes(each, 16, str(scope)) for (scope, _), each in zip(prompts, ids,
                                                                            strict=True)],
            16,
            [content_hashes(each, 16) for each in ids],
        ),
        scope=np.array([scope for scope, _ in prompts]),
    )  # fmt: skip


def test_what_enough_callers_share_is_public_as_far_as_enough_of_them_do() -> None:
    """Six tenants begin with 1, 2, 3; four of them go on with 4; behind it each has its own."""
    prompts = [(tenant, [1, 2, 3, *([4] if tenant < 4 else []), 100 + tenant])
               for tenant in range(6)]  # fmt: skip
    prompts += [(0, [1, 2, 3, 4, 200]), (0, [50, 51])]
    traffic = asked_of(prompts)
    assert traffic.scope is not None
    (found,) = public_prefixes(traffic, BLOCKS, traffic.scope, least_callers=5)
    assert (found.tokens, found.callers, found.scopes, found.requests) == (48, 6, 6, 7)
    # Five of the six first requests would find it; the last finds its tenant's own anyway.
    assert found.won_tokens == 5 * 48
    assert (found.first, found.last) == (0, 6)
    # From four callers on, those that go on with 4 are told apart.
    longer, shorter = public_prefixes(traffic, BLOCKS, traffic.scope, least_callers=4)
    assert (longer.tokens, longer.callers, longer.requests, longer.won_tokens) == (64, 4, 5, 192)
    assert (shorter.tokens, shorter.callers, shorter.requests) == (48, 6, 2)
    assert shorter.won_tokens == 2 * 48


def test_callers_and_not_scopes_make_a_prefix_public() -> None:
    """One tenant that rotates its salt is one caller, whatever the number of scopes."""
    traffic = asked_of([(scope, [1, 2]) for scope in range(9)])
    assert not public_prefixes(traffic, BLOCKS, np.zeros(9, np.int64), least_callers=2)
    assert public_prefixes(traffic, BLOCKS, np.arange(9) % 2, least_callers=2)
    # Five callers in one scope share it as it is.
    same = asked_of([(0, [1, 2])] * 5)
    assert not public_prefixes(same, BLOCKS, np.arange(5))


def test_with_little_memory_less_is_won() -> None:
    """Two scopes take turns and send a long prompt between: a cache of 3 blocks keeps nothing of
    the shared prefix until the next, one of 6 does."""
    prompts = [
        (scope, blocks)
        for scope, own in ((0, 70), (1, 80), (0, 90), (1, 95))
        for blocks in ([1, 2], [own, own + 1, own + 2])
    ]
    traffic = asked_of(prompts)
    callers = np.array([scope for scope, _ in prompts])
    won = [
        sum(
            prefix.won_tokens
            for prefix in public_prefixes(
                traffic, BLOCKS, callers, least_callers=2, capacity_blocks=capacity
            )
        )
        for capacity in (3, 6, None)
    ]
    # Without limit each scope finds its own second time: one request of 2 blocks is won. With 6
    # blocks nothing lasts from one to the next of a scope, but it lasts to the other scope's.
    assert won == [0, 3 * 32, 32]


def test_one_caller_is_refused_and_without_contents_nothing_is_public() -> None:
    traffic = asked_of([(0, [1]), (1, [1])])
    with pytest.raises(ValueError, match="at least 2"):
        public_prefixes(traffic, BLOCKS, np.arange(2), least_callers=1)
    bare = replace(traffic, chains=replace(traffic.chains, contents=None))
    assert not public_prefixes(bare, BLOCKS, np.arange(2), least_callers=2)


def test_the_name_is_the_same_whatever_else_is_there() -> None:
    few = asked_of([(scope, [1, 2, 3]) for scope in range(3)])
    many = asked_of([(5, [9]), *((scope, [1, 2, 3, 20 + scope]) for scope in range(4))])
    names = [
        [prefix.name for prefix in public_prefixes(each, BLOCKS, each.scope, least_callers=3)]
        for each in (few, many)
        if each.scope is not None
    ]
    assert names[0] == names[1]
    assert len(names[0]) == 1
