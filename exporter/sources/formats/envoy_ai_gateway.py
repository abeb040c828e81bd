"""Envoy AI Gateway's access log: one JSON object a request.

Who emits it: Envoy under the AI Gateway, with the field names the operator chose; read are the
names of its documentation and the default metadata keys. The gateway sums cached and written
tokens into the input for every backend. `-` is Envoy's word for "not set".
`x-envoy-upstream-service-time` is the time to the response's headers, which a streaming server
sends before its first token, and the whole time of a call that does not stream: it is no time
to first token and is not read as one. Version read: commit c217da8 (source and documentation).
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

_NOT_SET = "-"


def _set_values(line: str) -> Iterable[Row]:
    yield {name: value for name, value in one_object(line).items() if value != _NOT_SET}


FORMAT = LogFormat(
    name="envoy_ai_gateway",
    title="Envoy AI Gateway access log",
    versions="Envoy AI Gateway c217da8",
    basis="inclusive",
    signature=(
        ("upstream_host", "route_name", "response_code", "x-request-id"),
        ('"gen_ai.usage.input_tokens"', "llm_input_token"),
    ),
    fields=(
        time("ts", "start_time"),
        text("request_id", "x-request-id"),
        text("session", '"session.id"', '"gen_ai.conversation.id"'),
        text("replica", "upstream_host"),
        text("provider", '"gen_ai.provider.name"'),
        text("model", '"gen_ai.response.model"', '"gen_ai.request.model"'),
        text("route", "route_name"),
        tokens("prompt_tokens", '"gen_ai.usage.input_tokens"', "llm_input_token"),
        tokens(
            "cached_tokens",
            '"gen_ai.usage.cached_input_tokens"',
            '"gen_ai.usage.cache_read.input_tokens"',
            "llm_cached_input_token",
        ),
        tokens(
            "cache_write_tokens",
            '"gen_ai.usage.cache_creation_input_tokens"',
            '"gen_ai.usage.cache_creation.input_tokens"',
            "llm_cache_creation_input_token",
        ),
        tokens("output_tokens", '"gen_ai.usage.output_tokens"', "llm_output_token"),
        milliseconds("e2e_seconds", "duration"),
        # DC: the client closed the connection while the answer was still coming.
        status("response_code", cases=(case("cancelled", "response_flags", "DC"),)),
    ),
    constants=(("side", "gateway"),),
    reshape=_set_values,
)
