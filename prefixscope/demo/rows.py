"""Calls as the demo's gateways log them: one NDJSON row an attempt, written when it has ended."""

import json
from datetime import UTC, datetime

from prefixscope.demo.events import ChainNames
from prefixscope.demo.fleet import Call
from prefixscope.demo.scenario import BLOCK_TOKENS, LEGACY_GATEWAY, MODEL

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def log_line(call: Call, names: ChainNames | None = None) -> str:
    """Write one row, newline included. What a gateway does not know is left out, never 0.

    With `names`, a call names its scope, and one whose blocks are known carries their hashes, as
    the tap's rows do.
    """
    row: dict[str, object] = {
        "ts": iso_time(call.arrived),
        "request_id": f"demo-{call.number:07d}",
        "attempt": call.attempt,
        "session": call.name,
        "turn": call.turn,
        "model": MODEL,
        "route": call.template.route,
        "template": call.template.name,
        "template_version": call.version,
        "tenant": call.tenant,
        "stream": call.template.stream,
        "status": call.status,
        "e2e_seconds": round(call.ended - call.arrived, 6),
    }
    if call.replica is not None:
        row |= _served(call)
    if names is not None and call.template.source != LEGACY_GATEWAY:
        row |= _named(call, names)
    return _encode(row) + "\n"


def _served(call: Call) -> dict[str, object]:
    row: dict[str, object] = {
        "replica": call.replica,
        "prompt_tokens": call.prompt_tokens,
        "output_tokens": call.output_tokens,
    }
    if call.template.source != LEGACY_GATEWAY:
        row["cached_tokens"] = call.cached_tokens
        row["block_size"] = BLOCK_TOKENS
        row["queue_seconds"] = call.queue_seconds
        row["prefill_seconds"] = call.prefill_seconds
    if call.template.stream:
        row["ttft_seconds"] = round(call.ttft_seconds, 6)
        row["ttft_point"] = "gateway"
    return row


def _named(call: Call, names: ChainNames) -> dict[str, object]:
    """The scope and the hashes, as far as there are any, and whose names they are."""
    row: dict[str, object] = {}
    if scope := names.scope(call.tenant):
        row["scope"] = scope
    if call.chain:
        row["block_hashes"], row["content_hashes"] = names.of(call.chain)
        row["hash_scope"] = "global"
    return row | {"hash_key_id": names.key_id} if row else row


def iso_time(moment: float) -> str:
    """Write a Unix time as ISO 8601 in UTC, to the millisecond."""
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"
