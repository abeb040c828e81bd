"""Chat templates render as engines render them, and never repeat a prompt where they fail."""

from datetime import UTC, datetime
from typing import Any

import pytest

from exporter.errors import PrefixscopeError
from exporter.prompts.row_values import moment
from exporter.prompts.template import ChatTemplate, NotRendered
from exporter.sources.formats import openai

MOMENT = datetime(2026, 3, 2, 12, tzinfo=UTC)
PLAIN = """{% for message in messages %}
<{{ message.role }}>{{ message.content }}</s>
{% endfor %}
{% if add_generation_prompt %}
<assistant>
{%- endif %}"""
IN_PARTS = """{%- for message in messages %}{%- set content = message['content'] %}
{%- for part in content %}[{{ part['type'] }}:{{ part.text }}]{%- endfor %}{%- endfor %}"""


def render(source: str, messages: list[dict[str, Any]], **request: object) -> str:
    tokens = {"bos_token": "<s>"}
    return ChatTemplate(source, tokens, "chat.jinja").render(messages, request, MOMENT)


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_blocks_leave_no_lines_behind_and_the_answer_is_begun() -> None:
    assert render(PLAIN, [user("Hi"), {"role": "assistant", "content": "Yes"}]) == (
        "<user>Hi</s>\n<assistant>Yes</s>\n<assistant>"
    )
    assert render(PLAIN, [user("Hi")], add_generation_prompt=False) == "<user>Hi</s>\n"


def test_parts_of_text_are_joined_by_lines_and_no_content_is_empty() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "<user>one\ntwo</s>" in render(PLAIN, [user(parts)])
    assert "<user></s>" in render(PLAIN, [user(None)])


def test_a_template_that_walks_through_parts_is_given_parts() -> None:
    assert render(IN_PARTS, [user("one")]) == "[text:one]"
    parts = [{"type": "text", "text": "one"}, "two"]
    assert render(IN_PARTS, [user(parts), user(None)]) == "[text:one][text:two]"


def test_what_is_to_be_continued_ends_with_its_last_message() -> None:
    messages = [user("Say A"), {"role": "assistant", "content": "A and "}]
    assert render(PLAIN, messages, continue_final_message=True) == (
        "<user>Say A</s>\n<assistant>A and"
    )


def test_a_developer_is_a_system_where_a_template_knows_none() -> None:
    messages = [{"role": "developer", "content": "Be kind"}]
    assert render(PLAIN, messages).startswith("<system>Be kind")
    source = "{% if messages[0].role == 'developer' %}D{% endif %}"
    assert render(source, messages) == "D"


def test_tools_are_written_in_one_order_whatever_that_of_the_request() -> None:
    tools = [{"function": {"parameters": {"b": 1, "a": 2}, "name": "f"}, "type": "function"}]
    assert render("{{ tools | tojson }}", [user("x")], tools=tools) == (
        '[{"type": "function", "function": {"name": "f", "description": null, '
        '"parameters": {"b": 1, "a": 2}}}]'
    )


@pytest.mark.parametrize(
    ("arguments", "rendered"),
    [
        ('{"city": "Köln"}', '{"city": "Köln"}'),
        ("", "{}"),
        ("{broken", "{}"),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_arguments_of_calls_are_values(arguments: object, rendered: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    assert (
        render(source, [{"role": "assistant", "content": None, "tool_calls": [call]}]) == rendered
    )


def test_helpers_of_templates_are_there() -> None:
    source = (
        "{{ bos_token }}{{ strftime_now('%d %b %Y') }}{{ kind | default('none') }}"
        "{% generation %}g{% endgeneration %}"
        "{% for n in [1, 2, 3] %}{% if n == 2 %}{% continue %}{% endif %}{{ n }}{% endfor %}"
        "{{ '<&>' | tojson }}{{ {'a': [1]} | tojson(indent=1) }}"
    )
    assert render(source, [user("x")], chat_template_kwargs={"kind": "k"}) == (
        '<s>02 Mar 2026kg13"<&>"{\n "a": [\n  1\n ]\n}'
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no: ' + messages[0].content) }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].nothing | tojson }}",
        "{{ messages[9].content.x }}",
        "{{ 1 // 0 }}",
        "{{ messages[0].content.__class__.__mro__ }}",
        "{% for n in range(10000000) %}{% endfor %}",
        "{{ messages.append(1) }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_a_template_that_fails_says_nothing_of_the_prompt(source: str) -> None:
    with pytest.raises(NotRendered) as failed:
        render(source, [user("Zebra-Quartz")])
    assert failed.value.args == ()
    assert failed.value.__suppress_context__


def test_what_is_no_template_is_named_with_its_line() -> None:
    with pytest.raises(PrefixscopeError, match=r"chat.jinja: this is no chat template \(line 2\)"):
        ChatTemplate("ok\n{% for %}", {}, "chat.jinja")


@pytest.mark.parametrize(
    ("created", "year"),
    [
        (1772452800, 2026), (1772452800123.0, 2026), ("2026-03-02T12:00:00+01:00", 2026),
        (float("inf"), None), (float("nan"), None), (10**400, None), (True, None), ("soon", None),
    ],
)  # fmt: skip
def test_the_day_of_a_template_is_that_of_the_request(created: object, year: int | None) -> None:
    """What is no time is no error: the row is judged elsewhere, and the date is that of today."""
    today = datetime.now(UTC).year
    found = moment({"created": created}, openai.FORMAT).year
    assert found == year if year else found in (today, today + 1)
