"""Answers of `request_chains` by hand: rows as the question gives them, without a store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from replay.hashes import HASH_GRAIN_TOKENS, chain_hashes

_TEXTS = (
    "trace_id", "session", "replica", "provider", "model", "model_fingerprint", "route", "template",
    "tenant", "scope", "ttft_point", "ineligible_reason", "hash_scope", "hash_key_id",
)  # fmt: skip
_COUNTS = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "block_size",
           "text_bytes", "batch", "position")  # fmt: skip
_SECONDS = ("queue_seconds", "ttft_seconds", "e2e_seconds")
_NAMES = ("block_hashes", "content_hashes", "piece_hashes", "piece_lengths")
_SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        *((name, pa.string()) for name in _TEXTS),
        *((name, pa.int64()) for name in _COUNTS),
        *((name, pa.float64()) for name in _SECONDS),
        *((name, pa.list_(pa.uint64())) for name in _NAMES),
    ]
)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def row(blocks: list[int], second: float = 0.0, grain: int = 16, **told: object) -> dict[str, Any]:
    """A request whose prompt is whole blocks of these contents, `second` seconds after noon."""
    tokens = [content * grain + place for content in blocks for place in range(grain)]
    facts: dict[str, Any] = dict.fromkeys(_TEXTS, "") | {"model": "m", "hash_scope": "global"}
    facts |= {
        "ts": (NOON + timedelta(seconds=second)).replace(tzinfo=None),
        "prompt_tokens": len(tokens),
        "cached_tokens": 0,
        "block_size": grain,
        "block_hashes": chain_hashes(tokens, grain),
    }
    return facts | told


def ours(blocks: list[int], second: float = 0.0, **told: object) -> dict[str, Any]:
    """The same with names of our own, which stand for 16 tokens whatever the engine's block."""
    return row(blocks, second, HASH_GRAIN_TOKENS, hash_key_id="k", **told)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """In the order in which they came."""
    numbered = [{**each, "batch": 1, "position": place} for place, each in enumerate(rows)]
    return pa.Table.from_pylist(numbered, _SCHEMA)


def taken(causes: dict[str, int]) -> dict[str, int]:
    """The causes that took a token."""
    return {name: tokens for name, tokens in causes.items() if tokens}
