"""Mooncake traces, and Mooncake-style traces of sessions.

Who publishes them: Mooncake (FAST'25) and everyone who writes its format (AIPerf, Dynamo).
Milliseconds from the start, prompt length, and one id per block, usually of 512 tokens: the last
block may be partial, so there are ceil(length / 512) ids. Equal ids mean an equal prefix, across
the whole file. Cached tokens are not told. The file does not carry its block size: it is 512 where
the first rows fit that, else the only power of two they fit. A row whose ids do not fit its length
is flagged and has no chain, as nobody knows what its ids stand for.

In rows with a `session_id` the first has a `timestamp`; later ones have a `delay` behind the
answer before and state only what is new, in length and in ids. They are added up here. A row
that repeats its session's first block states the whole prompt and is taken as it is. How long
the answer took is not told, so `delay` is counted from the earlier start, which is flagged.
Versions read: the FAST'25 release; AIPerf 0.13.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import BinaryIO

from exporter.sources.formats.documents import items, json_lines, number, unfit_blocks
from exporter.sources.formats.mapping import Field, LogFormat, Row, hashes, text, time, tokens
from exporter.sources.formats.reshape import one_object

_BLOCK_TOKENS = 512
_OTHER_BLOCKS = tuple(1 << power for power in range(4, 15))
_CONSTANTS = (("block_size", str(_BLOCK_TOKENS)), ("hash_scope", "global"))
_FIELDS: tuple[Field, ...] = (
    time("ts", "timestamp"),
    tokens("prompt_tokens", "input_length"),
    tokens("output_tokens", "output_length"),
    hashes("block_hashes", "hash_ids"),
    text("note", "note"),
)


def _requests(block_tokens: int, line: str) -> Iterable[Row]:
    row = one_object(line)
    if unfit_blocks(items(row, "hash_ids"), row.get("input_length"), block_tokens):
        return [row | {"note": "hash_count", "hash_ids": None}]
    return [row | {"note": None}]


def _fitted(head: bytes) -> LogFormat:
    """By the rows in the first bytes of a file; a last one that was cut plays no part."""
    rows = []
    for line in head.splitlines():
        try:
            rows.append(one_object(line.decode(errors="replace")))
        except ValueError:
            continue
    told = [(number(row.get("input_length")), len(items(row, "hash_ids"))) for row in rows]
    fitting = (
        size
        for size in (_BLOCK_TOKENS, *_OTHER_BLOCKS)
        if all(length is None or -(-length // size) == blocks for length, blocks in told)
    )
    return _of_blocks(next(fitting, _BLOCK_TOKENS))


@cache
def _of_blocks(block_tokens: int) -> LogFormat:
    if block_tokens == _BLOCK_TOKENS:
        return FORMAT
    constants = (("block_size", str(block_tokens)), ("hash_scope", "global"))
    return replace(FORMAT, constants=constants, reshape=partial(_requests, block_tokens))


@dataclass
class _Session:
    """The prompt of a session so far."""

    start_milliseconds: float | None = None
    prompt_tokens: float = 0
    chain: list[object] = field(default_factory=list)
    turns: int = 0


def _turns(stream: BinaryIO) -> Iterator[Row | str]:
    sessions: dict[str, _Session] = {}
    for line, row in json_lines(stream):
        if "session_id" not in row:
            yield line
            continue
        name = str(row["session_id"])
        yield _turn(name, row, sessions.setdefault(name, _Session()))


def _turn(name: str, row: dict[str, object], session: _Session) -> Row:
    new, length = items(row, "hash_ids"), number(row.get("input_length"))
    if session.chain and new[:1] == session.chain[:1]:
        session.chain, session.prompt_tokens = [], 0
    session.chain = [*session.chain, *new]
    session.prompt_tokens += length or 0
    session.turns += 1
    stated, delay = number(row.get("timestamp")), number(row.get("delay"))
    if stated is None and delay is not None and session.start_milliseconds is not None:
        stated = session.start_milliseconds + delay
    session.start_milliseconds = stated
    prompt = session.prompt_tokens if length is not None else None
    note = "start_by_delay" if "timestamp" not in row and stated is not None else None
    if unfit_blocks(session.chain, prompt, _BLOCK_TOKENS, session.turns):
        note = "hash_count"
    return {
        "timestamp": stated,
        "session_id": name,
        "turn": session.turns,
        "input_length": prompt,
        "output_length": row.get("output_length"),
        "hash_ids": session.chain,
        "note": note,
    }


FORMAT = LogFormat(
    name="mooncake",
    title="Mooncake trace",
    versions="FAST'25 release",
    basis="inclusive",
    signature=(("hash_ids",), ("input_length",), ("timestamp",)),
    fields=_FIELDS,
    constants=_CONSTANTS,
    relative_time="milliseconds",
    reshape=partial(_requests, _BLOCK_TOKENS),
    fitted=_fitted,
)

SESSIONS = LogFormat(
    name="mooncake_sessions",
    title="Mooncake-style trace of sessions",
    versions="AIPerf 0.13",
    basis="inclusive",
    signature=(("session_id",), ("hash_ids",), ("input_length",)),
    fields=(
        *_FIELDS,
        text("session", "session_id"),
        tokens("turn", "turn"),
    ),
    constants=_CONSTANTS,
    relative_time="milliseconds",
    documents=_turns,
)
