"""Pieces of prompts survive what stands in front of them."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.causes import attribute
from replay.pieces import text_pieces
from replay.rules import RULES
from replay.traffic import Chains, Traffic
from tests.token_pieces import pieces_of
from tests.unit_causes.captured import BLOCK_TOKENS, Row, rows_of, traffic_of

TOKENS = st.lists(st.integers(0, 5), max_size=200)


@given(TOKENS, TOKENS)
@settings(max_examples=60, deadline=None)
def test_pieces_cover_a_prompt_and_come_again_behind_anything(
    front: list[int], prompt: list[int]
) -> None:
    found = pieces_of([prompt, front + prompt], "key")
    first = slice(found.starts[0], found.starts[1])
    second = slice(found.starts[1], found.starts[2])
    assert found.ends[first].tolist() == sorted(set(found.ends[first].tolist()))
    assert (found.ends[first][-1] if prompt else 0) == len(prompt)
    # All but the piece in which the front ends, cut anew, and its neighbour are the same.
    again = set(found.names[second].tolist())
    lost = [name for name in found.names[first].tolist() if name not in again]
    assert len(lost) <= 4


@given(st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_texts_of_any_length_have_pieces(text: str) -> None:
    """The shortest are shorter than the window that cuts are looked for in."""
    data = text.encode("utf-8", "surrogatepass")
    names, lengths = text_pieces(data)
    assert len(names) == len(lengths)
    assert sum(lengths) == len(data)


def test_a_shift_by_one_token_hides_blocks_and_not_pieces() -> None:
    body = [token * 7919 % 1000 for token in range(640)]
    prompts = [body, [1, *body]]
    traffic = Traffic(
        prompt_tokens=np.array([640, 641]),
        cached_tokens=np.array([0, 0]),
        chains=Chains.of(
            [[1000 * n + block for block in range(40)] for n in (1, 2)], 16,
            [[5000 * n + block for block in range(40)] for n in (1, 2)],
        ),
    )  # fmt: skip
    by_blocks = attribute(traffic, RULES["full"])
    by_pieces = attribute(replace(traffic, pieces=pieces_of(prompts)), RULES["full"])
    assert (by_blocks.tokens["layout"][1], by_blocks.tokens["new"][1]) == (0, 640)
    layout, new = (int(by_pieces.tokens[name][1]) for name in ("layout", "new"))
    assert layout + new == 640
    assert layout > 550


def test_a_timestamp_in_front_of_real_prompts_is_layout_and_nothing_else_changes() -> None:
    rows = rows_of("vllm-0.32.0/main")
    traffic, rule = traffic_of(rows), RULES["vllm"].of_blocks(BLOCK_TOKENS)
    by_blocks = attribute(traffic, rule)
    pieces = pieces_of([row["prompt_token_ids"] for row in rows], "key")
    by_pieces = attribute(replace(traffic, pieces=pieces), rule)
    stamped = [row for row, call in enumerate(rows) if call["kind"] == "timestamped"]
    assert len(stamped) == 6
    for row in stamped:
        layout, new = (int(by_pieces.tokens[name][row]) for name in ("layout", "new"))
        assert layout + new == by_blocks.tokens["layout"][row] + by_blocks.tokens["new"][row]
        # Of some 800 tokens 720 and more are in runs of 16 that earlier prompts had.
        elsewhere = in_earlier_runs(rows, row, 16)
        assert elsewhere > 700
        assert 0.9 * elsewhere < layout <= elsewhere + 8


def in_earlier_runs(rows: list[Row], number: int, run: int) -> int:
    """Tokens of a prompt that lie in runs which an earlier prompt of the same salt had."""
    own, seen = rows[number]["prompt_token_ids"], set()
    for other in rows[:number]:
        if other["cache_salt"] == rows[number]["cache_salt"]:
            ids = other["prompt_token_ids"]
            seen |= {tuple(ids[place : place + run]) for place in range(len(ids) - run + 1)}
    found: set[int] = set()
    for place in range(len(own) - run + 1):
        if tuple(own[place : place + run]) in seen:
            found |= set(range(place, place + run))
    return len(found)
