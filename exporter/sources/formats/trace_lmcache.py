"""LMCache agent traces: calls of agents with their whole prompt as text.

Microseconds since the epoch, text of prompt and answer, a session. The text is never kept, and
tokens are not told: such a row says when a session asked, and with a local tokenizer what. The same
calls as chained ids of 256-BYTE blocks in runs are read as `lmcache_blocks`; bytes are no tokens,
so the block size is left unknown and the rows are flagged. Versions read: lmcache-agent-trace
16a14ad.
"""

from collections.abc import Iterator
from typing import BinaryIO

from exporter.sources.formats.documents import json_lines, kept
from exporter.sources.formats.mapping import (
    NAMED_PROMPT,
    LogFormat,
    PromptPlaces,
    Row,
    hashes,
    prompt_fields,
    text,
    time,
    tokens,
)
from exporter.sources.formats.trace_weka import blocks_in_runs


def _calls(stream: BinaryIO) -> Iterator[Row | str]:
    for line, row in json_lines(stream):
        if "hash_runs" not in row:
            yield line
            continue
        blocks = blocks_in_runs(row)
        if blocks is None:
            yield {"skip": "unreadable_blocks"}
            continue
        yield kept(row, ("ts_us", "agent", "session")) | {
            "hash_ids": blocks,
            "note": "blocks_of_bytes",
        }


FORMAT = LogFormat(
    name="lmcache_agent",
    title="LMCache agent trace (text)",
    versions="lmcache-agent-trace 16a14ad",
    basis="inclusive",
    signature=(("timestamp",), ("input",), ("output",), ("session_id",)),
    fields=(
        time("ts", "timestamp"),
        text("session", "session_id"),
        tokens("prompt_tokens", f"{NAMED_PROMPT}.prompt_tokens"),
        *prompt_fields(),
    ),
    prompts=PromptPlaces(texts=("input",)),
)

BLOCKS = LogFormat(
    name="lmcache_blocks",
    title="LMCache agent trace (blocks of bytes)",
    versions="lmcache-agent-trace 16a14ad",
    basis="inclusive",
    signature=(("ts_us",), ("hash_runs",), ("input_bytes",)),
    fields=(
        text("skip", "skip"),
        text("note", "note"),
        time("ts", "ts_us"),
        text("session", "session"),
        text("template", "agent"),
        hashes("block_hashes", "hash_ids"),
    ),
    constants=(("hash_scope", "global"),),
    documents=_calls,
)
