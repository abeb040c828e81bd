"""What a row says its prompt was: token ids, a text, or messages to be rendered."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.sources.formats.mapping import PromptPlaces, Row, parts_of

# What LiteLLM writes where a prompt was left out or cut short.
_LEFT_OUT = ("redacted-by-litellm", "redacted by litellm", "litellm_truncated")
Body = Mapping[str, object]


@dataclass(frozen=True)
class Prompt:
    """One of the three; `request` is the body it came with, whatever it is."""

    request: Body
    token_ids: list[int] | None = None
    text: str | None = None
    messages: list[dict[str, object]] | None = None

    def plain(self) -> bytes:
        """All its text in a fixed order: tools, then messages, as most templates have them."""
        if self.text is not None:
            return _encoded(self.text)
        parts = []
        if tools := self.request.get("tools"):
            parts.append(json.dumps(tools, ensure_ascii=False))
        for message in self.messages or ():
            others = {name: value for name, value in message.items()
                      if name not in ("role", "content") and value is not None}  # fmt: skip
            parts.append(f"{message.get('role')}\n{joined(message.get('content'))}")
            if others:
                parts.append(json.dumps(others, ensure_ascii=False))
        return _encoded("\n".join(parts))


def asked(row: Row, places: PromptPlaces) -> Prompt | None:
    """The prompt of a row; None where it has none, or not all of it (images, left out by a log)."""
    for path in places.token_ids:
        if (ids := _ids(at(row, path))) is not None:
            return Prompt({}, token_ids=ids)
    for path in places.texts:
        if isinstance(text := at(row, path), str) and text:
            return Prompt({}, text=text) if _is_whole(text) else None
    for paths in places.requests:
        if found := _of_request(_body(row, paths)):
            return found
    return None


def at(row: Row, path: str) -> object:
    """What a path leads to; None where it leads nowhere."""
    value: object = row
    for name in parts_of(path):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def joined(content: object) -> str:
    """The text of a message's content, which may be cut into parts."""
    if isinstance(content, str):
        return content
    return "\n".join(_texts(content)) if isinstance(content, list) else ""


def _texts(parts: list[object]) -> Iterator[str]:
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        yield text if isinstance(text, str) else ""


def _body(row: Row, paths: tuple[str, ...]) -> Body:
    body: dict[str, object] = {}
    for path in reversed(paths):
        value = at(row, path) if path else row
        if isinstance(value, str) and value[:1] == "{":
            value = _opened(value)
        if isinstance(value, Mapping):
            body |= {name: given for name, given in value.items() if given is not None}
    return body


def _of_request(body: Body) -> Prompt | None:
    messages, prompt = body.get("messages"), body.get("prompt")
    if isinstance(messages, str):
        # LiteLLM writes `{}` where it was told to keep no prompts.
        messages = _opened(messages) if messages[:1] in ("[", "{") else messages
    if isinstance(messages, str) and messages:
        prompt, messages = messages, None
    if isinstance(messages, list) and messages:
        return _of_messages(body, messages)
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if (ids := _ids(prompt)) is not None:
        return Prompt(body, token_ids=ids)
    if isinstance(prompt, str) and prompt and _is_whole(prompt):
        return Prompt(body, text=prompt)
    return None


def _of_messages(body: Body, messages: list[object]) -> Prompt | None:
    """A prompt with images or audio is more than its text: two of them may read the same."""
    found = [dict(message) for message in messages if isinstance(message, Mapping)]
    if len(found) < len(messages) or not all(_is_text(each.get("content")) for each in found):
        return None
    if not all(_is_whole(joined(each.get("content"))) for each in found):
        return None
    return Prompt(body, messages=found)


def _is_text(content: object) -> bool:
    if content is None or isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, Mapping) and isinstance(part.get("text"), str))
        for part in content
    )


def _is_whole(text: str) -> bool:
    return not any(mark in text for mark in _LEFT_OUT)


def _ids(value: object) -> list[int] | None:
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        return value
    return None


def _opened(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _encoded(text: str) -> bytes:
    """As UTF-8; half characters, as JSON can hold them, stay what they are."""
    return text.encode("utf-8", "surrogatepass")
