"""Known traps of blaming a prompt's layout, each with its right answer by hand."""

import random

import numpy as np
import pytest

from replay.layout_chains.findings import LayoutFinding, layout_findings
from replay.layout_chains.prompts import Prompts, reused_tokens
from replay.rules import RULES, CacheRule
from tests.unit_layout.told_from_tokens import VLLM, chains_of

OPENAI = RULES["openai"]


def text(name: str, tokens: int) -> list[int]:
    """Always the same text of a name."""
    draw = random.Random(name)
    return [draw.randrange(10, 50_000) for _ in range(tokens)]


def prompts(token_ids: list[list[int]], **columns: list[object]) -> Prompts:
    started = columns.pop("started", [20.0 * row for row in range(len(token_ids))])
    scopes = [str(each) for each in columns.get("scope", [""] * len(token_ids))]
    return Prompts.of(
        chains_of(token_ids, scopes),
        prompt_tokens=[len(ids) for ids in token_ids],
        started=started,  # type: ignore[arg-type]
        **columns,  # type: ignore[arg-type]
    )


def only(found: list[LayoutFinding]) -> LayoutFinding:
    assert len(found) == 1, found
    return found[0]


def test_t79_a_clock_in_front_is_found_in_the_first_block_with_what_moving_it_wins() -> None:
    """ "Current time is 15:09:20." takes ten tokens; 1,500 tokens of instructions follow."""
    turns = [
        [*text("Current time is", 3), *text(f"15:09:{second}", 7), *text("instructions", 1500),
         *text(f"talk {second}", own)]
        for second, own in ((20, 994), (34, 682), (48, 800))
    ]  # fmt: skip
    assert [len(turn) for turn in turns] == [2504, 2192, 2310]
    found = only(
        layout_findings(prompts(turns, started=[0.0, 14.0, 28.0], cached_tokens=[0, 0, 0]), VLLM)
    )
    assert (found.kind, found.frequency) == ("unknown", "request")
    assert (found.from_token, found.until_token, found.requests) == (0, 16, 3)
    # Tokens 16 to 1504 are whole blocks of the instructions: from the second turn on.
    assert found.gain_tokens == 2 * 1488


@pytest.mark.parametrize(("tools", "kind"), [((64, 96), "tool_order"), ((70, 90), "unknown")])
def test_t80_tools_in_another_order_are_told_where_whole_blocks_show_it(
    tools: tuple[int, int], kind: str
) -> None:
    """[A, B, C] and [B, A, C]: where A and B are no whole blocks, hashes show a place, and only
    text shows what stands there."""
    first, second = text("A", tools[0]), text("B", tools[1])
    head, last = text("head", 480), text("C", 320)
    turns = [
        [*head, *(first + second if row % 2 else second + first), *last, *text(f"own {row}", 60)]
        for row in range(8)
    ]
    found = only(layout_findings(prompts(turns, cached_tokens=[0] + [480] * 7), VLLM))
    assert found.kind == kind
    assert (found.from_token, found.until_token) == (480, 640)
    assert found.template_requests == 8


def conversations(marker: int, first: list[int]) -> tuple[list[list[int]], list[object]]:
    """Two turns each: the prompt ends in a marker that is not there once it is history."""
    token_ids: list[list[int]] = []
    sessions: list[object] = []
    for number, length in enumerate(first):
        opening = text("opening", marker)
        asked = text(f"conversation {number}", length - marker)
        token_ids += [[*asked, *opening], [*asked, *text(f"answer {number}", 300)]]
        sessions += [number, number]
    return token_ids, sessions


def test_t81_a_template_that_rewrites_history_parts_turns_just_before_their_end() -> None:
    """The prompt of 71,324 tokens and the next share 71,320, which is 71,312 in whole blocks. The
    block in which they differ is not whole in the first, so that other turns must tell the kind."""
    token_ids, sessions = conversations(4, [71_324, 705, 722, 739, 1_000, 803, 801])
    token_ids[1] += text("more", 80_882 - len(token_ids[1]))
    told = prompts(token_ids, session=sessions, output_tokens=[200, 0] * 7)
    assert len(token_ids[1]) == 80_882
    reused = reused_tokens(told.chains, np.zeros(len(told), np.int64), 16)
    assert reused[1] == 71_312
    found = only(layout_findings(told, VLLM))
    assert (found.kind, found.frequency) == ("thinking_removed", "request")
    # 705 = 44 × 16 + 1, 722, 739, 803 and 801: their last whole block reaches into the marker.
    assert found.requests == 5
    assert found.from_token in (688, 704, 720, 784)


