"""What one scope for all wins: a replay and the audit of isolation agree to the token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.curve import curve
from replay.isolation import Scopes
from replay.prompts import Prompts
from replay.rules import RULES
from replay.traffic import Chains, Traffic
from tests.unit_what_if.test_recorded_rows import named, recorded

# Scope, contents of blocks of 16 tokens, and tokens behind the last of them.
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.lists(st.integers(1, 3), min_size=1, max_size=6),
        st.integers(0, 15),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("block_tokens", [16, 32])
@settings(max_examples=40, deadline=None)
@given(REQUESTS)
def test_a_replay_of_merged_scopes_wins_what_isolation_says_they_keep_apart(
    block_tokens: int, requests: list[tuple[str, list[int], int]]
) -> None:
    """In a cache that is never full, by order of requests: the audit counts blocks that others had
    and none of the own scope, a replay runs both."""
    rule = RULES["full"].of_blocks(block_tokens)
    names = [named(scope, contents) for scope, contents, _ in requests]
    held = [contents for _, contents, _ in requests]
    tokens = [16 * len(contents) + more for _, contents, more in requests]
    found = recorded(
        block_hashes=names,
        content_hashes=held,
        scope=[scope for scope, _, _ in requests],
        prompt_tokens=tokens,
    )
    traffic = Traffic(
        prompt_tokens=np.array(tokens),
        cached_tokens=np.zeros(len(tokens), np.int64),
        chains=Chains.of(names, 16, held),
        scope=np.array(["abc".index(scope) for scope, _, _ in requests]),
    )
    pairs = Scopes.of(traffic, rule).merged()
    assert pairs is not None
    assert found.merged is not None

    def unlimited_tokens(prompts: Prompts) -> int:
        told = curve(prompts.of_blocks(block_tokens), rule)
        return told.tokens_at(told.enough_blocks)

    won = unlimited_tokens(found.merged) - unlimited_tokens(found.prompts)
    assert won == int(pairs.tokens.sum())
