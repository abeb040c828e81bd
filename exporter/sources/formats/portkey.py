"""Portkey's logs export: one JSON object a request.

Who emits it: Portkey's export of its gateway's logs (JSONL). Counts come from the response's
usage, never from `req_units`. The Anthropic route is OpenAI-shaped with the exclusive count of
Anthropic, the Bedrock route is inclusive, so every row is judged by itself. `created_at` is
taken as the end of the request. There is no time to first token and no word on response-cache
hits. Versions read: gateway commit 669825c, export documentation.
"""

from collections.abc import Iterable

from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    case,
    milliseconds,
    status,
    text,
    time,
    tokens,
)
from exporter.sources.formats.reshape import one_object
from exporter.sources.formats.row_values import open_texts


def _opened(line: str) -> Iterable[Row]:
    row = one_object(line)
    open_texts(row, "response", "metadata")
    yield row


_USAGE = "response.usage"

FORMAT = LogFormat(
    name="portkey",
    title="Portkey logs export",
    versions="Portkey gateway 669825c",
    basis="assumed",
    signature=(("ai_model", "ai_org"), ("req_units", "request_url", "response_time")),
    fields=(
        time("ended", "created_at"),
        text("request_id", "id"),
        text("trace_id", "trace_id"),
        text("provider", "ai_org"),
        text("model", "response.model", "ai_model"),
        text("route", "config"),
        text("template", "prompt_slug"),
        text("tenant", "metadata._user"),
        tokens("prompt_tokens", f"{_USAGE}.prompt_tokens", f"{_USAGE}.input_tokens"),
        tokens(
            "cached_tokens",
            f"{_USAGE}.prompt_tokens_details.cached_tokens",
            f"{_USAGE}.cache_read_input_tokens",
            f"{_USAGE}.input_tokens_details.cached_tokens",
        ),
        tokens(
            "cache_write_tokens",
            f"{_USAGE}.cache_creation_input_tokens",
            f"{_USAGE}.prompt_tokens_details.cache_write_tokens",
        ),
        tokens("cache_write_5m", f"{_USAGE}.cache_creation.ephemeral_5m_input_tokens"),
        tokens("cache_write_1h", f"{_USAGE}.cache_creation.ephemeral_1h_input_tokens"),
        tokens("output_tokens", f"{_USAGE}.completion_tokens", f"{_USAGE}.output_tokens"),
        tokens("total_tokens", f"{_USAGE}.total_tokens"),
        milliseconds("e2e_seconds", "response_time"),
        status(
            "response_status_code",
            cases=(
                case("cancelled", "response_status_code", "499"),
                case("error", "is_success", "false", "False", "0"),
            ),
        ),
    ),
    constants=(("side", "gateway"),),
    reshape=_opened,
)
