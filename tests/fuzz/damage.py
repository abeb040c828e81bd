"""Ways in which input goes wrong: bytes, words and JSON values that are changed, lost or repeated.

All take the chance as an argument: a seed says all there is to know about a failure.
"""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any, Literal

Kind = Literal["json", "text", "bytes"]

# A value as it stands in a JSON text, so that it can be what no encoder would write.
ODD_JSON = (
    "null", "true", "false", "0", "-1", "-0.0", "1.5", "1e3", "1e16", "1e300", "1e999", "-1e999",
    "NaN", "Infinity", "-Infinity", str(2**31), str(2**53 + 1), str(2**63), str(2**64),
    str(-(2**63)), "9" * 400, "9" * 5000, "[]", "{}", '[1, "a", null]', '{"a": {"b": 1}}', '""',
    '"x"', '"0"', '"-5"', '"7.5"', '"1e5"', '" 7 "', '"NaN"', '"inf"', '"true"', '"١٢"',
    '"2026-03-02T12:00:00Z"', '"2026-03-02T12:00:00+25:00"', '"0001-01-01T00:00:00-23:59"',
    '"9999-12-31T23:59:59.999999+00:00"', '"2026-02-30"', r'"\ud800"', r'"\u0000"',
    r'"a\u0000b"', r'"\udc41\ud83d"', r'"\u202e\u2028\ufeff"', '"é😀"', '"' + "é" * 300 + '"',
    '"{\\"a\\": [1"', '"[[1]]"', '"a.b\\"c"', "'single'", "1_000", "0x10", "+5", "5.", "tru",
)  # fmt: skip
# Pieces of text to put anywhere.
ODD_TEXT = (
    "NaN", "-1", "1e999", "9" * 400, "0x7f", "١٢", "\u2028", "\u0085", "\ufeff", "\u202e", "é",
    "😀", "\x00", "\x1b[31m", "\r", "\n", "\n\n", '"', "'", "\\", "\\u", "{", "}", "[", "]", "(",
    ")", "{}", ",", ",,", ":", ": ", "#", "# ", "&a ", "*a", "!!int ", "!!timestamp ", "---\n",
    "\t", "? ", "- ", "|", ">", "<", "=", "==", "%", "//", "..", "2001-99-99", "true", "~", "null",
    "{1000}", "(?=a)", "(a*)*", "[[:alpha:]]", "le=", "_total", "_bucket", "+Inf", " 1 2 3",
)  # fmt: skip
ODD_BYTES = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80" * 9)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORD = re.compile(rb"[\w.-]+")
_DEPTHS = (3, 100, 2_000, 50_000)
_HOLE = "@hole {}@"


def damaged(seed: bytes, kind: Kind, chance: Random) -> bytes:
    """One to four things done to a good input. JSON that can be parsed is mostly damaged by
    value, so that the result is still JSON; text by words and lines; anything by bytes."""
    if kind == "json" and chance.random() < 0.75:
        return damaged_lines(seed, chance)
    steps = BYTE_STEPS if kind == "bytes" else (*BYTE_STEPS, *TEXT_STEPS, *TEXT_STEPS)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if seed:
            seed = chance.choice(steps)(seed, chance)
    return seed


def damaged_lines(seed: bytes, chance: Random) -> bytes:
    """JSON as one document or one a line: some of its values are changed."""
    try:
        return damaged_value(json.loads(seed), chance).encode()
    except (ValueError, RecursionError):
        lines = seed.split(b"\n")
    number = chance.randrange(len(lines))
    try:
        lines[number] = damaged_value(json.loads(lines[number]), chance).encode()
    except (ValueError, RecursionError):
        lines[number] = chance.choice(TEXT_STEPS)(lines[number] or b" ", chance)
    return b"\n".join(lines)


