"""Our own NDJSON: one `Request` a line, by its field names.

Who emits it: anybody who can choose (a tap, a shipper, a script). `prompt_tokens` is
inclusive by definition. A prompt (`token_ids`, `prompt_text`, or `messages` as they were sent)
becomes names as the row is read and is kept nowhere. Short spellings (`ttft_s`, `cached_gpu`) are
accepted too.
"""

from exporter.sources.formats.mapping import (
    NAMED_PROMPT,
    LogFormat,
    PromptPlaces,
    flag,
    prompt_fields,
    seconds,
    status,
    text,
    time,
    tokens,
)

FORMAT = LogFormat(
    name="ndjson",
    title="prefixscope NDJSON",
    versions="this release",
    basis="inclusive",
    signature=(("prompt_tokens", "cached_tokens", "request_id", "ttft_seconds", "ttft_s"),),
    fields=(
        time("ts", "ts", "timestamp", "time", "start_time"),
        text("request_id", "request_id", "id"),
        tokens("attempt", "attempt"),
        text("session", "session", "session_id"),
        tokens("turn", "turn"),
        text("trace_id", "trace_id"),
        text("response_id", "response_id"),
        text("side", "side"),
        text("replica", "replica", "engine"),
        text("replica_role", "replica_role"),
        text("provider", "provider"),
        text("model", "model"),
        text("model_fingerprint", "model_fingerprint", "system_fingerprint"),
        text("route", "route"),
        text("template", "template"),
        text("template_version", "template_version"),
        text("tenant", "tenant"),
        text("scope", "scope"),
        text("cache_salt", "cache_salt"),
        text("adapter", "adapter"),
        tokens("prompt_tokens", "prompt_tokens", f"{NAMED_PROMPT}.prompt_tokens"),
        tokens("cached_tokens", "cached_tokens"),
        tokens("cached_device", "cached_device", "cached_gpu"),
        tokens("cached_host", "cached_host", "cached_cpu"),
        tokens("cached_disk", "cached_disk"),
        tokens("cached_remote", "cached_remote"),
        tokens("cache_write_tokens", "cache_write_tokens"),
        tokens("cache_write_5m", "cache_write_5m"),
        tokens("cache_write_1h", "cache_write_1h"),
        tokens("cache_write_other", "cache_write_other"),
        tokens("output_tokens", "output_tokens"),
        tokens("choices", "n"),
        tokens("prompt_logprobs", "prompt_logprobs"),
        seconds("ttft_seconds", "ttft_seconds", "ttft_s"),
        text("ttft_point", "ttft_point"),
        seconds("queue_seconds", "queue_seconds", "queue_s"),
        seconds("prefill_seconds", "prefill_seconds", "prefill_s"),
        seconds("e2e_seconds", "e2e_seconds", "e2e_s"),
        flag("stream", "stream"),
        status("status"),
        text("ineligible_reason", "ineligible_reason"),
        tokens("block_size", "block_size"),
        *prompt_fields(
            "block_hashes",
            "content_hashes",
            "piece_hashes",
            "piece_lengths",
            "text_bytes",
            "hash_scope",
            "hash_key_id",
        ),
    ),
    prompts=PromptPlaces(
        token_ids=("token_ids", "prompt_token_ids"), texts=("prompt_text",), requests=(("",),)
    ),
)
