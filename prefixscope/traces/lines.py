"""The kinds of public traces: what a line of each is, and how it is read into columns.

| kind | time | block | ids |
| --- | --- | --- | --- |
| Mooncake, Dynamo, AIPerf, `prefixscope export` | `timestamp` ms | as rows fit | of the file |
| the same with `session_id` | `timestamp`, or `delay` | as rows fit | what a turn adds |
| Bailian (`chat_id`) | `timestamp` s | as rows fit | of the file |
| kv-cache-tester: documents, or `hash_runs` | `t` s of each trace | stated | of each trace |
| LMCache agents (`hash_runs`, `input_bytes`) | `ts_us` | stated, in bytes | of the file |
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from prefixscope.traces.columns import Columns, NotATraceRow

MILLISECONDS, SECONDS, MICROSECONDS = 1e-3, 1.0, 1e-6
_WEKA_BLOCK_TOKENS = 64

Row = msgspec.Struct
Runs = list[tuple[int, int]]


class MooncakeRow(Row, gc=False):
    """Fields not named here (priorities, kinds of messages) are skipped, not built."""

    input_length: int
    hash_ids: list[int]
    timestamp: float | None = None
    output_length: int = 0
    session_id: str | int | None = None
    delay: float | None = None
    chat_id: str | int | None = None
    parent_chat_id: str | int | None = None


class WekaRow(Row, gc=False):
    """A request of a trace of its own, sub-agents merged in by time."""

    trace_id: str
    t: float
    tokens: int = msgspec.field(name="in")
    hash_runs: Runs
    out: int = 0
    agent_id: str | None = None


class LmcacheRow(Row, gc=False):
    """A call of an agent, told in bytes of text."""

    ts_us: float
    input_bytes: int
    block_bytes: int
    hash_runs: Runs
    output_bytes: int = 0
    agent: str | None = None
    session: str | int | None = None


class WekaRequest(Row):
    """In a document: a request, or a sub-agent with requests timed from its own start."""

    t: float = 0.0
    type: str = ""
    tokens: int = msgspec.field(name="in", default=0)
    out: int = 0
    hash_ids: list[int] = msgspec.field(default_factory=list)
    agent_id: str | None = None
    requests: list["WekaRequest"] = msgspec.field(default_factory=list)


class WekaDocument(Row):
    """A whole trace."""

    id: str
    block_size: Annotated[int, msgspec.Meta(ge=1)]
    hash_id_scope: str
    requests: list[WekaRequest]


@dataclass
class Reader:
    """Columns, and what a row needs to know of those before it."""

    columns: Columns = field(default_factory=Columns)
    started: dict[int, float] = field(default_factory=dict)
    begun_chats: dict[str | int, str | int] = field(default_factory=dict)
    trace: str | None = None
    trace_began: float = 0.0


def add_mooncake(reader: Reader, row: MooncakeRow) -> None:
    """One prompt, or the next turn of a session."""
    columns = reader.columns
    if row.session_id is not None:
        columns.turns = True
        session = columns.sessions.add(len(columns), row.session_id)
        time = reader.started[session] = _turn_start(reader, row, session)
    elif row.timestamp is None:
        raise NotATraceRow("timestamp is missing")
    else:
        time = row.timestamp
    columns.add(time, row.input_length, row.output_length, row.hash_ids)


def _turn_start(reader: Reader, row: MooncakeRow, session: int) -> float:
    """How long answers took is not told, so a delay counts from the start of the turn before."""
    before = reader.started.get(session)
    if row.timestamp is not None:
        if before is not None and not row.timestamp >= before:
            raise NotATraceRow("its timestamp is before that of its session's turn before")
        return row.timestamp
    if row.delay is None or before is None or not row.delay >= 0:
        raise NotATraceRow(
            "a turn needs a timestamp, or a delay of 0 or more behind an earlier one"
        )
    reader.columns.starts_by_delay += 1
    return before + row.delay


def add_bailian(reader: Reader, row: MooncakeRow) -> None:
    """A chat names the one it continues; the first of them names the session."""
    if row.timestamp is None or row.chat_id is None:
        raise NotATraceRow("timestamp or chat_id is missing")
    columns, first = reader.columns, row.chat_id
    if row.parent_chat_id is not None and str(row.parent_chat_id) != "-1":
        first = reader.begun_chats.get(row.parent_chat_id, row.parent_chat_id)
    reader.begun_chats[row.chat_id] = first
    columns.sessions.add(len(columns), first)
    columns.add(row.timestamp, row.input_length, row.output_length, row.hash_ids)


def _begin(reader: Reader, trace: str) -> None:
    """Traces tell time from their own start, so each begins where the one before ends."""
    if trace == reader.trace:
        return
    if trace in reader.columns.scopes.names:
        raise NotATraceRow(f"rows of {trace} are not together: times begin anew in each trace")
    times = reader.columns.times
    reader.trace, reader.trace_began = trace, times[-1] if times else 0.0


def add_weka(reader: Reader, row: WekaRow) -> None:
    """A request; the trace is the scope of its ids, and it or the sub-agent the session."""
    columns = reader.columns
    columns.state_block(_WEKA_BLOCK_TOKENS)
    _begin(reader, row.trace_id)
    columns.scopes.add(len(columns), row.trace_id)
    columns.sessions.add(len(columns), (row.trace_id, row.agent_id))
    columns.add_runs(reader.trace_began + row.t, row.tokens, row.out, row.hash_runs)


def add_lmcache(reader: Reader, row: LmcacheRow) -> None:
    """A call; the agent is what made its prompts, so its template."""
    columns = reader.columns
    columns.state_block(row.block_bytes)
    if row.agent is not None:
        columns.templates.add(len(columns), row.agent)
    if row.session is not None:
        columns.sessions.add(len(columns), row.session)
    columns.add_runs(row.ts_us, row.input_bytes, row.output_bytes, row.hash_runs)


def add_document(reader: Reader, trace: WekaDocument) -> None:
    """All requests of a trace in order of time."""
    columns = reader.columns
    if trace.hash_id_scope not in ("local", "global"):
        raise NotATraceRow(f"hash_id_scope is local or global, not {trace.hash_id_scope!r}")
    columns.state_block(trace.block_size)
    _begin(reader, trace.id)
    for start, agent, request in sorted(_flat(trace.requests, 0.0, None), key=lambda each: each[0]):
        if trace.hash_id_scope == "local":
            columns.scopes.add(len(columns), trace.id)
        columns.sessions.add(len(columns), (trace.id, agent))
        columns.add(reader.trace_began + start, request.tokens, request.out, request.hash_ids)


def _flat(
    requests: list[WekaRequest], base: float, agent: str | None
) -> Iterator[tuple[float, str | None, WekaRequest]]:
    """(start in the trace, sub-agent, request)."""
    for request in requests:
        if request.type == "subagent":
            name = request.agent_id or agent
            yield from _flat(request.requests, base + request.t, name)
        else:
            yield base + request.t, agent, request


@dataclass(frozen=True)
class Kind:
    """`names_partial`: the last, partial block has an id. `of_bytes`: lengths and blocks are bytes
    of text, not tokens. `own_times`: each trace in it tells time from its own start."""

    row: type[Row]
    add: Callable[[Reader, Any], None]
    seconds_each: float
    names_partial: bool = True
    of_bytes: bool = False
    own_times: bool = False


MOONCAKE = Kind(MooncakeRow, add_mooncake, MILLISECONDS)
BAILIAN = Kind(MooncakeRow, add_bailian, SECONDS)
WEKA = Kind(WekaRow, add_weka, SECONDS, names_partial=False, own_times=True)
WEKA_DOCUMENT = Kind(WekaDocument, add_document, SECONDS, names_partial=False, own_times=True)
LMCACHE = Kind(LmcacheRow, add_lmcache, MICROSECONDS, of_bytes=True)


def is_document(head: bytes) -> bool:
    """Is a file one document, by its first bytes? Else it is one of lines."""
    return b'"hash_id_scope"' in head


def kind_of(line: bytes) -> Kind | None:
    """By the names in the first line, however wrong its values are; None for another log."""
    has = {name: f'"{name}"'.encode() in line for name in _TOLD_BY}
    if is_document(line):
        return WEKA_DOCUMENT
    if has["hash_runs"]:
        return LMCACHE if has["input_bytes"] else WEKA if has["trace_id"] else None
    if has["hash_ids"]:
        return BAILIAN if has["chat_id"] else MOONCAKE
    return None


_TOLD_BY = ("hash_runs", "input_bytes", "trace_id", "hash_ids", "chat_id")
