"""Prompts known by their text: whole tokens, nothing lost, and alike where texts begin alike."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.byte_chunks import CHUNK_BYTES, text_chain, text_contents
from replay.causes import CAUSES, attribute
from replay.rules import RULES
from replay.scaled import Scale
from replay.traffic import NOT_REPORTED, Chains, Traffic

# Prompts from few building stones, so that they begin alike and meet again elsewhere.
STONES = st.lists(st.sampled_from([b"a" * 70, b"bc" * 50, b"d" * 9, b"e" * 200]), max_size=8)
# Text and tokens: bytes a token from a half to eight.
REQUESTS = st.lists(
    st.tuples(STONES, st.integers(1, 400), st.one_of(st.none(), st.integers(0, 400))),
    min_size=1, max_size=12,
)  # fmt: skip
RULE_NAMES = st.sampled_from(["full", "partial", "tokens", "openai"])


def traffic_in_units(texts: list[bytes], scale: Scale) -> Traffic:
    contents = [text_contents(text) for text in texts]
    return Traffic(
        prompt_tokens=scale.units(scale.prompt_tokens),
        cached_tokens=scale.units(scale.cached_tokens),
        chains=Chains.of([text_chain(each) for each in contents], 16, contents),
    )


@given(REQUESTS, RULE_NAMES)
@settings(max_examples=80, deadline=None)
def test_causes_of_texts_add_up_to_the_reported_tokens(
    requests: list[tuple[list[bytes], int, int | None]], rule_name: str
) -> None:
    rule = RULES[rule_name].of_blocks(16)
    texts = [b"".join(stones) for stones, _, _ in requests]
    prompt = np.array([tokens for _, tokens, _ in requests])
    cached = np.array(
        [NOT_REPORTED if hit is None else min(hit, tokens) for _, tokens, hit in requests]
    )
    scale = Scale.of(prompt, cached, np.array([len(text) for text in texts]))
    traffic = traffic_in_units(texts, scale)
    found = scale.to_tokens(attribute(traffic, replace(rule, minimum_tokens=0)), rule)
    known = cached != NOT_REPORTED
    sums = sum(found.tokens[name] for name in CAUSES)
    assert (np.where(known, prompt - cached, 0) == sums).all()
    assert all((found.tokens[name] >= 0).all() for name in CAUSES)
    assert (found.prompt_tokens == prompt).all()
    assert (found.cached_tokens == cached).all()
    # What a cache could serve at best is told in tokens, not by the text.
    ceiling = np.maximum(np.minimum(rule.ceiling_tokens(prompt), prompt), cached)
    assert (np.where(known, prompt - ceiling, 0) <= found.tokens["rounding"]).all()


@given(st.binary(max_size=600), st.binary(max_size=300), st.binary(max_size=300))
@settings(max_examples=60, deadline=None)
def test_texts_that_begin_alike_have_chains_that_begin_alike(
    prefix: bytes, one: bytes, other: bytes
) -> None:
    left, right = (text_chain(text_contents(prefix + rest, "k"), "s", "k") for rest in (one, other))
    alike = len(prefix) // CHUNK_BYTES
    assert left[:alike] == right[:alike]
    assert len(left) == len(prefix + one) // CHUNK_BYTES
    # And no further than the bytes do: equal chunks have equal names and no others have.
    same = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    if same is not None:
        end = (same + 1) * CHUNK_BYTES
        assert (prefix + one)[:end] != (prefix + other)[:end]


def test_a_repeat_is_scaled_to_what_the_engine_could_serve() -> None:
    """400 bytes of 100 tokens, sent twice: at 16 tokens a block 96 could be served, 40 were."""
    scale = Scale.of(np.array([100, 100]), np.array([0, 40]), np.array([400, 400]))
    rule = RULES["full"].of_blocks(16)
    found = scale.to_tokens(attribute(traffic_in_units([b"x" * 400] * 2, scale), rule), rule)
    causes = {name: found.tokens[name].tolist() for name in CAUSES if found.tokens[name].any()}
    assert causes == {"evicted": [0, 56], "new": [96, 0], "rounding": [4, 4]}


def test_half_a_prompt_in_common_is_half_of_its_tokens() -> None:
    """Two prompts of 640 bytes, the first half the same; the second has twice the tokens."""
    texts = [b"s" * 320 + b"t" * 320, b"s" * 320 + b"u" * 320]
    scale = Scale.of(np.array([160, 320]), np.array([0, 0]), np.array([640, 640]))
    rule = RULES["full"].of_blocks(16)
    found = scale.to_tokens(attribute(traffic_in_units(texts, scale), rule), rule)
    # Of 144 units below the ceiling 80 were known: 80 / 144 of the 304 tokens below it.
    assert found.tokens["evicted"].tolist() == [0, 80 * 304 // 144]
