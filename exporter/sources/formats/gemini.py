"""Gemini usage: responses of the Gemini API and Vertex AI, whole or streamed.

Who emits it: `generateContent` bodies (camelCase) and what the Python SDK dumps (snake_case).
`promptTokenCount` includes cached content; what tools put into the prompt is counted beside it.
Billed output is candidates and thoughts. A count of zero is left out, so a row without cached
content is not known to have missed. Every chunk of a stream repeats the usage; the last counts.
Version read: google-genai 3.6.1 (source).
"""

from exporter.sources.formats.mapping import LogFormat, text, time, tokens

_CAMEL_CASE = "usageMetadata"
_SNAKE_CASE = "usage_metadata"


def _either(camel: str, snake: str) -> tuple[str, str]:
    return f"{_CAMEL_CASE}.{camel}", f"{_SNAKE_CASE}.{snake}"


_PROMPT = _either("promptTokenCount", "prompt_token_count")
_TOOLS = _either("toolUsePromptTokenCount", "tool_use_prompt_token_count")
_CANDIDATES = _either("candidatesTokenCount", "candidates_token_count")
_THOUGHTS = _either("thoughtsTokenCount", "thoughts_token_count")


def _sums(counts: tuple[str, str], others: tuple[str, str]) -> tuple[str, ...]:
    return tuple(f"{one} + {other}" for one, other in zip(counts, others, strict=True))


FORMAT = LogFormat(
    name="gemini",
    title="Gemini usage (Gemini API, Vertex AI)",
    versions="google-genai 3.6",
    basis="inclusive",
    signature=(_PROMPT,),
    fields=(
        time("ts", "createTime", "create_time", "timestamp"),
        text("request_id", "responseId", "response_id"),
        text("model", "modelVersion", "model_version", "model"),
        tokens("prompt_tokens", *_sums(_PROMPT, _TOOLS), *_PROMPT),
        tokens("cached_tokens", *_either("cachedContentTokenCount", "cached_content_token_count")),
        tokens("output_tokens", *_sums(_CANDIDATES, _THOUGHTS), *_CANDIDATES, *_THOUGHTS),
    ),
    merges_lines=True,
)
