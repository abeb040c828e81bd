"""One exchange of request and answer -> one row of our NDJSON."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefixscope.tap.asked import picked, prompts_asked
from prefixscope.tap.settings import TapSettings
from prefixscope.tap.usage import Answer
from replay.hashes import HASH_GRAIN_TOKENS, hash_key_id, scope_id


@dataclass
class Exchange:
    """What the tap keeps of one request until its row is written.

    `started_at` is seconds since the epoch, every other time is of `time.perf_counter`.
    `body` are the pieces of the request as they came, None where they were too many.
    """

    kind: str
    scope: Mapping[str, Any]
    headers: dict[str, str]
    started_at: float
    began: float
    answer: Answer
    body: list[bytes] | None = field(default_factory=list)
    body_bytes: int = 0
    http_status: int | None = None
    stream: bool | None = None
    answered: bool = False
    ended: float | None = None
    left: bool = False
    raised: bool = False
    flags: list[str] = field(default_factory=list)

    def status(self) -> str:
        """ok, error, cancelled or incomplete, as the client had to see it."""
        # Many clients close at the last event, without waiting for the end of the connection.
        if (self.left and not self.answer.done) or self.http_status == 499:
            return "cancelled"
        if self.raised or self.answer.failed or (self.http_status or 500) >= 400:
            return "error"
        if self.answer.incomplete or not (self.answer.done or self._whole()):
            return "incomplete"
        return "ok"

    def _whole(self) -> bool:
        return self.answered and self.answer.finished


@dataclass(frozen=True)
class Prompt:
    """What is known of the prompt by its token ids: how many, and their hashes."""

    tokens: int
    chain: list[int]
    content: list[int]


def scope_of(settings: TapSettings, key: str, body: Mapping[str, Any]) -> dict[str, str]:
    """Adapter, fingerprint and the keyed name of the trust boundary, where there are any."""
    model, salt = body.get("model"), body.get("cache_salt")
    adapter = model if isinstance(model, str) and model in settings.adapters else None
    salt = salt if isinstance(salt, str) and salt else None
    found = {"adapter": adapter, "model_fingerprint": settings.fingerprint or None}
    found["scope"] = scope_id(key, salt, adapter, settings.fingerprint) if key else None
    return {name: text for name, text in found.items() if text}


def row_of(
    exchange: Exchange,
    settings: TapSettings,
    replica: str,
    key: str,
    body: Mapping[str, Any],
    prompt: Prompt | None,
) -> dict[str, Any]:
    """The row. What is not known is not in it."""
    scope = scope_of(settings, key, body)
    row: dict[str, Any] = {
        "ts": _iso(exchange.started_at),
        **_ids(exchange, settings, body, key),
        "side": "engine",
        "replica": replica,
        "model": exchange.answer.model or _text(body.get("model")),
        "model_fingerprint": exchange.answer.fingerprint,
        **scope,
        **_counts(exchange, body),
        **_times(exchange),
        "stream": exchange.stream,
        "status": exchange.status(),
        "http_status": exchange.http_status,
        "n": _several(body.get("n")),
        "prompt_logprobs": _number(body.get("prompt_logprobs")),
        **_hashes(prompt, settings),
        "hash_key_id": hash_key_id(key) if key and (prompt or "scope" in scope) else None,
        "flags": exchange.flags or None,
        "sample": settings.sample or None,
    }
    if prompt and "prompt_tokens" not in row and exchange.answer.first_token_at is not None:
        # An aborted stream states no usage; but its prompt was computed, and can be counted.
        row["prompt_tokens"] = prompt.tokens
    return {name: value for name, value in row.items() if value is not None}


def _ids(
    exchange: Exchange, settings: TapSettings, body: Mapping[str, Any], key: str
) -> dict[str, Any]:
    labels = {
        name: picked(getattr(settings, name), exchange.headers, body, key)
        for name in ("request_id", "route", "template", "template_version", "tenant", "session")
    }
    labels["response_id"] = exchange.answer.response_id
    labels["trace_id"] = _trace_id(exchange.headers.get("traceparent", ""))
    return labels


def _counts(exchange: Exchange, body: Mapping[str, Any]) -> dict[str, int]:
    counts = exchange.answer.counts()
    if prompts_asked(exchange.kind, body) > 1 and counts.pop("cached_tokens", None) is not None:
        # vLLM adds up the prompts, but states the cached tokens of one of them.
        exchange.flags.append("several_prompts")
    return counts


def _times(exchange: Exchange) -> dict[str, Any]:
    first, ended, began = exchange.answer.first_token_at, exchange.ended, exchange.began
    times: dict[str, Any] = dict(exchange.answer.timings)
    if first is not None:
        times |= {"ttft_seconds": round(first - began, 6), "ttft_point": "engine_arrival"}
    if ended is not None:
        times["e2e_seconds"] = round(ended - began, 6)
    return times


def _hashes(prompt: Prompt | None, settings: TapSettings) -> dict[str, Any]:
    if prompt is None:
        return {}
    found: dict[str, Any] = {
        "block_hashes": prompt.chain,
        "hash_grain_tokens": HASH_GRAIN_TOKENS,
        "hash_scope": "global",
    }
    if settings.hashes == "all":
        found["content_hashes"] = prompt.content
    return found


def _iso(seconds: float) -> str:
    whole = int(seconds)
    fraction = int((seconds - whole) * 1e6)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{fraction:06d}Z"


def _trace_id(traceparent: str) -> str | None:
    """The second part of a W3C traceparent."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 and len(parts[1]) == 32 else None


def _text(value: object) -> str | None:
    return value[:256] if isinstance(value, str) and value else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _several(value: object) -> int | None:
    number = _number(value)
    return number if number is not None and number > 1 else None
