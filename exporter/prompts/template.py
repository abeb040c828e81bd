"""Chat templates: messages become the text that an engine tokenizes.

Templates are Jinja as models publish it, run in a sandbox with the helpers they are written for.
Versions read: transformers 5.19, vLLM 0.32.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from exporter.errors import PrefixscopeError
from exporter.prompts.asked import joined

Message = Mapping[str, object]

# What a template is given under a name of its own; all else is not for it.
_WORDS = ("tools", "documents", "add_generation_prompt", "continue_final_message",
          "reasoning_effort")  # fmt: skip
# What running a template can raise: its own errors, and those of the values it works with.
_FAILURES = (
    TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError,
    RecursionError,
)  # fmt: skip


class NotRendered(Exception):
    """A template failed. What it said is left out: it may repeat the prompt."""


class _Generation(Extension):
    """`{% generation %}` marks what a model wrote, for training; nothing of it is rendered."""

    tags = {"generation"}  # noqa: RUF012 - the name and kind Jinja asks for

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What stands between the marks, as it is."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One template with the special tokens (`bos_token` …) that it may name.

    Raises PrefixscopeError where `source` is no template; `name` is what it is called then.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str], name: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        self._special_tokens = special_tokens
        self._knows_developers = "developer" in source
        try:
            self._in_parts = _walks_parts(environment.parse(source))
            self._template = environment.from_string(source)
        except TemplateError as error:
            place = getattr(error, "lineno", None)
            where = f" (line {place})" if place else ""
            raise PrefixscopeError(
                f"{name}: this is no chat template{where}: {error.message}"
            ) from error

    def render(
        self, messages: Sequence[Message], request: Mapping[str, object], now: datetime
    ) -> str:
        """The text of a conversation. `request`: the body it came in; `now`: when that was, for
        templates that name the day. Raises NotRendered."""
        words = {name: request[name] for name in _WORDS if request.get(name) is not None}
        if isinstance(tools := words.get("tools"), list):
            words["tools"] = [_tool(tool) for tool in tools]
        words.setdefault("add_generation_prompt", not words.get("continue_final_message"))
        more = request.get("chat_template_kwargs")
        try:
            text = self._template.render(
                {
                    "tools": None, "documents": None, **self._special_tokens, **words,
                    **(more if isinstance(more, Mapping) else {}),
                    "messages": [self._message(message) for message in messages],
                    "strftime_now": now.strftime,
                }
            )  # fmt: skip
        except _FAILURES:
            raise NotRendered from None
        return _without_end(text, messages) if words.get("continue_final_message") else text

    def _message(self, message: Message) -> dict[str, object]:
        """As vLLM hands it on: content as text, or as parts where the template walks through
        them; arguments of calls as values instead of JSON text."""
        found = {name: value for name, value in message.items() if value is not None}
        role = found.get("role")
        if role == "developer" and not self._knows_developers:
            found["role"] = "system"
        in_parts = self._in_parts and role != "tool"
        found["content"] = _content(found.get("content"), in_parts)
        calls = found.pop("tool_calls", None)
        if isinstance(calls, list) and calls:
            found["tool_calls"] = [_call(call) for call in calls]
        return found


def _content(content: object, in_parts: bool) -> object:
    if not in_parts:
        return joined(content)
    if isinstance(content, list):
        return [part if isinstance(part, Mapping) else _part(part) for part in content]
    return [] if content is None else [_part(content)]


def _part(text: object) -> dict[str, object]:
    return {"type": "text", "text": text}


def _call(call: object) -> object:
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    function = dict(call["function"])
    if isinstance(arguments := function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(arguments) if arguments else {}
        except (ValueError, RecursionError):
            function["arguments"] = {}
    return {**call, "function": function}


def _tool(tool: object) -> object:
    """With its fields in the order in which vLLM writes them, whatever that of the request."""
    if not isinstance(tool, Mapping) or not isinstance(tool.get("function"), Mapping):
        return tool
    function = tool["function"]
    ordered = {name: function.get(name) for name in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        ordered["strict"] = function["strict"]
    return {"type": tool.get("type", "function"), "function": ordered}


def _without_end(text: str, messages: Sequence[Message]) -> str:
    """Cut behind the last message, which is to be continued."""
    last = joined(messages[-1].get("content")).strip()
    place = text.rfind(last)
    if place < 0:
        raise NotRendered
    return text[: place + len(last)]


def _walks_parts(template: nodes.Template) -> bool:
    """Does the template loop over the parts of a message's content?"""
    from_content = {"content"}
    for assigned in template.find_all(nodes.Assign):
        if isinstance(assigned.target, nodes.Name) and _is_content(assigned.node, from_content):
            from_content.add(assigned.target.name)
    loops: Iterator[nodes.For] = template.find_all(nodes.For)
    return any(_is_content(loop.iter, from_content) for loop in loops)


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    if isinstance(node, nodes.Filter) and node.node is not None:
        return _is_content(node.node, names)
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return (
        isinstance(node, nodes.Getitem)
        and isinstance(node.arg, nodes.Const)
        and node.arg.value == "content"
    )


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As templates expect it: not made safe for HTML, which Jinja's own is."""
    if isinstance(value, Undefined):
        raise TypeError("nothing to write")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(_: object) -> str:
    raise TemplateError
