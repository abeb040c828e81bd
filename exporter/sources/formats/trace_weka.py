"""Traces of Claude Code sessions as kv-cache-tester (WEKA) publishes them.

A file is one document: a session with its requests, sub-agents nested and timed from their own
start. Seconds from the start of the trace; blocks of 64 tokens of which only whole ones have an
id, so floor(length / 64) ids; ids mean something within their trace only, sub-agents included.
`trace_id` is therefore the trace, `session` the trace or the sub-agent in it. First-token times
are of the client, streamed requests only. Cached tokens are not told.

The same requests one a line, with runs of ids `[[first, count], …]`, are read as `weka_requests`.
Versions read: kv-cache-tester 94f6046.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

from exporter.sources.formats.documents import (
    items,
    json_documents,
    json_lines,
    kept,
    number,
    objects,
    unfit_blocks,
)
from exporter.sources.formats.mapping import (
    Field,
    LogFormat,
    Row,
    flag,
    hashes,
    seconds,
    text,
    time,
    tokens,
)

_KEPT = ("model", "in", "out", "hash_ids", "ttft", "api_time")
_REMEDY = "split it into one document a trace"
_BLOCK_TOKENS = 64
_SCOPES = {"local": "trace", "global": "global"}
# More blocks than any prompt has; and their ids fit in a line.
_MOST_BLOCKS = 100_000
_START = re.compile(r'\s*\{(?=[^{}]*"hash_id_scope"\s*:)(?=[^{}]*"block_size"\s*:)')


def _requests(stream: BinaryIO) -> Iterator[Row]:
    for trace in json_documents(stream, "trace", _REMEDY):
        shared = {
            "trace_id": trace.get("id"),
            "block_size": trace.get("block_size"),
            "scope": _SCOPES.get(str(trace.get("hash_id_scope"))),
        }
        turns: dict[str, int] = {}
        for number_in_trace, (agent, start, request) in enumerate(_flat(trace)):
            name = "/".join(str(part) for part in (trace.get("id"), agent) if part is not None)
            turns[name] = turns.get(name, 0) + 1
            placed = {"t": start, "session": name, "turn": turns[name]}
            identity = {"id": f"{trace.get('id')}/{number_in_trace}"}
            yield _read(request, trace.get("block_size")) | shared | placed | identity


def _flat(trace: dict[str, object]) -> Iterator[tuple[object, float, dict[str, object]]]:
    """(sub-agent, start in the trace, request), in the order of the document."""
    pending: list[tuple[object, float, dict[str, object]]]
    pending = [(None, 0.0, request) for request in reversed(objects(trace, "requests"))]
    while pending:
        agent, base, request = pending.pop()
        start = base + (number(request.get("t")) or 0.0)
        if request.get("type") != "subagent":
            yield agent, start, request
            continue
        name = request.get("agent_id", agent)
        pending += [(name, start, part) for part in reversed(objects(request, "requests"))]


def _read(request: dict[str, object], block_tokens: object) -> dict[str, object]:
    streamed = {"s": True, "n": False}.get(str(request.get("type")))
    unfit = unfit_blocks(items(request, "hash_ids"), request.get("in"), block_tokens)
    note = "hash_count" if unfit else None
    return kept(request, _KEPT) | {"stream": streamed, "note": note}


def blocks_in_runs(row: dict[str, object]) -> list[int] | None:
    """The ids that `hash_runs` stands for; None where there are more than a prompt can have."""
    ids: list[int] = []
    for run in items(row, "hash_runs"):
        if not isinstance(run, list) or len(run) != 2 or not all(type(n) is int for n in run):
            return None
        if len(ids) + run[1] > _MOST_BLOCKS:
            return None
        ids.extend(range(run[0], run[0] + run[1]))
    return ids


def _flat_requests(stream: BinaryIO) -> Iterator[Row | str]:
    turns: dict[str, int] = {}
    for line, row in json_lines(stream):
        if "hash_runs" not in row:
            yield line
            continue
        blocks = blocks_in_runs(row)
        if blocks is None:
            yield {"skip": "unreadable_blocks"}
            continue
        parts = (row.get("trace_id"), row.get("agent_id"))
        name = "/".join(str(part) for part in parts if part is not None)
        turns[name] = turns.get(name, 0) + 1
        placed = {"session": name, "turn": turns[name]} | kept(row, ("t", "trace_id"))
        shared = {"block_size": _BLOCK_TOKENS, "scope": "trace"}
        yield _read(row | {"hash_ids": blocks}, _BLOCK_TOKENS) | shared | placed


_FIELDS: tuple[Field, ...] = (
    text("skip", "skip"),
    text("note", "note"),
    time("ts", "t"),
    text("request_id", "id"),
    text("trace_id", "trace_id"),
    text("session", "session"),
    tokens("turn", "turn"),
    text("model", "model"),
    tokens("prompt_tokens", "in"),
    tokens("output_tokens", "out"),
    flag("stream", "stream"),
    seconds("ttft_seconds", "ttft"),
    seconds("e2e_seconds", "api_time"),
    tokens("block_size", "block_size"),
    hashes("block_hashes", "hash_ids"),
    text("hash_scope", "scope"),
)


def _sniff(head: str) -> str | None:
    return "the document is a trace with blocks and their scope" if _START.match(head) else None


FORMAT = LogFormat(
    name="weka",
    title="kv-cache-tester (WEKA) trace of a Claude Code session",
    versions="kv-cache-tester 94f6046",
    basis="inclusive",
    signature=(("hash_id_scope",), ("block_size",), ("requests",)),
    fields=_FIELDS,
    constants=(("ttft_point", "client"),),
    relative_time="seconds",
    documents=_requests,
    sniff=_sniff,
)

REQUESTS = LogFormat(
    name="weka_requests",
    title="requests of kv-cache-tester traces, one a line",
    versions="kv-cache-tester 94f6046",
    basis="inclusive",
    signature=(("hash_runs",), ("trace_id",), ("in",)),
    fields=_FIELDS,
    constants=(("ttft_point", "client"),),
    relative_time="seconds",
    documents=_flat_requests,
)
