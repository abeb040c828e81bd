"""Rows of any shape: the search ends, and its figures hang together."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from prefixscope.lint.bodies import Unreadable, prompt_of
from prefixscope.lint.output import as_json
from replay.layout.against import compare
from replay.layout.prompt import Prompt
from replay.layout.search import search
from tests.unit_lint.scoring import prompts_of

_WORDS = st.sampled_from([
    "alpha", "beta", "", "\n", "  ", "\r\n", "09:15:22", "2026-03-02", "17", "18", "Maria Lopez",
    "<think>\nhm\n</think>\n", "<think>", '{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"',
    '[{"name": "x"}, {"name": "y"}]', '[{"name": "y"}, {"name": "x"}]',
    "0b7a4f0e-3c1d-4e5f-8a9b-0c1d2e3f4a5b",
    "The long rule says that one must never do this or that without asking first. " * 3,
])  # fmt: skip
_TEXT = st.lists(_WORDS, max_size=8).map(" ".join)
_TOOL = st.fixed_dictionaries({"name": st.sampled_from("abc"), "description": _TEXT})
_MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": _TEXT}
)
_OWNER = {"session_id": st.sampled_from("st"), "user": st.sampled_from("uv")}
_CHAT = st.fixed_dictionaries(
    {"messages": st.lists(_MESSAGE, min_size=1, max_size=4)},
    optional={
        **_OWNER,
        "tools": st.lists(_TOOL, max_size=3),
        "timestamp": st.floats(1.7e9, 1.7e9 + 3e5),
        "response": _TEXT,
        "prompt_tokens": st.integers(1, 500),
    },
)
_PLAIN = st.fixed_dictionaries(
    {"prompt": _TEXT},
    optional={
        **_OWNER,
        "output": _TEXT,
        "prompt_token_ids": st.lists(st.integers(0, 5), min_size=1, max_size=60),
        "output_token_ids": st.lists(st.integers(0, 5), min_size=1, max_size=30),
    },
)
_ROWS = st.lists(_CHAT | _PLAIN, max_size=8)


def _read(rows: list[dict[str, object]]) -> list[Prompt]:
    prompts = []
    for row in rows:
        try:
            prompts.append(prompt_of(row)[0])
        except Unreadable:
            continue
    return prompts


@settings(max_examples=25)
@given(_ROWS, st.sampled_from([1, 2, 16]), st.sampled_from([None, 3]))
def test_any_log_can_be_searched(
    rows: list[dict[str, object]], block_tokens: int, capacity_blocks: int | None
) -> None:
    report = search(_read(rows), block_tokens, capacity_blocks)
    json.loads(as_json(report))
    assert sum(template.requests for template in report.templates) == report.compared_requests
    for proof in (report.together, *(finding.alone for finding in report.findings)):
        assert 0 <= proof.cached_tokens <= proof.prompt_tokens
        assert 0 <= proof.mended_cached_tokens <= proof.mended_prompt_tokens
    assert all(finding.won_tokens > 0 for finding in report.findings)


@settings(max_examples=10)
@given(_ROWS, _ROWS)
def test_any_two_logs_can_be_compared(
    new: list[dict[str, object]], old: list[dict[str, object]]
) -> None:
    comparison = compare(_read(new), _read(old), 4)
    json.loads(as_json(comparison.new, comparison))
    assert comparison.cold_tokens >= 0


def test_a_list_of_tools_inside_a_description_is_tool_order_too() -> None:
    lists = ('[{"name": "x"}, {"name": "y"}]', '[{"name": "y"}, {"name": "x"}]')
    rest = "The long rule says that one must ask first. " * 20
    rows = [
        {
            "messages": [{"role": "user", "content": f"{n}"}],
            "tools": [{"name": "a", "description": f"{lists[n % 2]} {rest}"}],
        }
        for n in range(4)
    ]
    (found,) = search(prompts_of(rows)).findings
    assert (found.kind, found.segment) == ("tool_order", "tools[0].description")
