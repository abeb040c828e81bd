"""What stands at a place, by the looks of its values."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from replay.layout.atoms import WILD, looks_of

Kind = Literal[
    "clock", "uuid", "counter", "name", "tool_order", "key_order", "white_space", "retrieved",
    "thinking_removed", "template_version", "tokenizer_join", "unknown",
]  # fmt: skip

_PASSAGE_WORDS = 12
_NAME_CHARACTERS = 40
_NAME_WORDS = 4
_MOSTLY = 0.8
_LONG_ID_DIGITS = 6

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
_NAME_WORD = re.compile(r"[^\W\d_]+(?:[.'’-][^\W\d_]*)*,?")
_NUMBER = re.compile(r"[\d,]+(?:\.\d+)?")

_BY_LOOKS: dict[str, Kind] = {
    "clock": "clock",
    "uuid": "uuid",
    "email": "name",
    "white_space": "white_space",
    "thinking": "thinking_removed",
}

# Kinds whose values belong to somebody or to a moment: one change may be a second of those.
OWNED: frozenset[Kind] = frozenset({"clock", "uuid", "counter", "name"})


def kind_of(looks: str, values: Sequence[str]) -> Kind:
    """The kind of values, given in the order of time."""
    if looks in _BY_LOOKS:
        return _BY_LOOKS[looks]
    distinct = [value for value in dict.fromkeys(map(str.strip, values)) if value]
    # Where some have nothing at all there, what the others have still looks like what it is.
    for known in WILD:
        if known in _BY_LOOKS and _most(looks_of(value) == known for value in distinct):
            return _BY_LOOKS[known]
    if _most(_NUMBER.fullmatch(value) is not None for value in distinct):
        return _number_kind([value for value in values if _NUMBER.fullmatch(value)])
    if _most(map(_is_name, distinct)):
        return "name"
    words = [len(value.split()) for value in distinct]
    if distinct and sum(words) >= _PASSAGE_WORDS * len(distinct):
        return "retrieved"
    return "unknown"


def _most(flags: Iterable[bool]) -> bool:
    given = list(flags)
    return bool(given) and sum(given) >= _MOSTLY * len(given)


def _is_name(value: str) -> bool:
    if _EMAIL.fullmatch(value):
        return True
    words = value.split()
    if len(value) > _NAME_CHARACTERS or not 0 < len(words) <= _NAME_WORDS:
        return False
    capitals = sum(word[0].isupper() for word in words)
    return all(map(_NAME_WORD.fullmatch, words)) and 2 * capitals >= len(words)


def _number_kind(values: Sequence[str]) -> Kind:
    """A number that only rises counts something; a long one that does not is an id."""
    numbers = [float(value.replace(",", "")) for value in values if value.strip(",")]
    steps = [b - a for a, b in itertools.pairwise(numbers) if a != b]
    if len(steps) > 1 and sum(step > 0 for step in steps) >= 0.9 * len(steps):
        return "counter"
    long = sum(number >= 10 ** (_LONG_ID_DIGITS - 1) for number in numbers)
    return "uuid" if numbers and long >= _MOSTLY * len(numbers) else "unknown"
