"""JSON inside text, with the places of its members: so that they can be put in order without
writing anything else anew."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_DEEPEST = 40
# An object begins with a key, a list of objects with an object.
_OPENING = re.compile(r'\{\s*"|\[\s*\{\s*"')


@dataclass
class Span:
    """An object or list. `members`: of each its name (a key; in a list the `name` of the object,
    where it has one), and where it begins and ends; `inner` are the objects and lists inside."""

    is_object: bool
    begin: int
    end: int = 0
    members: list[tuple[str, int, int]] = field(default_factory=list)
    inner: list["Span"] = field(default_factory=list)

    @property
    def signature(self) -> tuple[bool, frozenset[str]] | None:
        """What stays the same whatever the order; None where there is nothing to order by."""
        names = [name for name, _, _ in self.members]
        if len(names) < 2 or "" in names or len(set(names)) < len(names):
            return None
        return self.is_object, frozenset(names)

    def every(self) -> Iterator["Span"]:
        """This one and all inside."""
        yield self
        for inner in self.inner:
            yield from inner.every()


def spans_of(text: str) -> list[Span]:
    """The outermost objects and lists of objects in a text."""
    found, position = [], 0
    while opening := _OPENING.search(text, position):
        try:
            span, position = _value(text, opening.start(), 0)
        except (ValueError, IndexError):
            position = opening.start() + 1
            continue
        if span is not None:
            found.append(span)
    return found


def _value(text: str, at: int, depth: int) -> tuple[Span | None, int]:
    """The span of the value at a place, None for what is neither object nor list, and its end."""
    if depth > _DEEPEST:
        raise ValueError
    if text[at] == "{":
        return _members(text, at, depth, "}")
    if text[at] == "[":
        return _members(text, at, depth, "]")
    if text[at] == '"':
        return None, scanstring(text, at + 1, False)[1]
    scalar = _SCALAR.match(text, at)
    if scalar is None:
        raise ValueError
    return None, scalar.end()


def _members(text: str, at: int, depth: int, closing: str) -> tuple[Span, int]:
    span = Span(closing == "}", at)
    at = _skip(text, at + 1)
    while text[at] != closing:
        begin, name = at, ""
        if span.is_object:
            name, at = _key(text, at)
        inner, end = _value(text, at, depth + 1)
        if inner is not None:
            span.inner.append(inner)
            name = name or _name_of(text, inner)
        span.members.append((name, begin, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] != closing:
            raise ValueError
    span.end = at + 1
    return span, span.end


def _key(text: str, at: int) -> tuple[str, int]:
    """The key at a place, and where its value begins."""
    if text[at] != '"':
        raise ValueError
    name, at = scanstring(text, at + 1, False)
    at = _skip(text, at)
    if text[at] != ":":
        raise ValueError
    return name, _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _name_of(text: str, span: Span) -> str:
    """What an object in a list calls itself: tools have a name, or one in their function."""
    if not span.is_object:
        return ""
    for name, begin, end in span.members:
        if name == "name":
            value = text[begin:end].partition(":")[2].strip()
            return value.strip('"')
    for inner in span.inner:
        if any(name == "function" and at < inner.begin < end for name, at, end in span.members):
            return _name_of(text, inner)
    return ""


def in_order(text: str, spans: list[Span], chosen: Callable[[Span], bool]) -> str:
    """The text with the members of chosen objects and lists sorted by name. Nothing else changes,
    so it stays as long as it was."""
    return _rendered(text, 0, len(text), spans, chosen)


def _rendered(
    text: str, begin: int, end: int, spans: list[Span], chosen: Callable[[Span], bool]
) -> str:
    parts, at = [], begin
    for span in spans:
        if begin <= span.begin and span.end <= end:
            parts += [text[at : span.begin], _sorted(text, span, chosen)]
            at = span.end
    return "".join([*parts, text[at:end]])


def _sorted(text: str, span: Span, chosen: Callable[[Span], bool]) -> str:
    if not chosen(span):
        return _rendered(text, span.begin, span.end, span.inner, chosen)
    parts, at = [], span.begin
    for (_, begin, end), (_, first, last) in zip(span.members, sorted(span.members), strict=True):
        parts += [text[at:begin], _rendered(text, first, last, span.inner, chosen)]
        at = end
    return "".join([*parts, text[at : span.end]])
