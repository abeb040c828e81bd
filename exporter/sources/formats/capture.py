"""A client's record of what it sent and what a vLLM or llama.cpp server answered.

Who emits it: load scripts that write one JSON object a request with `sent_unix`, the reply's
`usage`, and time to first token as the client saw it; a router experiment adds `replica`. A
prompt's token ids, where it has them, become the names of its blocks. llama.cpp's `timings` count
cached and processed tokens apart and are used only where the reply has no usage.
"""

from exporter.sources.formats.mapping import (
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
    name="capture",
    title="client capture (requests.jsonl)",
    versions="vLLM 0.32, llama.cpp b11434",
    basis="inclusive",
    signature=(("sent_unix",), ("usage.prompt_tokens", "total_s", "ttft_s")),
    fields=(
        time("ts", "sent_unix"),
        text("request_id", "id"),
        text("replica", "replica"),
        text("model", "model"),
        text("route", "route"),
        text("template", "template"),
        text("tenant", "tenant"),
        text("cache_salt", "cache_salt"),
        tokens("prompt_tokens", "usage.prompt_tokens", "timings.cache_n + timings.prompt_n"),
        tokens("cached_tokens", "usage.prompt_tokens_details.cached_tokens", "timings.cache_n"),
        tokens("cache_write_tokens", "usage.prompt_tokens_details.created_cache_tokens"),
        tokens("output_tokens", "usage.completion_tokens", "timings.predicted_n"),
        seconds("ttft_seconds", "ttft_s"),
        seconds("e2e_seconds", "total_s"),
        flag("stream", "stream"),
        status("status"),
        *prompt_fields(),
    ),
    constants=(("ttft_point", "client"),),
    prompts=PromptPlaces(
        token_ids=("prompt_token_ids",), requests=(("request",), ("body",), ("",))
    ),
)
