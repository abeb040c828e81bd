"""Just enough PromQL to know what an expression asks for: selectors, their matchers, and labels it
groups and joins by. Whether it is right, Prometheus says."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*)
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
      | (?P<number>\d[\w.]*)
      | (?P<word>[A-Za-z_:][\w:]*)
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],@])""",
    re.VERBOSE,
)
_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan", "start", "end"} | _LISTS
_CLOSING = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True)
class Selector:
    """`text` is the selector as Prometheus takes it; `name` None = the name is a matcher."""

    text: str
    name: str | None
    matchers: tuple[tuple[str, str, str], ...]  # label, operator, value
    position: int


@dataclass(frozen=True)
class Labels:
    """Labels that an aggregation or a join names, and the selectors it stands over."""

    names: tuple[str, ...]
    selectors: tuple[Selector, ...]


@dataclass
class Asked:
    """What an expression asks for."""

    selectors: list[Selector] = field(default_factory=list)
    labels: list[Labels] = field(default_factory=list)


def asked(expression: str) -> Asked:
    """Read one expression. What is no PromQL at all is an error."""
    tokens = list(_tokens(expression))
    found = Asked(list(_selectors(tokens)))
    for position, (_, word) in enumerate(tokens):
        if word in _LISTS and tokens[position + 1][1] == "(":
            end = _close(tokens, position + 1)
            names = tuple(text for kind, text in tokens[position + 2 : end] if kind == "word")
            low, high = _scope(tokens, position, end, word)
            over = (s for s in found.selectors if low <= s.position <= high)
            found.labels.append(Labels(names, tuple(over)))
    return found


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match, f"not PromQL at {text[position : position + 20]!r}"
        if match.lastgroup != "blank":
            yield str(match.lastgroup), match[0]
        position = match.end()


def _close(tokens: Sequence[tuple[str, str]], opening: int) -> int:
    """Where the bracket at `opening` is closed."""
    bracket, depth = tokens[opening][1], 0
    for position in range(opening, len(tokens)):
        depth += tokens[position][1] == bracket
        depth -= tokens[position][1] == _CLOSING[bracket]
        if depth == 0:
            return position
    raise AssertionError(f"{bracket} is not closed")


def _open(tokens: Sequence[tuple[str, str]], closing: int) -> int:
    """Where the round bracket closed at `closing` was opened."""
    depth = 0
    for position in range(closing, -1, -1):
        depth += tokens[position][1] == ")"
        depth -= tokens[position][1] == "("
        if depth == 0:
            return position
    raise AssertionError(") is not opened")


def _scope(
    tokens: Sequence[tuple[str, str]], position: int, end: int, word: str
) -> tuple[int, int]:
    """From which token to which an aggregation reaches; a join reaches over all."""
    if word in ("by", "without"):
        if tokens[position - 1][1] == ")":
            return _open(tokens, position - 1), position - 1
        return end + 1, _close(tokens, end + 1)
    return 0, len(tokens)


def _selectors(tokens: Sequence[tuple[str, str]]) -> Iterator[Selector]:
    position = 0
    while position < len(tokens):
        kind, word = tokens[position]
        following = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        if word in _LISTS and following == "(":
            position = _close(tokens, position + 1)
        elif word == "[":
            position = _close(tokens, position)
        elif kind == "word" and word not in _WORDS and following != "(":
            # `sum by (…) (…)`: the word before a list is an aggregation.
            if following not in _LISTS:
                matchers: tuple[tuple[str, str, str], ...] = ()
                start = position
                if following == "{":
                    end = _close(tokens, position + 1)
                    matchers = _matchers(tokens[position + 2 : end])
                    position = end
                yield Selector(_text(word, matchers), word, matchers, start)
        elif word == "{":
            end = _close(tokens, position)
            matchers = _matchers(tokens[position + 1 : end])
            yield Selector(_text("", matchers), None, matchers, position)
            position = end
        position += 1


def _matchers(tokens: Sequence[tuple[str, str]]) -> tuple[tuple[str, str, str], ...]:
    parts = [text for _, text in tokens if text != ","]
    return tuple(
        (label, sign, value[1:-1])
        for label, sign, value in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    )


def _text(name: str, matchers: Sequence[tuple[str, str, str]]) -> str:
    inside = ",".join(f'{label}{sign}"{value}"' for label, sign, value in matchers)
    return f"{name}{{{inside}}}" if inside else name


def alternatives(pattern: str) -> list[str]:
    """`a|b(c|d)` -> `a`, `b(c|d)`: the parts of a regular expression of which one may match."""
    parts, depth, start = [], 0, 0
    for position, sign in enumerate(pattern):
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            parts.append(pattern[start:position])
            start = position + 1
    return [*parts, pattern[start:]]