@pytest.mark.parametrize(("answer_is_reused", "kinds"), [(False, ["tokenizer_join"]), (True, [])])
def test_t82_an_answer_that_never_comes_back_is_no_changed_prompt(
    answer_is_reused: bool, kinds: list[str]
) -> None:
    """Generated …,198,198,… and …,271,… in the next prompt: every block of the prompts is found
    again, and never one of an answer."""
    token_ids: list[list[int]] = []
    cached: list[object] = []
    for number in range(4):
        asked = text(f"asked {number}", 488)
        token_ids += [asked, [*asked, 271, *text(f"answer {number}", 160)]]
        cached += [0, 640 if answer_is_reused else 480]
    told = prompts(
        token_ids, session=[row // 2 for row in range(8)], cached_tokens=cached,
        output_tokens=[161, 1] * 4,
    )  # fmt: skip
    assert [found.kind for found in layout_findings(told, VLLM)] == kinds


@pytest.mark.parametrize(
    ("shared_tokens", "block_tokens", "expected"),
    [(240, 784, [("short_prefix", 240)]), (240, 16, []), (0, 784, [])],
)
def test_t83_shorter_than_a_block_is_another_finding_than_nothing_shared(
    shared_tokens: int, block_tokens: int, expected: list[tuple[str, int]]
) -> None:
    turns = [text("shared", shared_tokens) + text(f"own {row}", 1360) for row in range(6)]
    rule = CacheRule("test", "test", block_tokens=block_tokens)
    served = 0 if block_tokens > shared_tokens else shared_tokens
    told = prompts(turns, cached_tokens=[0] + [served] * 5)
    found = layout_findings(told, rule)
    assert [(each.kind, each.until_token) for each in found] == expected


def test_t89_a_key_by_conversation_that_parts_an_equal_beginning() -> None:
    """Two conversations with the same first 4,000 tokens: later turns hit 3,900, the first of the
    second nothing."""
    token_ids, sessions, cached = [], [], []
    for name in ("c1", "c2"):
        for turn in range(3):
            token_ids.append(text("shared", 4000) + text(name, 100 + 150 * turn))
            sessions.append(name)
            cached.append(3968 if turn else 0)
    told = prompts(token_ids, session=[*sessions], cached_tokens=[*cached])
    found = only(layout_findings(told, OPENAI, is_hosted=True))
    assert (found.kind, found.requests) == ("routing_key", 1)
    assert found.lost_tokens == 4000
    assert found.gain_tokens == 0


@pytest.mark.parametrize(("tokens", "cached", "kinds"), [
    (12_000, 0, ["no_local_cause"]), (8_000, 7_936, []), (20_000, 19_968, []),
])  # fmt: skip
def test_t91_equal_beginnings_that_a_provider_does_not_serve_are_not_the_layouts_fault(
    tokens: int, cached: int, kinds: list[str]
) -> None:
    turns = [text("same", tokens) + text(f"own {row}", 40) for row in range(10)]
    told = prompts(turns, cached_tokens=[0] + [cached] * 9)
    found = layout_findings(told, OPENAI, is_hosted=True)
    assert [each.kind for each in found] == kinds
    # On an engine of one's own the causes say whether it was evicted, reset or routed.
    assert layout_findings(told, VLLM) == []


def test_t92_prompts_below_the_minimum_are_not_eligible() -> None:
    told = prompts([text("same", 800)] * 100, cached_tokens=[0] * 100)
    found = only(layout_findings(told, OPENAI, is_hosted=True))
    assert (found.kind, found.requests) == ("below_minimum", 100)


@pytest.mark.parametrize("restarts", [28, 24, 7, 0])
def test_t94_a_key_made_anew_at_each_restart_misses_once_each(restarts: int) -> None:
    """Runs of (restarts, requests without a cached token) = (28, 29), (24, 25), (7, 8), (0, 1)."""
    keys = [f"key {row // 3}" for row in range(3 * (restarts + 1))]
    cached = [0 if row % 3 == 0 else 1024 for row in range(len(keys))]
    told = prompts([text("same", 1200)] * len(keys), scope=[*keys], cached_tokens=[*cached])
    found = layout_findings(told, OPENAI, is_hosted=True)
    assert [(each.kind, each.changes) for each in found] == (
        [("key_lineage", restarts)] if restarts else []
    )
