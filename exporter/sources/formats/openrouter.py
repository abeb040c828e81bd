"""OpenRouter's generation record: what it kept of one request.

Who emits it: OpenRouter's `/api/v1/generation`, whose answer wraps the record in `data`. Only
the `native_` counts are the provider's; the others were counted again with another tokeniser.
The prompt count includes cached tokens whoever answered. `latency` is called "total latency" by
the reference, so it is no time to first token. Responses of the chat API are read as `openai`.
Read from documentation.
"""

from exporter.sources.formats.mapping import LogFormat, case, flag, status, text, time, tokens


def _wrapped(*names: str) -> tuple[str, ...]:
    return tuple(path for name in names for path in (f"data.{name}", name))


FORMAT = LogFormat(
    name="openrouter",
    title="OpenRouter generation records",
    versions="documentation of 2026",
    basis="inclusive",
    signature=(_wrapped("native_tokens_prompt"),),
    fields=(
        time("ts", *_wrapped("created_at")),
        text("request_id", *_wrapped("id")),
        text("session", *_wrapped("session_id")),
        text("provider", *_wrapped("provider_name")),
        text("model", *_wrapped("model")),
        text("tenant", *_wrapped("external_user")),
        tokens("prompt_tokens", *_wrapped("native_tokens_prompt")),
        tokens("cached_tokens", *_wrapped("native_tokens_cached")),
        tokens("output_tokens", *_wrapped("native_tokens_completion")),
        flag("stream", *_wrapped("streamed")),
        status(
            cases=tuple(
                answer
                for path in ("data.", "")
                for answer in (
                    case("cancelled", f"{path}cancelled", "true"),
                    case("error", f"{path}finish_reason", "error"),
                )
            ),
        ),
    ),
)
