"""Helicone's request rows: one JSON object a request.

Who emits it: Helicone's request query API and exports. The token buckets are disjoint for every
provider: `prompt_tokens` leaves cached and written tokens out, and `total_tokens` may do so too,
so it proves nothing. A `cache_reference_id` names the request whose stored answer was given
again: Helicone's response cache. Milliseconds. Read from source and documentation.
"""

from exporter.sources.formats.mapping import (
    LogFormat,
    milliseconds,
    status,
    text,
    time,
    tokens,
    unless,
)

# Stands for "no other request".
_NO_REQUEST = "00000000-0000-0000-0000-000000000000"

FORMAT = LogFormat(
    name="helicone",
    title="Helicone request rows",
    versions="Helicone of 2026 (no versions)",
    basis="exclusive",
    signature=(("request_created_at",), ("delay_ms", "request_model", "prompt_tokens")),
    fields=(
        time("ts", "request_created_at"),
        text("request_id", "request_id"),
        text("session", 'request_properties."Helicone-Session-Id"'),
        text("provider", "provider"),
        text("model", "response_model", "model_override", "request_model"),
        text("route", "request_path"),
        text("template", "prompt_id"),
        text("template_version", "prompt_version"),
        text("tenant", "request_user_id"),
        tokens("prompt_tokens", "prompt_tokens"),
        tokens("cached_tokens", "prompt_cache_read_tokens"),
        tokens("cache_write_tokens", "prompt_cache_write_tokens"),
        tokens("output_tokens", "completion_tokens"),
        milliseconds("ttft_seconds", "time_to_first_token"),
        milliseconds("e2e_seconds", "delay_ms"),
        status("response_status"),
        text(
            "ineligible_reason",
            cases=(unless("response_cache", "cache_reference_id", "", _NO_REQUEST),),
        ),
    ),
    constants=(("ttft_point", "gateway"), ("side", "gateway")),
)
