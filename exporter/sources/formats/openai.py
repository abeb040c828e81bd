"""OpenAI-style usage: responses of chat, completions and responses, whole or streamed.

Who emits it: OpenAI and Azure, vLLM, SGLang, llama.cpp and every compatible server, as saved
response bodies or stream chunks, one JSON object a line. Cached tokens are a subset of the
prompt. vLLM's `metrics.time_to_first_token_ms` starts at scheduling, so the queue is added.
Versions read: openai 3.57, vLLM 0.33, SGLang 0.5.23.
"""

from exporter.sources.formats.mapping import (
    LogFormat,
    flag,
    milliseconds,
    status,
    text,
    time,
    tokens,
)

FORMAT = LogFormat(
    name="openai",
    title="OpenAI-style usage (chat, completions, responses)",
    versions="openai 3.57, vLLM 0.33, SGLang 0.5.23",
    basis="assumed",
    signature=(("usage.prompt_tokens", "usage.input_tokens", "response.usage.input_tokens"),),
    fields=(
        time("ts", "created", "created_at", "response.created_at"),
        text("request_id", "id", "response.id"),
        text("model", "model", "response.model"),
        text("model_fingerprint", "system_fingerprint"),
        text("session", "session_id"),
        tokens(
            "prompt_tokens",
            "usage.prompt_tokens",
            "usage.input_tokens",
            "response.usage.input_tokens",
        ),
        tokens(
            "cached_tokens",
            "usage.prompt_tokens_details.cached_tokens",
            "usage.input_tokens_details.cached_tokens",
            "response.usage.input_tokens_details.cached_tokens",
        ),
        tokens(
            "cache_write_tokens",
            "usage.prompt_tokens_details.cache_write_tokens",
            "usage.prompt_tokens_details.created_cache_tokens",
            "usage.input_tokens_details.cache_write_tokens",
            "response.usage.input_tokens_details.cache_write_tokens",
        ),
        tokens(
            "output_tokens",
            "usage.completion_tokens",
            "usage.output_tokens",
            "response.usage.output_tokens",
        ),
        tokens("total_tokens", "usage.total_tokens", "response.usage.total_tokens"),
        tokens("choices", "n"),
        milliseconds("ttft_seconds", "metrics.queue_time_ms + metrics.time_to_first_token_ms"),
        milliseconds("queue_seconds", "metrics.queue_time_ms"),
        milliseconds("prefill_seconds", "metrics.time_to_first_token_ms"),
        flag("stream", "stream"),
        status("status", "response.status"),
    ),
    constants=(("ttft_point", "engine_arrival"),),
    merges_lines=True,
)
