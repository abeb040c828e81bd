"""LiteLLM's spend logs: rows of its database, as `/spend/logs` and SQL exports give them.

Who emits it: the LiteLLM proxy. `metadata` may be JSON text, times are ISO, `cache_hit` is the
text "True", "False" or "None" and means LiteLLM's own response cache, whose hits get an id of
their own. `additional_usage_values` leaves zeros out, so `usage_object` is asked first. What there
is none of, a team say, is an empty text. `prompt_tokens` includes cached and written tokens.
Versions: 1.108.7 (run), 1.110.2 (source).
"""

from collections.abc import Iterable

from exporter.sources.formats.litellm import SHARED, usage_fields
from exporter.sources.formats.mapping import (
    LogFormat,
    PromptPlaces,
    Row,
    case,
    seconds,
    status,
    text,
)
from exporter.sources.formats.reshape import one_object
from exporter.sources.formats.row_values import (
    WORKED_OUT,
    count,
    open_texts,
    seconds_between,
)


def _opened(line: str) -> Iterable[Row]:
    row = {name: value for name, value in one_object(line).items() if value != ""}
    open_texts(row, "metadata", "request_tags")
    milliseconds, start = count(row.get("request_duration_ms")), row.get("startTime")
    row[WORKED_OUT] = {
        "ttft_seconds": seconds_between(start, row.get("completionStartTime")),
        "e2e_seconds": seconds_between(start, row.get("endTime"))
        if milliseconds is None
        else milliseconds / 1000,
    }
    yield row


# The client left: the status says success, and the usage is LiteLLM's guess.
_LEFT = case("cancelled", "metadata.error_information.error_code", "499")

FORMAT = LogFormat(
    name="litellm_spend_logs",
    title="LiteLLM spend logs (database rows)",
    versions="LiteLLM 1.108, 1.110",
    basis="inclusive",
    signature=(
        ("spend",),
        ("request_id", "litellm_call_id"),
        ("cache_hit", "call_type", "api_key", "startTime"),
    ),
    fields=(
        *SHARED,
        text("request_id", "litellm_call_id", "request_id"),
        text("response_id", "request_id"),
        text("trace_id", "trace_id"),
        text("tenant", "team_id", "organization_id", "user", "end_user", "api_key"),
        *usage_fields("metadata.usage_object", "metadata.additional_usage_values"),
        seconds("ttft_seconds", f"{WORKED_OUT}.ttft_seconds"),
        seconds("e2e_seconds", f"{WORKED_OUT}.e2e_seconds"),
        status("status", cases=(_LEFT,)),
        text("guessed", cases=(_LEFT,)),
    ),
    constants=(("ttft_point", "gateway"), ("side", "gateway")),
    merges_lines=True,
    bridges_calls=True,
    reshape=_opened,
    prompts=PromptPlaces(requests=(("proxy_server_request",), ("",))),
)