def damaged_value(value: object, chance: Random) -> str:
    """The text of a JSON value of which a few parts are odd, missing, repeated or very deep.

    Whatever stands in it as text stays where it is or goes: no part takes the place of another,
    so that what was no name does not become one. The value itself is used up.
    """
    holder: dict[str, Any] = {"": value}
    holes: list[str] = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = _places(holder)
        within, key = chance.choice(places)
        if chance.random() < 0.15 and len(places) > 1 and key != "":
            del within[key]
            continue
        within[key] = _HOLE.format(len(holes))
        holes.append(_odd_value(chance))
    text = json.dumps(holder[""])
    for number, hole in enumerate(holes):
        text = text.replace(json.dumps(_HOLE.format(number)), hole)
    return _repeated_key(text, chance) if chance.random() < 0.1 else text


def _odd_value(chance: Random) -> str:
    if chance.random() < 0.04:
        depth = chance.choice(_DEPTHS)
        return chance.choice(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
    return chance.choice(ODD_JSON)


def _places(value: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Every container and key in a value; the outermost first."""
    found: list[tuple[Any, Any]] = []
    waiting: list[Any] = [value]
    while waiting and len(found) < 2_000:
        within = waiting.pop()
        keys = list(within) if isinstance(within, dict) else range(len(within))
        for key in keys:
            found.append((within, key))
            if isinstance(within[key], dict | list):
                waiting.append(within[key])
    return found


def _repeated_key(text: str, chance: Random) -> str:
    """The same object with one of its keys twice, odd the first or the second time."""
    keys = list(re.finditer(r'[{,] ?("\w+": )', text))
    if not keys:
        return text
    key = chance.choice(keys)
    return text[: key.start(1)] + key[1] + _odd_value(chance) + ", " + text[key.start(1) :]


def _flip(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, chance: Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _span(data: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(data))
    return start, min(len(data), start + chance.choice((1, 2, 8, 64, 1024)))


def _drop(data: bytes, chance: Random) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + data[end:]


def _repeat(data: bytes, chance: Random) -> bytes:
    start, end = _span(data, chance)
    return data[:end] + data[start:end] * chance.choice((1, 1, 1, 20)) + data[end:]


def _put_bytes(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(ODD_BYTES) + data[at:]


def _put_text(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(ODD_TEXT).encode() + data[at:]


def _other_number(data: bytes, chance: Random) -> bytes:
    return _replaced(_NUMBER, data, chance)


def _other_word(data: bytes, chance: Random) -> bytes:
    return _replaced(_WORD, data, chance)


def _replaced(pattern: re.Pattern[bytes], data: bytes, chance: Random) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    word = chance.choice(found)
    odd = chance.choice((*ODD_TEXT, *ODD_JSON)).encode()
    return data[: word.start()] + odd + data[word.end() :]


def _other_lines(data: bytes, chance: Random) -> bytes:
    """A line gone, twice, or in another place; CRLF ends."""
    lines = data.split(b"\n")
    number = chance.randrange(len(lines))
    line = lines.pop(number)
    what = chance.randrange(4)
    if what == 0:
        lines[number:number] = [line, line]
    elif what == 1:
        lines.insert(chance.randrange(len(lines) + 1), line)
    elif what == 2:
        return b"\r\n".join([*lines, line])
    return b"\n".join(lines)


def _deep(data: bytes, chance: Random) -> bytes:
    at, depth = chance.randrange(len(data) + 1), chance.choice(_DEPTHS[:3])
    opened, closed = chance.choice(((b"[", b"]"), (b"(", b")"), (b'{"a":', b"}"), (b"- ", b"")))
    return data[:at] + opened * depth + closed * depth + data[at:]


Step = Callable[[bytes, Random], bytes]
BYTE_STEPS: tuple[Step, ...] = (_flip, _cut, _drop, _repeat, _put_bytes)
TEXT_STEPS: tuple[Step, ...] = (_put_text, _other_number, _other_word, _other_lines, _deep)
