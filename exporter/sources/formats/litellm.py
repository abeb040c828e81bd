"""LiteLLM's standard logging payload: one JSON object an attempt.

Who emits it: callbacks, the generic HTTP logger, object-store and JSON loggers of the LiteLLM
proxy and SDK. `prompt_tokens` includes cached and written tokens for every provider. A call
that did not stream has its end as first-token time, which is none. `cache_hit` is LiteLLM's own
response cache: no engine ran. Attempts of one call share its id. Where the client left before
the usage came, LiteLLM counts the prompt itself and states zero cached tokens: both are guesses.
Versions: 1.108.7 (run), 1.110.2 (source).
"""

from exporter.sources.formats.mapping import (
    Field,
    LogFormat,
    PromptPlaces,
    case,
    flag,
    prompt_fields,
    seconds,
    status,
    text,
    time,
    tokens,
)

_WRITTEN = "prompt_tokens_details.cache_creation_token_details"


def _in_each(objects: tuple[str, ...], *paths: str) -> tuple[str, ...]:
    """Paths in usage objects, all spellings of the first object before those of the next."""
    return tuple(
        " + ".join(f"{usage}.{term}" for term in path.split(" + "))
        for usage in objects
        for path in paths
    )


def usage_fields(*objects: str) -> tuple[Field, ...]:
    """What LiteLLM's usage objects say of the cache, wherever a record keeps them."""
    half_hour, half_day = (f"{_WRITTEN}.ephemeral_{life}_input_tokens" for life in ("30m", "12h"))
    return (
        tokens(
            "cached_tokens",
            *_in_each(objects, "prompt_tokens_details.cached_tokens", "cache_read_input_tokens"),
        ),
        tokens(
            "cache_write_tokens",
            *_in_each(
                objects,
                "prompt_tokens_details.cache_write_tokens",
                "prompt_tokens_details.cache_creation_tokens",
                "cache_creation_input_tokens",
            ),
        ),
        tokens("cache_write_5m", *_in_each(objects, f"{_WRITTEN}.ephemeral_5m_input_tokens")),
        tokens("cache_write_1h", *_in_each(objects, f"{_WRITTEN}.ephemeral_1h_input_tokens")),
        tokens(
            "cache_write_other",
            *_in_each(objects, f"{half_hour} + {half_day}", half_hour, half_day),
        ),
    )


# Calls that have input tokens and no prompt: there is no prefix to reuse.
_NO_GENERATION = tuple(
    f"{prefix}{call}"
    for call in ("embedding", "rerank", "moderation", "image_generation", "image_edit",
                 "transcription", "speech", "ocr", "search", "video_generation")
    for prefix in ("", "a")
)  # fmt: skip

# What both kinds of record call alike.
SHARED = (
    time("ts", "startTime"),
    text("session", "session_id"),
    text("replica", "model_id", "hidden_params.model_id", "api_base"),
    text("provider", "custom_llm_provider"),
    # LiteLLM writes `openai/Qwen/Qwen3` where the engine calls itself `Qwen/Qwen3`.
    text("model", "model", without="custom_llm_provider"),
    text("route", "model_group"),
    text(
        "template",
        "metadata.prompt_management_metadata.prompt_id",
        "metadata.requester_metadata.template",
    ),
    text("template_version", "metadata.requester_metadata.template_version"),
    tokens("prompt_tokens", "prompt_tokens"),
    tokens("output_tokens", "completion_tokens"),
    tokens(
        "attempt",
        "metadata.attempted_retries + metadata.attempted_fallbacks + 1",
        "metadata.attempted_retries + 1",
    ),
    text("cache_salt", "model_parameters.cache_salt", "model_parameters.extra_body.cache_salt"),
    *prompt_fields(),
    text(
        "ineligible_reason",
        cases=(
            case("response_cache", "cache_hit", "true", "True"),
            case("no_generation", "call_type", *_NO_GENERATION),
        ),
    ),
)

# Unless an operator has LiteLLM leave them out: messages, with the tools among the parameters.
PROMPTS = PromptPlaces(requests=(("", "model_parameters", "model_parameters.extra_body"),))

# The client left: the status says success, and the usage is LiteLLM's guess.
_LEFT = case("cancelled", "error_information.error_code", "499")

FORMAT = LogFormat(
    name="litellm",
    title="LiteLLM standard logging payload",
    versions="LiteLLM 1.108, 1.110",
    basis="inclusive",
    signature=(("litellm_call_id", "id"), ("call_type",), ("hidden_params", "model_parameters")),
    fields=(
        *SHARED,
        text("request_id", "litellm_call_id", "id"),
        text("response_id", "id"),
        text("trace_id", "trace_id"),
        text(
            "tenant",
            "metadata.user_api_key_team_id",
            "metadata.user_api_key_alias",
            "metadata.user_api_key_hash",
            "end_user",
        ),
        *usage_fields("metadata.usage_object", "hidden_params.usage_object"),
        seconds("ttft_seconds", "completionStartTime - startTime"),
        seconds("e2e_seconds", "endTime - startTime"),
        flag("stream", "stream"),
        status("status", cases=(_LEFT,)),
        text("guessed", cases=(_LEFT,)),
    ),
    constants=(("ttft_point", "gateway"), ("side", "gateway")),
    merges_lines=True,
    bridges_calls=True,
    prompts=PROMPTS,
)
