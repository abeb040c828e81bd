"""One row of a log to one prompt: requests of OpenAI and Anthropic shape, and plain text.

Rendering is the model's chat template, which a log does not have. Segments stand in the order in
which most templates put them: tools and system first, as Anthropic does, or system and then tools.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from prefixscope.lint.fields import Row, facts_of, opened
from replay.layout.prompt import Prompt, Segment

# Where the request itself may stand in a row of a log.
_BODIES = ("body", "request", "proxy_server_request", "kwargs", "params", "obj")
_TEXTS = ("prompt", "input", "text", "rendered_prompt")
_ANSWERS = ("response", "output", "completion", "response_body")
_THINKING = ("reasoning_content", "reasoning", "thinking")
# What LiteLLM writes where a prompt was left out or cut short.
_LEFT_OUT = ("redacted-by-litellm", "redacted by litellm", "litellm_truncated")
_SYSTEM_ROLES = ("system", "developer")


class Unreadable(Exception):
    """A row without a prompt; says why, and never what it holds."""


def prompt_of(row: Row) -> tuple[Prompt, str]:
    """The prompt of a row, and what the row was taken for. Raises Unreadable."""
    body, form = _body(row)
    facts = facts_of(row)
    plain = form == "plain text"
    segments = (Segment("text", "text", _plain(body)),) if plain else tuple(_segments(body))
    if not any(segment.text for segment in segments):
        raise Unreadable("the prompt is empty")
    if any(mark in segment.text for segment in segments for mark in _LEFT_OUT):
        raise Unreadable("the gateway left text of the prompt out")
    answer = tuple(_answer(row, body, form))
    ids = _ids(body, "prompt_token_ids")
    prompt = Prompt(
        segments, facts.at, facts.session, facts.user, facts.label, facts.prompt_tokens,
        answer=answer, token_ids=ids,
        answer_ids=_ids(body, "output_token_ids", "completion_token_ids", "token_ids"),
    )  # fmt: skip
    return prompt, form


def _body(row: Row) -> tuple[Row, str]:
    """The object that holds the prompt."""
    for holder in (row, *(opened(row.get(name)) for name in _BODIES)):
        inner = [holder, *(opened(holder.get(name)) for name in ("body", "data"))]
        for each in inner:
            messages = _messages(each)
            if messages:
                form = "LiteLLM rows" if "call_type" in row else (
                    "Anthropic requests" if "system" in each else "OpenAI requests"
                )  # fmt: skip
                return {**each, "messages": messages}, form
    for holder in (row, *(opened(row.get(name)) for name in _BODIES)):
        if any(isinstance(holder.get(name), str) and holder.get(name) for name in _TEXTS):
            return holder, "plain text"
    if "messages" in row:
        raise Unreadable("messages is there and empty: the gateway does not store prompts")
    raise Unreadable("no field messages, prompt, input or text")


def _messages(row: Row) -> list[Mapping[str, object]]:
    given = row.get("messages") or row.get("input")
    if isinstance(given, str) and given[:1] == "[":
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return []
    if not isinstance(given, list):
        return []
    return [each for each in given if isinstance(each, Mapping)]


def _plain(row: Row) -> str:
    return next(str(row[name]) for name in _TEXTS if isinstance(row.get(name), str))


def _segments(body: Row) -> Iterator[Segment]:
    messages = _messages(body)
    tools = list(_tools(body))
    if "system" in body:
        yield from tools
        yield from _system([body["system"]])
        yield from _conversation(messages, 0)
        return
    leading = 0
    while leading < len(messages) and messages[leading].get("role") in _SYSTEM_ROLES:
        leading += 1
    yield from _system([message.get("content") for message in messages[:leading]])
    yield from tools
    yield from _conversation(messages, leading)


def _system(contents: Sequence[object]) -> Iterator[Segment]:
    parts = [part for content in contents for part in _parts(content)]
    for number, part in enumerate(parts):
        lead = "<|system|>\n" if not number else "\n"
        yield Segment(f"system[{number}]", "system", part, lead)


def _tools(body: Row) -> Iterator[Segment]:
    given = body.get("tools") or body.get("functions") or opened(
        body.get("model_parameters")
    ).get("tools")  # fmt: skip
    for number, tool in enumerate(given if isinstance(given, list) else []):
        inner = tool.get("function") if isinstance(tool, Mapping) else None
        own = inner if isinstance(inner, Mapping) else tool
        if not isinstance(own, Mapping):
            continue
        unit = str(own.get("name", f"tool {number}"))
        for key, value in own.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield Segment(f"tools[{number}].{key}", "tools", text, f'\n"{key}": ', unit)


def _conversation(messages: Sequence[Mapping[str, object]], begin: int) -> Iterator[Segment]:
    for number, message in enumerate(messages[begin:], begin):
        role = str(message.get("role", "user"))
        yield from _message(message, f"messages[{number}]", role)


def _message(message: Mapping[str, object], name: str, role: str) -> Iterator[Segment]:
    parts = list(_parts(message.get("content")))
    thinking = next((str(message[key]) for key in _THINKING if message.get(key)), "")
    if thinking:
        parts[:1] = [f"<think>\n{thinking}\n</think>\n\n{parts[0] if parts else ''}"]
    calls = message.get("tool_calls")
    if calls:
        parts.append(json.dumps(calls, ensure_ascii=False))
    for number, part in enumerate(parts or [""]):
        own = name if len(parts) < 2 else f"{name}.content[{number}]"
        yield Segment(own, role, part, f"\n<|{role}|>\n" if not number else "\n")


def _parts(content: object) -> Iterator[str]:
    """The texts of a content: a text, or a list of blocks."""
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else []:
        yield _block(block)


def _block(block: object) -> str:
    if not isinstance(block, Mapping):
        return str(block)
    if isinstance(block.get("thinking"), str):
        return f"<think>\n{block['thinking']}\n</think>\n\n"
    for key in ("text", "content"):
        if isinstance(block.get(key), str):
            return str(block[key])
    shown = {key: value for key, value in block.items() if key != "cache_control"}
    return json.dumps(shown, ensure_ascii=False)


def _answer(row: Row, body: Row, form: str) -> Iterator[Segment]:
    """What was generated, as a history would hold it; nothing where the log does not say."""
    for name in _ANSWERS:
        given = row.get(name, body.get(name))
        if form == "plain text":
            if isinstance(given, str) and given:
                yield Segment("text", "assistant", given)
                return
            continue
        message = _answered(given)
        if message:
            count = len(_messages(body))
            yield from _message(message, f"messages[{count}]", "assistant")
            return


def _answered(given: object) -> Mapping[str, object]:
    """The message of a response: OpenAI's first choice, or Anthropic's content."""
    if isinstance(given, str) and given[:1] != "{":
        return {"content": given} if given else {}
    response = opened(given)
    response = opened(response.get("body")) or response
    choices = response.get("choices")
    if isinstance(choices, list) and choices:
        return opened(opened(choices[0]).get("message"))
    return response if isinstance(response.get("content"), list | str) else {}


def _ids(row: Row, *names: str) -> tuple[int, ...] | None:
    for name in names:
        given = row.get(name)
        if isinstance(given, list) and given and all(type(each) is int for each in given):
            return tuple(given)
    return None
