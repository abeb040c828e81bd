"""Names from the rows of real programs: each says in its own place who asked, and with what.

Rows are the described examples where they are at hand, named by what they hold beside usage;
and rows of programs with headers or tags that no format maps.
"""

import json
from typing import Any

import pytest

from exporter.sources.formats import FORMATS
from exporter.sources.formats.expressions import request_columns
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.formats.names import with_names
from exporter.store.store import Store
from tests.log_path import NOON, SHARED, load, requests
from tests.unit_names.naming import rules

EXAMPLES = SHARED / "format-examples" / "examples.jsonl"
needs_examples = pytest.mark.skipif(
    not EXAMPLES.is_file(), reason="the described formats are not beside the project"
)

USAGE = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
# Format, a row of it, a rule, and the tenant it gives.
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "openai": (
        {"id": "c1", "created": 1772452800, "model": "m", "usage": USAGE,
         "request": {"headers": {"X-Team": "search"}}},
        {"header": "x-team"}, "search",
    ),
    "anthropic": (
        {"id": "m1", "created_at": NOON, "model": "claude-x", "metadata": {"user_id": "team-a/u7"},
         "usage": {"input_tokens": 3, "cache_read_input_tokens": 9, "output_tokens": 5}},
        {"field": "metadata.user_id", "pattern": "^([^/]+)/"}, "team-a",
    ),
    "litellm": (
        {"id": "l1", "litellm_call_id": "x", "call_type": "acompletion", "status": "success",
         "startTime": 1772452800.5, "endTime": 1772452801.5, "model": "m", "model_group": "g",
         "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
         "request_tags": ["prod", "tenant:zed"], "metadata": {"user_api_key_hash": "h1"},
         "hidden_params": {"model_id": "d"}},
        {"field": "request_tags[*]", "pattern": "^tenant:(.+)$"}, "zed",
    ),
    "litellm_spend_logs": (
        {"request_id": "s1", "call_type": "acompletion", "api_key": "h1", "spend": 0.01,
         "total_tokens": 105, "prompt_tokens": 100, "completion_tokens": 5, "model": "m",
         "startTime": "2026-03-02T12:00:00Z", "endTime": "2026-03-02T12:00:05Z",
         "request_tags": '["prod", "tenant:zed"]', "metadata": "{}"},
        {"field": "request_tags[*]", "pattern": "^tenant:(.+)$"}, "zed",
    ),
    "helicone": (
        {"request_id": "h1", "request_created_at": NOON, "response_created_at": NOON,
         "response_status": 200, "request_model": "m", "provider": "OPENAI",
         "request_properties": {"Team": "red"}, "prompt_tokens": 100, "completion_tokens": 5,
         "total_tokens": 105},
        {"field": "request_properties.Team"}, "red",
    ),
    "kong": (
        {"started_at": 1772452800000, "latencies": {"request": 50, "proxy": 40, "kong": 6},
         "request": {"id": "k1", "uri": "/c", "headers": {"x-team": ["ops", "x"]}},
         "response": {"status": 200}, "route": {"name": "r"}, "service": {"name": "s"},
         "ai": {"proxy": {"meta": {"provider_name": "openai", "request_model": "m"},
                          "usage": {"prompt_tokens": 100, "completion_tokens": 5,
                                    "total_tokens": 105}}}},
        {"header": "X-Team"}, "ops",
    ),
    "claude_code": (
        {"type": "assistant", "uuid": "u", "sessionId": "s", "timestamp": NOON,
         "cwd": "/home/ada/shop", "message": {"id": "m", "model": "claude-x", "usage": {
             "input_tokens": 3, "cache_read_input_tokens": 9, "output_tokens": 5}}},
        {"field": "cwd", "pattern": "([^/]+)$"}, "shop",
    ),
    "sglang": (
        {"timestamp": "2026-03-02T12:00:00Z", "event": "request.finished", "rid": "g1",
         "obj": {"rid": "g1", "stream": True}, "headers": {"X-Team": "gpu"},
         "out": {"meta_info": {"id": "g1", "prompt_tokens": 100, "cached_tokens": 64,
                               "completion_tokens": 5, "finish_reason": {"type": "stop"}}}},
        {"header": "x-team"}, "gpu",
    ),
    "otlp": (
        {"resourceSpans": [{
            "resource": {"attributes": [
                {"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeSpans": [{"scope": {"name": "x"}, "spans": [{
                "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
                "name": "chat m", "kind": 3, "startTimeUnixNano": "1772452800000000000",
                "endTimeUnixNano": "1772452801000000000", "attributes": [
                    {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                    {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
                    {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "100"}},
                    {"key": "app.team", "value": {"stringValue": "red"}},
                    {"key": "http.request.header.x-team", "value": {"arrayValue": {"values": [
                        {"stringValue": "blue"}]}}}]}]}]}]},
        {"header": "X-Team"}, "blue",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_programs_are_named_by_what_they_hold(store: Store, name: str) -> None:
    row, rule, tenant = ROWS[name]
    summary = load(store, [row], format="auto", names={"log": rules(tenant=[rule])})
    assert summary.format == name
    [stored] = requests(store)
    assert stored["tenant"] == tenant
    assert stored["prompt_tokens"] in (12, 100)


def test_a_span_is_named_by_its_own_attributes_too(store: Store) -> None:
    row, _, _ = ROWS["otlp"]
    given = rules(tenant=[{"field": 'attributes."app.team"'}],
                  route=[{"field": 'attributes."service.name"'}])  # fmt: skip
    load(store, [row], format="auto", names={"log": given})
    [stored] = requests(store)
    assert (stored["tenant"], stored["route"]) == ("red", "shop")


# Where the described examples name who asked: format, field of ours, rule, value.
DESCRIBED = [
    ("litellm.standard_logging_payload", "route", {"field": "model_group"}, "sonnet"),
    ("kong.ai_log", "tenant", {"field": "consumer.username"}, "tenant-a"),
    ("portkey.export", "tenant", {"field": "metadata.tenant"}, "tenant-a"),
    ("portkey.export", "session", {"field": "metadata._user"}, "u1"),
    ("helicone.request", "session", {"field": "request_properties.Helicone-Session-Id"}, "sess-9"),
    ("langfuse.observation", "route", {"field": "environment"}, "prod"),
    ("sglang.request_log_json", "tenant", {"header": "X-SMG-Routing-Key"}, "tenant-a"),
]


@needs_examples
@pytest.mark.parametrize(("name", "field", "rule", "value"), DESCRIBED)
def test_described_examples_are_named(
    store: Store, name: str, field: str, rule: dict[str, Any], value: str
) -> None:
    examples = [json.loads(line) for line in EXAMPLES.read_text().splitlines()]
    [example] = [each for each in examples if each["format"] == name]
    line = (
        example["record"] if isinstance(example["record"], str) else json.dumps(example["record"])
    )
    load(store, [line], format="auto", names={"log": rules(**{field: [rule]})})
    [stored] = requests(store)
    assert stored[field] == value


@pytest.mark.parametrize("log_format", FORMATS, ids=lambda log_format: log_format.name)
def test_every_format_can_be_named_by_a_constant(log_format: LogFormat) -> None:
    """Also those that read none of the fields themselves: the reading then has them all."""

    given = {name: [{"constant": name}] for name in ("route", "template", "session", "replica")}
    columns = request_columns(with_names(log_format, rules(**given)))
    assert set(given) <= set(columns)
