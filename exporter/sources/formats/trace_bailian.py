"""Bailian traces (Qwen-Bailian usage traces of Alibaba).

Seconds from the start, prompt length, one id per block of 16 tokens (the last may be partial:
ceil(length / 16) ids), valid across the file. A chat names the chat it continues, so the session
is the first chat of that line. Chats are numbered anew in every trace, so their numbers are no
ids of requests. Cached tokens are not told.
Versions read: the two-hour traces A and B, described in public.
"""

from collections.abc import Iterator
from typing import BinaryIO

from exporter.sources.formats.documents import items, json_lines, number, unfit_blocks
from exporter.sources.formats.mapping import LogFormat, Row, hashes, text, time, tokens

_BLOCK_TOKENS = 16


def _chats(stream: BinaryIO) -> Iterator[Row | str]:
    first_of: dict[float, float] = {}
    for line, row in json_lines(stream):
        chat, parent = number(row.get("chat_id")), number(row.get("parent_chat_id"))
        if chat is None:
            yield line
            continue
        # A parent before the start of the trace stands for the chats before it.
        begun = chat if parent is None or parent < 0 else first_of.get(parent, parent)
        first_of[chat] = begun
        unfit = unfit_blocks(items(row, "hash_ids"), row.get("input_length"), _BLOCK_TOKENS)
        yield row | {"session": begun, "note": "hash_count" if unfit else None}


FORMAT = LogFormat(
    name="bailian",
    title="Bailian trace",
    versions="traces A and B",
    basis="inclusive",
    signature=(("chat_id",), ("hash_ids",), ("input_length",)),
    fields=(
        time("ts", "timestamp"),
        text("session", "session"),
        tokens("turn", "turn"),
        text("route", "type"),
        tokens("prompt_tokens", "input_length"),
        tokens("output_tokens", "output_length"),
        hashes("block_hashes", "hash_ids"),
        text("note", "note"),
    ),
    constants=(("block_size", str(_BLOCK_TOKENS)), ("hash_scope", "global")),
    relative_time="seconds",
    documents=_chats,
)
