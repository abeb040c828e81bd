"""Rows of several shapes become the same prompt, segment by segment."""

import json
from pathlib import Path

import pytest

from prefixscope.lint.bodies import Unreadable, prompt_of
from prefixscope.lint.reading import read_prompts

TOOL = {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": each} for each in ("Look", "here")]},
    {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."},
]  # fmt: skip
NAMES = [
    "system[0]", "tools[0].name", "tools[0].description", "tools[0].parameters",
    "messages[1].content[0]", "messages[1].content[1]", "messages[2]",
]  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        {"messages": MESSAGES, "tools": [{"type": "function", "function": TOOL}]},
        {"custom_id": "1", "body": {"messages": MESSAGES, "tools": [{"function": TOOL}]}},
        {"request": {"body": json.dumps({"messages": MESSAGES, "tools": [TOOL]})}},
        {"call_type": "acompletion", "messages": json.dumps(MESSAGES),
         "model_parameters": {"tools": [{"function": TOOL}]}},
        {"call_type": "acompletion", "messages": {},
         "proxy_server_request": json.dumps({"messages": MESSAGES, "tools": [TOOL]})},
    ],
)  # fmt: skip
def test_shapes_of_a_chat_request(row: dict[str, object]) -> None:
    prompt, _ = prompt_of(row)
    assert [segment.name for segment in prompt.segments] == NAMES
    assert prompt.segments[0].text == "Be kind."
    assert json.loads(prompt.segments[3].text) == TOOL["parameters"]
    assert prompt.segments[-1].text == "<think>\nHm.\n</think>\n\nYes."


def test_anthropic_puts_tools_first_and_its_system_blocks_are_numbered() -> None:
    row = {
        "system": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
        "tools": [TOOL],
        "messages": [{"role": "user", "content": "Look"}],
        "metadata": {"user_id": "u"},
    }
    prompt, form = prompt_of(row)
    names = [segment.name for segment in prompt.segments]
    assert names == [*NAMES[1:4], "system[0]", "system[1]", "messages[0]"]
    assert (form, prompt.user) == ("Anthropic requests", "u")


@pytest.mark.parametrize("field", ["prompt", "input", "text"])
def test_plain_rows(field: str) -> None:
    row = {field: "All of it", "timestamp": 1760428258635837, "session_id": "s", "output": "Yes"}
    prompt, form = prompt_of(row)
    assert (form, prompt.segments[0].name, prompt.session) == ("plain text", "text", "s")
    assert prompt.at == pytest.approx(1760428258.635837)
    assert prompt.answer[0].text == "Yes"


def test_who_and_when_of_spend_logs() -> None:
    row = {
        "call_type": "acompletion", "messages": MESSAGES, "startTime": "2026-03-02T09:15:04Z",
        "session_id": "s", "team_id": "t", "prompt_tokens": 77,
        "response": {"choices": [{"message": {"role": "assistant", "content": "Done."}}]},
    }  # fmt: skip
    prompt, form = prompt_of(row)
    assert (form, prompt.session, prompt.user, prompt.reported_tokens) == (
        "LiteLLM rows",
        "s",
        "t",
        77,
    )
    assert prompt.at == 1772442904
    assert [each.name for each in prompt.answer] == ["messages[3]"]


def test_what_has_no_prompt_says_so_and_not_what_it_has() -> None:
    left_out = [{"role": "user", "content": "redacted-by-litellm, secret"}]
    for row in ({"usage": "secret"}, {"messages": []}, {"prompt": ""}, {"prompt": ["secret"]},
                {"call_type": "acompletion", "messages": left_out}):  # fmt: skip
        with pytest.raises(Unreadable) as told:
            prompt_of(row)
        assert "secret" not in str(told.value)


def test_files_of_several_kinds(tmp_path: Path) -> None:
    plain = tmp_path / "a.txt"
    plain.write_text("A whole prompt\nof two lines")
    document = tmp_path / "b.json"
    document.write_text(json.dumps([{"messages": MESSAGES}, {"messages": MESSAGES}], indent=1))
    one = tmp_path / "c.json"
    one.write_text(json.dumps({"messages": MESSAGES}, indent=1))
    lines = tmp_path / "d.jsonl"
    lines.write_text('{"prompt": "x\u2028z"}\r\n\n"y"\n')
    log = read_prompts([plain, document, one, lines])
    places = [prompt.source for prompt in log.prompts]
    assert places == ["a.txt", "b.json:1", "b.json:1", "c.json:1", "d.jsonl:1", "d.jsonl:3"]
    assert log.forms == {"plain text": 3, "OpenAI requests": 3}
