"""Anthropic usage: message bodies and the transcript lines that wrap them.

Who emits it: Anthropic's Messages API, vLLM's `/v1/messages`, llama.cpp's Anthropic route.
`input_tokens` leaves cached and written tokens out, so the prompt is their sum; a row without
any cache counter cannot be read for certain and counts as unreported. One response may be
written as several lines with one id. Versions read: anthropic 2.14, vLLM 0.33.
"""

from exporter.sources.formats.mapping import LogFormat, text, time, tokens

_USAGE = ("usage", "message.usage")


def _in_usage(path: str) -> tuple[str, ...]:
    return tuple(f"{usage}.{path}" for usage in _USAGE)


FORMAT = LogFormat(
    name="anthropic",
    title="Anthropic usage (messages)",
    versions="anthropic 2.14, vLLM 0.33",
    basis="exclusive",
    signature=(
        _in_usage("input_tokens"),
        ("type", "stop_reason", *_in_usage("cache_read_input_tokens")),
    ),
    fields=(
        time("ts", "timestamp", "ts", "created_at"),
        text("request_id", "message.id", "id"),
        text("session", "sessionId", "session_id"),
        text("model", "message.model", "model"),
        tokens("prompt_tokens", *_in_usage("input_tokens")),
        tokens("cached_tokens", *_in_usage("cache_read_input_tokens")),
        tokens("cache_write_tokens", *_in_usage("cache_creation_input_tokens")),
        tokens("cache_write_5m", *_in_usage("cache_creation.ephemeral_5m_input_tokens")),
        tokens("cache_write_1h", *_in_usage("cache_creation.ephemeral_1h_input_tokens")),
        tokens("output_tokens", *_in_usage("output_tokens")),
    ),
    merges_lines=True,
)
