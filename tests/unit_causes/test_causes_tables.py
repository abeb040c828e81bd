"""The tables behind the causes, and that their other ways of looking up say the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay import known_blocks
from replay.causes import CAUSES, attribute
from replay.known_blocks import Blocks, Firsts, Spans, numbered, paired
from replay.traffic import starts_of
from tests.unit_causes.worlds import fleet_of, rule_of, traffic_of, world_of

NUMBERS = st.integers(0, 2**64 - 1)
# Few of them differ in the bits that tables go by.
CLASHING = st.integers(0, 60).map(lambda number: number << 58)


@given(st.lists(st.one_of(NUMBERS, CLASHING, st.integers(0, 5)), max_size=80))
@settings(max_examples=100, deadline=None)
def test_names_are_numbered_in_the_order_in_which_they_appear(names: list[int]) -> None:
    order: dict[int, int] = {}
    for name in names:
        order.setdefault(name, len(order))
    numbers, count = numbered(np.array(names, np.uint64))
    assert numbers.tolist() == [order[name] for name in names]
    assert count == len(order)


@pytest.mark.parametrize("dense_keys", [0, 1 << 20])
def test_the_smallest_of_each_key(monkeypatch: pytest.MonkeyPatch, dense_keys: int) -> None:
    monkeypatch.setattr(known_blocks, "_DENSE_KEYS", dense_keys)
    keys, values = np.array([5, 2, 5, 9], np.int64), np.array([7, 3, 4, 1], np.int32)
    firsts = Firsts(keys, values, 10)
    never = known_blocks.NEVER
    assert firsts.of(np.array([5, 2, 9, 0, 8])).tolist() == [4, 3, 1, never, never]
    assert Firsts(keys[:0], values[:0], 10).of(np.array([5])).tolist() == [never]


def test_spans_hold_from_their_start_until_before_their_end() -> None:
    spans = Spans(
        np.array([1, 1, 2]), np.array([0, 4, 3], np.int32), np.array([9, 5, 4], np.int32), 10
    )
    asked = [(1, 0), (1, 8), (1, 9), (2, 2), (2, 3), (2, 4), (3, 3)]
    keys, at = (np.array(column) for column in zip(*asked, strict=True))
    # The longer of two that overlap holds on after the shorter has ended.
    assert spans.hold(keys, at).tolist() == [True, True, False, False, True, False, False]


def test_pairs_of_large_numbers_stay_different() -> None:
    left, right = np.array([2**30, 2**30], np.int64), np.array([5, 6], np.int64)
    assert paired(left, right, 1000).tolist() == [2**30 * 1000 + 5, 2**30 * 1000 + 6]


@pytest.mark.parametrize("dense_keys", [0, 1 << 20])
def test_blocks_apart_are_the_same_only_within_a_space(
    monkeypatch: pytest.MonkeyPatch, dense_keys: int
) -> None:
    monkeypatch.setattr(known_blocks, "_DENSE_KEYS", dense_keys)
    names, starts = np.array([7, 8, 7, 7], np.uint64), starts_of([2, 1, 1])
    block = Blocks.of(names, starts).apart(np.array([0, 1, 0])).block.tolist()
    assert block[0] == block[3]
    assert len(set(block)) == 3


def test_causes_are_the_same_where_tables_would_be_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(60):
        world = world_of(seed)
        given_ = traffic_of(world), rule_of(world), fleet_of(world)
        dense = attribute(*given_)
        with monkeypatch.context() as patched:
            patched.setattr(known_blocks, "_DENSE_KEYS", 0)
            sparse = attribute(*given_)
        for name in CAUSES:
            assert (dense.tokens[name] == sparse.tokens[name]).all(), (seed, name)
