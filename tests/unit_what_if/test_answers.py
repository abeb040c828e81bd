"""Answers that the next turn names: who is believed to send one again, and who finds it."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.answers import NONE, following_turns, with_answers
from replay.clock import Clock
from replay.curve import curve
from replay.prompts import Prompts
from replay.recorded import Recorded
from replay.recorded_rows import recorded_rows
from replay.routers import Router
from replay.rules import RULES
from replay.timed import Fleet, serve_timed
from replay.traffic import starts_of
from replay.untimed import serve
from tests.unit_what_if.test_recorded_rows import chains

RULE = RULES["full"].of_blocks(16)
ONE = Router(name="round-robin")


def recorded(cached: int | None = 64, **columns: list[object]) -> Recorded:
    """A prompt of 40 tokens, two whole blocks, answered with 26, of which all but the last have KV:
    65 tokens fill four blocks. The next turn sends all of it again and was served `cached`."""
    rows: dict[str, list[object]] = {
        "block_hashes": [[1, 2], [1, 2, 3, 4, 5]], "prompt_tokens": [40, 85],
        "output_tokens": [26, 1], "session": ["s", "s"], "cached_tokens": [0, cached],
        "content_hashes": [[11, 12], [11, 12, 13, 14, 15]],
    }  # fmt: skip
    found = recorded_rows(chains(**rows | columns))
    assert found is not None
    return found.recorded


def test_what_was_found_of_an_answer_names_it() -> None:
    found = recorded()
    for prompts in (found.prompts, found.merged):
        assert prompts is not None
        assert prompts.blocks.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
        assert prompts.answer_blocks is not None
        assert prompts.answer_blocks.tolist() == [2, 0]
        assert prompts.lengths.tolist() == [2, 5]
        assert prompts.stored_blocks(RULE).tolist() == [2, 5]
        assert prompts.kept_blocks(RULE).tolist() == [4, 5]
    larger = found.prompts.of_blocks(32)
    assert larger.blocks.tolist() == [0, 1, 0, 1]
    assert larger.answer_blocks is not None
    assert (larger.lengths.tolist(), larger.answer_blocks.tolist()) == ([1, 2], [1, 0])
    second = found.prompts.picked(np.array([False, True]))
    assert (second.blocks.tolist(), second.lengths.tolist()) == ([0, 1, 2, 3, 4], [5])


def test_answers_that_count_are_told_with_the_traffic() -> None:
    """What was cached decides that they do, so it is said beside every figure."""
    told = {"block_hashes": [[1, 2], [1, 2, 3, 4, 5]], "prompt_tokens": [40, 85],
            "output_tokens": [26, 1], "session": ["s", "s"]}  # fmt: skip
    named = "the next turn can find the answers of 1, as what was cached of their template proves"
    for cached, words in ((64, f"2 requests of m; {named}"), (32, "2 requests of m")):
        found = recorded_rows(chains(**told, cached_tokens=[0, cached]))
        assert found is not None
        assert found.words() == words


@pytest.mark.parametrize(
    "told",
    [
        {"cached": 32},  # all of the earlier prompt, and nothing of what follows
        {
            "cached": 48,
            "prompt_tokens": [48, 85],
            "block_hashes": [[1, 2, 3], [1, 2, 3, 4, 5]],
            "content_hashes": [None, None],
        },  # the same, where the prompt is whole blocks
        {"cached": None},
        {"session": ["s", "t"]},
        {"session": ["", ""]},
        {"block_hashes": [[1, 2], [1, 9, 3, 4, 5]]},
        {"output_tokens": [1, 1]},
        {"output_tokens": [None, None]},
    ],
)
def test_nothing_else_does(told: dict[str, object]) -> None:
    prompts = recorded(**told).prompts  # type: ignore[arg-type]
    assert prompts.answer_blocks is None
    assert np.diff(prompts.starts).tolist() == prompts.lengths.tolist()
    assert len(prompts.blocks) == prompts.lengths.sum() in (7, 8)


@pytest.mark.parametrize(("served", "named"), [([64, 32, 32], 0), ([64, 64, 32], 3),
                                               ([64, 0, 0], 3)])  # fmt: skip
def test_most_of_a_kind_decide_for_all_of_it(served: list[int], named: int) -> None:
    """Those that lost even the earlier prompt tell nothing of how answers are sent again."""
    found = recorded(
        block_hashes=[[1, 2], [1, 2, 3, 4, 5]] * 3, prompt_tokens=[40, 85] * 3,
        output_tokens=[26, 1] * 3, session=["a", "a", "b", "b", "c", "c"],
        cached_tokens=[0, served[0], 0, served[1], 0, served[2]], content_hashes=[None] * 6,
    )  # fmt: skip
    answers = found.prompts.answer_blocks
    assert (0 if answers is None else int((answers > 0).sum())) == named


def test_names_by_the_engines_own_blocks_may_leave_a_rest_out() -> None:
    """Of 40 tokens one block of 32: the chain has both of its hashes, as of 50 tokens, and not the
    third that 16 would make."""
    found = recorded(prompt_tokens=[50, 85], block_size=[32, 32])
    assert found.prompts.answer_blocks is not None
    assert found.prompts.answer_blocks.tolist() == [2, 0]  # 75 tokens
    assert recorded(prompt_tokens=[50, 85]).prompts.answer_blocks is None


def test_the_next_turn_finds_the_answer_once_it_is_over() -> None:
    """A token takes 0.1 s to decode: the first request is over 2.5 s after its first token."""
    prompts = recorded().prompts
    clock = Clock(prefill_tokens_per_second=1e6, decode_seconds_per_token=0.1)
    fleet = Fleet(replicas=1, capacity_blocks=None, router=ONE, clock=clock)

    def found(seconds: float) -> list[int]:
        late = replace(prompts, arrived=np.array([0.0, seconds]))
        return serve_timed(late, RULE, fleet).cached_tokens.tolist()

    assert found(2.4) == [0, 32]
    assert found(2.6) == [0, 64]
    assert serve(prompts, RULE, ONE, 1, None).cached_tokens.tolist() == [0, 64]
    assert curve(prompts, RULE).tokens_at(5) == 64
    assert curve(prompts, RULE).tokens_at(3) == 48
    assert serve(prompts, RULE, ONE, 1, 3).cached_tokens.tolist() == [0, 48]


def talk(turns: list[tuple[int, int, int]]) -> Prompts:
    """Turns of a few conversations: which, tokens of the user, tokens of the answer. Each sends all
    that was said before in it; block k of conversation c is named c × 1000 + k."""
    said = dict.fromkeys(range(3), 0)
    prompt, output, blocks = [], [], []
    for conversation, asked, answered in turns:
        tokens = said[conversation] + asked
        prompt.append(tokens)
        output.append(answered)
        blocks.append([conversation * 1000 + place for place in range(tokens // 16)])
        said[conversation] = tokens + answered
    return Prompts(
        arrived=np.arange(len(turns), dtype=np.float64), prompt_tokens=np.array(prompt),
        output_tokens=np.array(output), starts=starts_of([len(each) for each in blocks]),
        blocks=np.array([name for each in blocks for name in each], np.int32), block_tokens=16,
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(17, 60), st.integers(1, 60)), min_size=1,
             max_size=25),
    st.integers(1, 30),
)  # fmt: skip
def test_a_cache_with_answers_is_that_of_a_list(
    turns: list[tuple[int, int, int]], capacity: int
) -> None:
    """Against lists: each request touches prompt and answer, the last first; a full cache forgets
    what was touched longest ago. Of a conversation's last answer no turn tells."""
    bare = talk(turns)
    sessions = np.array([conversation for conversation, _, _ in turns], np.uint64)
    # What really was cached: all that was said, so that every answer is proven.
    cached = np.maximum(bare.prompt_tokens - 1, 0)
    found = following_turns(bare, sessions, np.zeros(len(turns), np.int64), cached, 16)
    prompts = with_answers(bare, found)
    expected, cache = [], OrderedDict[int, None]()
    for number, (conversation, _, answered) in enumerate(turns):
        tokens = int(bare.prompt_tokens[number])
        names = [conversation * 1000 + place for place in range((tokens + answered) // 16)]
        hits = 0
        while hits < (tokens - 1) // 16 and names[hits] in cache:
            hits += 1
        expected.append(16 * hits)
        later = sessions[number + 1 :].tolist()
        kept = (tokens + answered - 1) // 16 if conversation in later else tokens // 16
        for name in reversed(names[: max(kept, tokens // 16)]):
            cache.pop(name, None)
            cache[name] = None
        while len(cache) > capacity:
            cache.popitem(last=False)
    if prompts.answer_blocks is None:
        assert (found == NONE).all()
    assert serve(prompts, RULE, ONE, 1, capacity).cached_tokens.tolist() == expected
    assert curve(prompts, RULE).tokens_at(capacity) == sum(expected)
