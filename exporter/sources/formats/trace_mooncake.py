"""Mooncake traces, and Mooncake-style traces of sessions.

Who publishes them: Mooncake (FAST'25) and everyone who writes its format (AIPerf, Dynamo).
Milliseconds from the start, prompt length, and one id per block of 512 tokens: the last block
may be partial, so there are ceil(length / 512) ids. Equal ids mean an equal prefix, across the
whole file. Cached tokens are not told. A row whose ids do not fit its length is flagged.

In rows with a `session_id` the first has a `timestamp`; later ones have a `delay` behind the
answer before and state only what is new, in length and in ids. They are added up here. A row
that repeats its session's first block states the whole prompt and is taken as it is. How long
the answer took is not told, so `delay` is counted from the earlier start, which is flagged.
Versions read: the FAST'25 release; AIPerf 0.13.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from exporter.sources.formats.documents import items, json_lines, number, unfit_blocks
from exporter.sources.formats.mapping import Field, LogFormat, Row, hashes, text, time, tokens
from exporter.sources.formats.reshape import one_object

_BLOCK_TOKENS = 512
_CONSTANTS = (("block_size", str(_BLOCK_TOKENS)), ("hash_scope", "global"))
_FIELDS: tuple[Field, ...] = (
    time("ts", "timestamp"),
    tokens("prompt_tokens", "input_length"),
    tokens("output_tokens", "output_length"),
    hashes("block_hashes", "hash_ids"),
    text("note", "note"),
)


def _requests(line: str) -> Iterable[Row]:
    row = one_object(line)
    unfit = unfit_blocks(items(row, "hash_ids"), row.get("input_length"), _BLOCK_TOKENS)
    return [row | {"note": "hash_count" if unfit else None}]


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
    reshape=_requests,
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
