"""Reading inputs that are more than independent lines: whole documents, and lines in context.

Some logs are one JSON document, some say in one line what the next ones mean. A format reads
those with `documents`; what every such reader needs is here. Lines are decoded one by one and
never all held. A document must be held, so its size is bounded.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources.formats.reshape import one_object
from exporter.sources.lines import LINE_LIMIT_BYTES

DOCUMENT_LIMIT_BYTES = 128 << 20
_READ_BYTES = 1 << 20
_SPACE = " \t\r\n"
_SPACES = re.compile(f"[{_SPACE}]*")
# Above every count, span and time in nanoseconds; infinity and NaN are not below it either.
_LARGEST = 2**63


def text_lines(stream: BinaryIO) -> Iterator[str]:
    """The lines without their ends. Bytes that are no UTF-8 stay recognisable as such, and of
    an over-long line there is just enough left to be refused as too long."""
    while line := stream.readline(LINE_LIMIT_BYTES + 1):
        ended = line.endswith(b"\n")
        yield line.rstrip(b"\r\n").decode(errors="surrogateescape")
        while not ended and (line := stream.readline(_READ_BYTES)):
            ended = line.endswith(b"\n")


def json_lines(stream: BinaryIO) -> Iterator[tuple[str, dict[str, object]]]:
    """Every line and the object in it; an empty object where there is none to be read, so
    that the reader can hand the line on to be rejected."""
    for line in text_lines(stream):
        try:
            yield line, one_object(line)
        except ValueError:
            yield line, {}


def json_documents(stream: BinaryIO, what: str, remedy: str) -> Iterator[dict[str, object]]:
    """The JSON objects in an input, one after another, however they are laid out.

    `what` names the input in errors, `remedy` says what to do with one that is too large.
    Raises PrefixscopeError for that and for anything that is no JSON object.
    """
    text = _text(stream, what, remedy)
    decoder, position = json.JSONDecoder(), 0
    while position < len(text := text.rstrip(_SPACE)):
        try:
            document, position = decoder.raw_decode(text, behind_space(text, position))
        except (ValueError, RecursionError) as error:
            raise PrefixscopeError(f"the {what} cannot be read as JSON ({error})") from None
        if not isinstance(document, dict):
            raise PrefixscopeError(f"the {what} is no JSON object")
        yield document


def behind_space(text: str, position: int) -> int:
    """The first position from there on that is not white space of JSON."""
    space = _SPACES.match(text, position)
    return space.end() if space else position


def is_json(text: str | bytes) -> bool:
    """Whether all of it is one JSON value that can be read."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _text(stream: BinaryIO, what: str, remedy: str) -> str:
    data = bytearray()
    while block := stream.read(_READ_BYTES):
        data += block
        if len(data) > DOCUMENT_LIMIT_BYTES:
            raise PrefixscopeError(
                f"the {what} is larger than {DOCUMENT_LIMIT_BYTES >> 20} MiB, the most that is "
                f"read at once; {remedy}"
            )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PrefixscopeError(f"the {what} is not UTF-8 (byte {error.start})") from None


def inner(row: object, *names: str) -> dict[str, object]:
    """The object reached by these keys; an empty one where there is none."""
    for name in names:
        row = row.get(name) if isinstance(row, dict) else None
    return row if isinstance(row, dict) else {}


def items(row: dict[str, object], name: str) -> list[object]:
    """The list at a key; an empty one where there is none."""
    value = row.get(name)
    return value if isinstance(value, list) else []


def objects(row: dict[str, object], name: str) -> list[dict[str, object]]:
    """The objects in the list at a key; anything else in it is left out."""
    return [value for value in items(row, name) if isinstance(value, dict)]


def number(value: object) -> float | None:
    """The number, if it is one that can be calculated with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None


def kept(row: dict[str, object], names: tuple[str, ...]) -> dict[str, object]:
    """Only these keys: what is not read must not travel on, for it may be a prompt."""
    return {name: row[name] for name in names if name in row}


def unfit_blocks(
    blocks: Sequence[object], tokens: object, block_tokens: object, turns: int = 1
) -> bool:
    """Whether so many blocks cannot be those of a prompt of so many tokens.

    Traces count whole blocks only or the partial last one too; a chain put together from turns
    may have a partial block a turn. Without blocks or numbers nothing can be said: False.
    """
    length, size = number(tokens), number(block_tokens)
    if not blocks or length is None or not size:
        return False
    return not length // size <= len(blocks) <= -(-length // size) + turns - 1
