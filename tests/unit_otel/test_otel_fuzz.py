"""Whatever is sent, reading it ends in rows or in an error of ours, in time that grows evenly."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.endpoints.body import UnreadableBody
from exporter.endpoints.otlp import JSON, PROTOBUF, Sources, batches, read
from exporter.sources.formats.otel import rows_in
from exporter.sources.formats.otel_attributes import CACHED_TOKENS, PROMPT_TOKENS
from exporter.store.store import Store
from tests.log_path import load, ndjson
from tests.unit_otel.spans import as_json, as_protobuf, call, request, span

ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANY: st.SearchStrategy[Any] = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)
NAMES = st.sampled_from([
    *PROMPT_TOKENS, *CACHED_TOKENS, "gen_ai.operation.name", "gen_ai.response.finish_reasons",
    "service.name", "server.port", "gen_ai.latency.time_in_model_prefill", "error.type",
    "gen_ai.latency.time_in_queue", "http.request.header.x",
])  # fmt: skip
VALUE = st.dictionaries(
    st.sampled_from(["stringValue", "intValue", "doubleValue", "boolValue", "arrayValue"]), ANY
)
ATTRIBUTE = st.fixed_dictionaries({"key": NAMES | ANY, "value": VALUE | ANY}) | ANY
SPAN = st.fixed_dictionaries({}, optional={
    "traceId": ANY, "spanId": ANY | st.sampled_from(["00000000000000aa", "00000000000000bb"]),
    "parentSpanId": ANY | st.sampled_from(["00000000000000aa", "00000000000000bb"]),
    "name": ANY, "kind": ANY, "startTimeUnixNano": ANY, "endTimeUnixNano": ANY,
    "attributes": st.lists(ATTRIBUTE, max_size=6) | ANY, "status": ANY, "events": ANY,
}) | ANY  # fmt: skip
SCOPE = st.fixed_dictionaries({}, optional={"scope": ANY, "spans": st.lists(SPAN) | ANY}) | ANY
RESOURCE = st.fixed_dictionaries({}, optional={
    "resource": st.fixed_dictionaries({"attributes": st.lists(ATTRIBUTE)}) | ANY,
    "scopeSpans": st.lists(SCOPE, max_size=2) | ANY,
}) | ANY  # fmt: skip
REQUEST = st.fixed_dictionaries({"resourceSpans": st.lists(RESOURCE, max_size=2) | ANY})

GOOD = request(
    call(1, {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.cached_tokens": 64}),
    span(2, {"openinference.span.kind": "AGENT", "llm.token_count.prompt": 5},
         parentSpanId="1" * 16),
    resource={"service.name": "bot"},
)  # fmt: skip
MANY = settings(max_examples=400, deadline=None)


def lines_of(body: bytes, kind: str) -> list[dict[str, Any]]:
    """The rows of a body; each line is strict JSON."""
    made = batches(read(body, kind), Sources(), None)
    lines = [line for written in made.values() for line in written.getvalue().splitlines()]
    return [json.loads(line, parse_constant=_not_json) for line in lines]


def _not_json(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@MANY
@given(REQUEST)
def test_odd_requests_become_rows_or_our_error(found: dict[str, Any]) -> None:
    with contextlib.suppress(UnreadableBody):
        lines_of(json.dumps(found).encode(), JSON)
    with contextlib.suppress(ValueError):  # the line is then rejected as it stands
        list(rows_in(json.dumps(found)))


@MANY
@given(st.data(), st.sampled_from([JSON, PROTOBUF]))
def test_damaged_bodies_become_rows_or_our_error(data: st.DataObject, kind: str) -> None:
    body = bytearray(as_json(GOOD) if kind == JSON else as_protobuf(GOOD))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not body:
            break
    with contextlib.suppress(UnreadableBody):
        lines_of(bytes(body), kind)


@settings(max_examples=25, deadline=None)
@given(st.lists(REQUEST, min_size=1, max_size=8))
def test_odd_lines_never_stop_a_log(shared_store: Store, found: list[dict[str, Any]]) -> None:
    good = call(9, {"gen_ai.usage.input_tokens": 100})
    summary = load(shared_store, ndjson([*found, request(good)]), format="otlp")
    assert summary.accepted + summary.duplicate + summary.corrected >= 1


def test_a_long_chain_of_parents_is_walked_once() -> None:
    """Every span below every other: a walk to the top for each would take hours."""
    chain = [
        span(n, {"gen_ai.usage.input_tokens": 1}, parentSpanId=f"{n - 1:016x}")
        for n in range(1, 20_001)
    ]
    rows = lines_of(as_json(request(*chain)), JSON)
    assert len(rows) == 20_000
    assert sum("skip" not in row for row in rows) == 1


def test_nesting_without_end_is_our_error() -> None:
    deep = as_json(GOOD)[:-1] + b',"x":' + b"[" * 200_000
    with pytest.raises(UnreadableBody):
        lines_of(deep, JSON)
