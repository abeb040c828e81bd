"""The numbered traps about prompts whose layout breaks reuse."""

from replay.layout.prompt import Prompt, Segment
from replay.layout.proof import Replay
from replay.layout.search import search
from replay.layout.tokens import Tokenizer
from tests.unit_lint.scoring import prompts_of

_RULES = " ".join(f"Rule {n}: never answer with more than {n} lines." for n in range(60))


def _chat(system: str, *said: str, **more: object) -> dict[str, object]:
    roles = ("user", "assistant")
    return {
        "messages": [{"role": "system", "content": system}]
        + [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)],
        **more,
    }


def test_t79_a_clock_at_the_start_is_located_and_named() -> None:
    times = ("15:09:20", "15:09:34", "15:09:48")
    said = ("What is on?", "The lamp.", "Turn it off.", "Done.", "Thanks.")
    rows = [
        _chat(f"Current time is {at}. {_RULES}", *said[: 2 * n + 1], session_id="s")
        for n, at in enumerate(times)
    ]
    report = search(prompts_of(rows))
    (found,) = report.findings
    assert (found.kind, found.frequency, found.segment) == ("clock", "request", "system[0]")
    assert found.token_index < 10
    assert [quote.value for quote in found.quotes] == list(times[:2])
    # Nothing was reused; with the time at the end all that the turn before had comes from cache.
    assert found.alone.cached_tokens == 0
    tokenizer = Tokenizer()
    first = prompts_of([_chat(f"Current time is . {_RULES}", "What is on?")])[0]
    shared = len(tokenizer.prompt(first)) // 16 * 16
    assert shared > 500
    assert found.alone.mended_cached_tokens >= 2 * shared


def test_t80_the_same_tools_in_another_order_are_tool_order() -> None:
    tools = {
        name: {"function": {"name": name, "description": f"Does {name}. {_RULES[:600]}"}}
        for name in "ABC"
    }
    orders = ("ABC", "BAC", "ABC", "BAC")
    rows = [_chat("Help.", f"Question {n}", tools=[tools[name] for name in order])
            for n, order in enumerate(orders)]  # fmt: skip
    report = search(prompts_of(rows))
    (found,) = report.findings
    assert (found.kind, found.segment) == ("tool_order", "tools[0]")
    assert "Sort" in found.suggestion
    # Orders ABC and BAC were each computed once; sorted there is one.
    assert found.alone.won_tokens > 0
    # Another set is no other order.
    other = [*rows[:2], _chat("Help.", "Question 9", tools=[tools["A"], tools["C"]])]
    kinds = {each.kind for each in search(prompts_of(other[1:])).findings}
    assert "tool_order" not in kinds


def test_t81_history_rendered_without_thinking_is_the_template_s_doing() -> None:
    """Turn 1 ends in the thinking marker, which turn 2 does not have there: of 71,324 tokens 71,320
    are shared, and whole blocks of 16 up to 71,312 can be reused."""
    head = range(71_320)
    told = [(*head, 9, 8, 7, 6), (*head, *range(80_000, 80_000 + 80_882 - 71_320))]
    turns = [Prompt((Segment("text", "text", "-"),), session="s", token_ids=ids) for ids in told]
    assert Replay(turns, Tokenizer(), known=True).run().cached_tokens == (0, 71_312)


def test_t81_a_prompt_that_ends_in_a_thinking_marker_history_lacks() -> None:
    marker, user = "\n<|assistant|>\n", "\n<|user|>\n"
    said = [
        f"{_RULES}{user}Is it on?{marker}",
        f"It is off, as far as I can see.{user}Now?{marker}",
        f"On. It was switched on a minute ago.{user}Why?{marker}",
    ]
    texts = ["".join(said[:count]) + "<think>\n" for count in (1, 2, 3)]
    rows: list[dict[str, object]] = [{"prompt": text, "session_id": "s"} for text in texts]
    (found,) = search(prompts_of(rows), block_tokens=1).findings
    assert found.kind == "thinking_removed"
    # The last tokens of turn 1 are all that is lost, so at 16 a block it is no finding.
    assert found.alone.won_tokens < 16
    assert not search(prompts_of(rows)).findings


def test_t81_thinking_that_history_lacks_is_named_with_its_message() -> None:
    thought = f"<think>\n{_RULES[:900]}\n</think>\n\n"
    said = ["How many?", f"{thought}Two lamps.", "Which?", f"{thought}Hall and stairs.", "Off?"]
    plain = [each.removeprefix(thought) for each in said]
    rows = [
        _chat(_RULES, said[0], session_id="s"),
        _chat(_RULES, *said[:3], session_id="s"),
        _chat(_RULES, *plain[:2], *said[2:5], session_id="s"),
        _chat(_RULES, *plain, "Yes.", "On?", session_id="s"),
    ]
    (found,) = search(prompts_of(rows)).findings
    assert (found.kind, found.frequency) == ("thinking_removed", "request")
    assert found.segment == "messages[2]"


def test_t82_equal_text_of_other_tokens_is_a_join_and_without_ids_unknown() -> None:
    """Two newlines were generated as two tokens and come back as one."""
    rules = list(range(1000, 1160))
    first = {"prompt": f"{_RULES}\n>", "prompt_token_ids": [*rules, 62], "output": "Yes.\n\nOff.",
             "output_token_ids": [5, 198, 198, *range(2000, 2064)], "session_id": "s"}  # fmt: skip
    second = {"prompt": f"{_RULES}\n>Yes.\n\nOff. And now?", "session_id": "s",
              "prompt_token_ids": [*rules, 62, 5, 271, *range(2000, 2064), 7, 8]}  # fmt: skip
    report = search(prompts_of([first, second]))
    (found,) = report.findings
    assert found.kind == "tokenizer_join"
    assert found.token_index == len(rules) + 2
    # 162 tokens were shared: 160 in whole blocks. With the ids sent back all 163 + 64 - 1 kept
    # tokens are, in blocks 224.
    assert (found.alone.cached_tokens, found.alone.mended_cached_tokens) == (160, 224)
    without = [{key: value for key, value in row.items() if not key.endswith("_ids")}
               for row in (first, second)]  # fmt: skip
    report = search(prompts_of(without))
    assert not report.findings
    assert report.unknown_joins == 1


def test_t83_the_block_decides_what_a_shared_prefix_is_worth() -> None:
    shared = Segment("system[0]", "system", "a " * 240)
    prompts = [Prompt((shared, Segment("messages[1]", "user", f"{n} " * 800))) for n in range(3)]
    small, large = (Replay(prompts, Tokenizer(), block).run() for block in (16, 784))
    assert small.cached_tokens[1:] == (240, 240)
    assert large.cached_tokens[1:] == (0, 0)
