"""The curve of all capacities against a cache that is simulated block by block."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixscope.traces.file import read_trace
from replay.curve import Curve, curve, curve_of_replicas, curves_of_groups
from replay.prompts import Prompts
from replay.rules import RULES
from replay.traffic import starts_of
from tests.log_path import SHARED

MOONCAKE = SHARED / "traces" / "mooncake-fast25"
CAPACITIES = (100_000, 50_000, 30_000, 20_000, 10_000, 5_000, 2_000, 1_000)
# Unlimited, then the capacities above.
KNOWN = {
    "full": (0.373380, 0.371025, 0.363238, 0.337118, 0.299476, 0.219254, 0.120909, 0.056379,
             0.045933),
    "partial": (0.373624, 0.370844, 0.361530, 0.332153, 0.293475, 0.215748, 0.113995, 0.055366,
                0.045413),
}  # fmt: skip


def prompts_of(requests: list[tuple[int, list[int]]], block_tokens: int) -> Prompts:
    """From (prompt tokens, numbers of its blocks)."""
    count = len(requests)
    return Prompts(
        arrived=np.arange(count, dtype=np.float64),
        prompt_tokens=np.array([tokens for tokens, _ in requests], np.int64),
        output_tokens=np.zeros(count, np.int64),
        blocks=np.array([block for _, chain in requests for block in chain], np.int32),
        starts=starts_of([len(chain) for _, chain in requests]),
        block_tokens=block_tokens,
    )


def simulated(
    requests: list[tuple[int, list[int]]], size: int, partial: bool, capacity: int, first: int
) -> int:
    """Cached tokens, by a list that is kept in order of use."""
    kept: OrderedDict[int, None] = OrderedDict()
    cached = 0
    for number, (tokens, chain) in enumerate(requests):
        best = tokens if partial else (tokens - 1) // size * size
        found = 0
        while found < len(chain) and chain[found] in kept:
            found += 1
        if number >= first:
            cached += min(found * size, best)
        stored = chain if partial else chain[: tokens // size]
        for block in reversed(stored):
            kept[block] = None
            kept.move_to_end(block)
            if len(kept) > capacity:
                kept.popitem(last=False)
    return cached


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[tuple[int, list[int]]], int]:
    """Prompts that share prefixes: each takes some blocks of an earlier one and adds its own."""
    size = draw(st.integers(1, 4))
    requests: list[tuple[int, list[int]]] = []
    fresh = 0
    for _ in range(draw(st.integers(1, 25))):
        old: list[int] = []
        if requests and draw(st.booleans()):
            tokens, chain = requests[draw(st.integers(0, len(requests) - 1))]
            # A partial block is shared only by a prompt that ends with it.
            old = chain if draw(st.booleans()) else chain[: tokens // size]
            old = old[: draw(st.integers(0, len(old)))]
        is_whole = all(block % 2 == 0 for block in old)  # odd numbers name partial blocks
        new = draw(st.integers(0 if old else 1, 4)) if is_whole else 0
        chain = old + [2 * (fresh + k) for k in range(new)]
        fresh += new
        tokens = len(chain) * size
        if new and size > 1 and draw(st.booleans()):
            chain[-1] += 1
            tokens -= draw(st.integers(1, size - 1))
        elif not is_whole:
            tokens = next(t for t, c in requests if c and c[-1] == chain[-1])
        requests.append((tokens, chain))
    return requests, size


@settings(max_examples=150, deadline=None)
@given(traffic(), st.integers(1, 40), st.booleans(), st.integers(0, 5))
def test_every_capacity_is_what_a_simulated_cache_finds(
    given_traffic: tuple[list[tuple[int, list[int]]], int],
    capacity: int,
    partial: bool,
    first: int,
) -> None:
    requests, size = given_traffic
    rule = RULES["partial" if partial else "full"]
    found = curve(prompts_of(requests, size), rule, first)
    assert found.tokens_at(capacity) == simulated(requests, size, partial, capacity, first)
    assert found.tokens_at(found.enough_blocks) == simulated(requests, size, partial, 10**6, first)
    assert (np.diff(found.hit_tokens) >= 0).all()
    assert found.prompt_tokens == sum(tokens for tokens, _ in requests[first:])
    assert found.hit_tokens[-1] <= found.prompt_tokens


def test_by_hand() -> None:
    """Blocks of 4 tokens. A, B, A: with room for A alone B pushes it out; with room for both A is
    found again, but for its last token, so 4 of its 8."""
    requests = [(8, [0, 1]), (8, [2, 3]), (8, [0, 1])]
    full = curve(prompts_of(requests, 4), RULES["full"])
    assert [full.tokens_at(blocks) for blocks in range(1, 6)] == [0, 0, 4, 4, 4]
    partial = curve(prompts_of(requests, 4), RULES["partial"])
    assert [partial.tokens_at(blocks) for blocks in range(1, 6)] == [0, 0, 4, 8, 8]
    assert (partial.enough_blocks, partial.ratio_at(4)) == (4, 8 / 24)
    assert partial.blocks_for(0.5) == 3


def test_what_only_warms_the_cache_is_in_no_figure() -> None:
    requests = [(8, [0, 1]), (8, [0, 1]), (8, [0, 1])]
    found = curve(prompts_of(requests, 4), RULES["partial"], counted_from=2)
    assert (found.prompt_tokens, found.tokens_at(2)) == (8, 8)


def test_replicas_do_not_share() -> None:
    """Two conversations by turns on two replicas: each finds its own; on three nothing is found."""
    requests = [(8, [0, 1]), (8, [2, 3]), (8, [0, 1]), (8, [2, 3])]
    prompts = prompts_of(requests, 4)
    assert curve_of_replicas(prompts, RULES["partial"], 2).tokens_at(2) == 16
    assert curve_of_replicas(prompts, RULES["partial"], 3).tokens_at(9) == 0


@settings(max_examples=40, deadline=None)
@given(traffic(), st.lists(st.integers(-1, 2), min_size=25, max_size=25), st.integers(0, 5))
def test_each_group_has_the_curve_of_its_own_requests(
    given_traffic: tuple[list[tuple[int, list[int]]], int], labels: list[int], first: int
) -> None:
    """As if nothing else had been asked, near each other or far apart in numbers."""
    requests, size = given_traffic
    groups = np.array(labels[: len(requests)], np.int64)
    far = [(tokens, [1000 * block for block in chain]) for tokens, chain in requests]
    for each in (requests, far):
        curves = curves_of_groups(prompts_of(each, size), RULES["full"], groups, first)
        assert len(curves) == groups.max() + 1
        for group, found in enumerate(curves):
            own = [each[place] for place in np.flatnonzero(groups == group)]
            alone = simulated(own, size, False, 3, int((groups[:first] == group).sum()))
            assert found.tokens_at(3) == alone


def test_the_knee_is_where_a_block_more_wins_less_than_on_average() -> None:
    """8 tokens in 4 blocks are 2 a block: the second wins 5, those behind it 1 and 2."""
    found = Curve(np.array([0, 0, 5, 6, 8]), 20)
    assert found.knee_blocks() == 2
    assert Curve(np.array([0, 2, 4, 6]), 20).knee_blocks() == 3, "each wins as much as the other"
    assert Curve(np.array([0]), 20).knee_blocks() == 0


def test_no_request_has_no_ratio() -> None:
    empty = curve(prompts_of([], 4), RULES["full"])
    assert (empty.ratio_at(10), empty.enough_blocks) == (None, 0)


def test_a_lifetime_is_no_matter_of_memory() -> None:
    with pytest.raises(ValueError, match="lifetime"):
        curve(prompts_of([(8, [0, 1])], 4), RULES["anthropic"])


def mooncake(name: str) -> Path:
    path = MOONCAKE / name
    if not path.exists():
        pytest.skip("the public traces are not beside the project")
    return path


@pytest.mark.parametrize("rule", KNOWN)
def test_the_conversation_trace_to_six_digits(rule: str) -> None:
    prompts = read_trace([mooncake("conversation_trace.jsonl.gz")]).prompts
    found = curve(prompts, RULES[rule])
    ratios = [found.ratio_at(blocks) for blocks in (10**9, *CAPACITIES)]
    assert [round(ratio or 0, 6) for ratio in ratios] == list(KNOWN[rule])


def test_four_replicas_by_turns() -> None:
    """4 × 5,000 blocks and unlimited, as another implementation counts them."""
    prompts = read_trace([mooncake("conversation_trace.jsonl.gz")]).prompts
    known = {"full": (0.1260, 0.1955), "partial": (0.1239, 0.1956)}
    for rule, expected in known.items():
        found = curve_of_replicas(prompts, RULES[rule], 4)
        ratios = (found.ratio_at(5_000), found.ratio_at(10**9))
        assert tuple(round(ratio or 0, 4) for ratio in ratios) == expected


def test_the_synthetic_trace_without_a_limit() -> None:
    prompts = read_trace([mooncake("synthetic_trace.jsonl.gz")]).prompts
    ratios = [curve(prompts, RULES[rule]).ratio_at(10**9) for rule in ("full", "partial")]
    assert [round(ratio or 0, 6) for ratio in ratios] == [0.650431, 0.651244]
