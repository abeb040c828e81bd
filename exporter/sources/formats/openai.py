"""OpenAI-style usage: responses of chat, completions and responses, whole or streamed.

Who emits it: OpenAI and Azure, DeepSeek, OpenRouter, xAI, Mistral and others, vLLM, SGLang,
llama.cpp and every compatible server, as saved response bodies or stream chunks, one JSON
object a line; a log that keeps the request beside them (as `request`, `body`, or in the same
object) also tells the prompt. Cached tokens are a subset of the prompt, unless a gateway passed the
count of an exclusive provider on. DeepSeek states hits and misses apart: a miss is ordinary input
and no write. vLLM's `metrics.time_to_first_token_ms` starts at scheduling, so the queue is added.
Versions read: openai 3.57, vLLM 0.33, SGLang 0.5.23; DeepSeek and OpenRouter documentation.
"""

from collections.abc import Iterator

from exporter.sources.formats.mapping import (
    LogFormat,
    PromptPlaces,
    case,
    flag,
    milliseconds,
    prompt_fields,
    status,
    text,
    time,
    tokens,
)


def _of_other_lifetimes() -> Iterator[str]:
    """Paths of writes kept for 30 minutes or 12 hours: their sum, else the one that is there."""
    for details in (
        "usage.input_tokens_details",
        "usage.prompt_tokens_details",
        "response.usage.input_tokens_details",
    ):
        short, long = (
            f"{details}.cache_write_tokens_details.ttl_{name}_tokens" for name in ("30m", "12h")
        )
        yield from (f"{short} + {long}", short, long)


FORMAT = LogFormat(
    name="openai",
    title="OpenAI-style usage (chat, completions, responses; Azure, DeepSeek, OpenRouter)",
    versions="openai 3.57, vLLM 0.33, SGLang 0.5.23",
    basis="assumed",
    signature=(("usage.prompt_tokens", "usage.input_tokens", "response.usage.input_tokens"),),
    # Every chunk of a stream but the last says `"usage": null`; an aborted stream has no more.
    bare=("usage",),
    fields=(
        time("ts", "created", "created_at", "response.created_at"),
        text("request_id", "id", "response.id"),
        text("model", "model", "response.model"),
        text("model_fingerprint", "system_fingerprint"),
        text("provider", "provider"),
        text("session", "session_id"),
        tokens(
            "prompt_tokens",
            "usage.prompt_tokens",
            "usage.input_tokens",
            "response.usage.input_tokens",
            "usage.prompt_cache_hit_tokens + usage.prompt_cache_miss_tokens",
        ),
        tokens(
            "cached_tokens",
            "usage.prompt_tokens_details.cached_tokens",
            "usage.input_tokens_details.cached_tokens",
            "response.usage.input_tokens_details.cached_tokens",
            "usage.prompt_cache_hit_tokens",
            "usage.cache_read_input_tokens",
        ),
        tokens(
            "cache_write_tokens",
            "usage.prompt_tokens_details.cache_write_tokens",
            "usage.prompt_tokens_details.created_cache_tokens",
            "usage.input_tokens_details.cache_write_tokens",
            "response.usage.input_tokens_details.cache_write_tokens",
            "usage.cache_creation_input_tokens",
        ),
        # No column is kept for 30 minutes and 12 hours apart.
        tokens("cache_write_other", *_of_other_lifetimes()),
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
        # A list of embeddings: input without a prefix to reuse.
        text("ineligible_reason", cases=(case("no_generation", "object", "list"),)),
        # Logs that keep the request with the answer: its salt, and its prompt.
        text("cache_salt", "cache_salt", "request.cache_salt", "body.cache_salt"),
        *prompt_fields(),
    ),
    constants=(("ttft_point", "engine_arrival"),),
    merges_lines=True,
    prompts=PromptPlaces(
        token_ids=("prompt_token_ids",),
        requests=(("request",), ("request_body",), ("body",), ("",)),
    ),
)
