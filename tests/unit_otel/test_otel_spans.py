"""Which spans count and what a request says of them, through the ordinary path of a log."""

import base64
import io
import json
from collections.abc import Mapping

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.formats import otel_attributes as names
from exporter.sources.intake import Intake
from exporter.sources.names import SourceNames
from exporter.store.store import Store
from tests.log_path import Answer, Row, by_id, load, ndjson, rejects, requests, utc
from tests.unit_otel.spans import START_NS, TRACE, Object, Value, call, request, span

BASE = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7}


def one(store: Store, found: Object, **more: object) -> Answer:
    """The one request a span becomes."""
    load(store, [request(found, **more)], format="otlp")  # type: ignore[arg-type]
    (row,) = requests(store)
    return row


def accepted(store: Store, attributes: Mapping[str, Value], **more: object) -> bool:
    return load(store, [request(span(1, attributes, **more))], format="otlp").accepted == 1


# ---- spellings


@pytest.mark.parametrize("name", names.PROMPT_TOKENS)
def test_every_spelling_of_the_prompt_is_read(store: Store, name: str) -> None:
    assert one(store, call(1, {name: 640}))["prompt_tokens"] == 640


@pytest.mark.parametrize("name", names.CACHED_TOKENS)
def test_every_spelling_of_cached_tokens_is_read(store: Store, name: str) -> None:
    row = one(store, call(1, {**BASE, name: 64}))
    assert (row["prompt_tokens"], row["cached_tokens"]) == (100, 64)


@pytest.mark.parametrize("name", names.CACHE_WRITE_TOKENS)
def test_every_spelling_of_written_tokens_is_read(store: Store, name: str) -> None:
    assert one(store, call(1, {**BASE, name: 32}))["cache_write_tokens"] == 32


@pytest.mark.parametrize("name", names.OUTPUT_TOKENS)
def test_every_spelling_of_the_output_is_read(store: Store, name: str) -> None:
    row = one(store, call(1, {"gen_ai.usage.input_tokens": 5, name: 8}))
    assert row["output_tokens"] == 8


def test_the_current_name_wins_over_older_ones(store: Store) -> None:
    row = one(store, call(1, {
        "llm.token_count.prompt": 1, "gen_ai.usage.prompt_tokens": 2,
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.cached_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 48, "gen_ai.system": "old",
        "gen_ai.provider.name": "new", "gen_ai.request.model": "asked",
        "gen_ai.response.model": "answered",
    }))  # fmt: skip
    assert (row["prompt_tokens"], row["cached_tokens"]) == (100, 48)
    assert (row["provider"], row["model"]) == ("new", "answered")


def test_numbers_may_be_texts_and_texts_numbers(store: Store) -> None:
    found = call(1, {})
    found["attributes"] += [
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": 100}},
        {"key": "gen_ai.usage.cached_tokens", "value": {"stringValue": "64"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"doubleValue": 7.0}},
        {"key": "gen_ai.prompt.version", "value": {"intValue": "12"}},
    ]
    row = one(store, found)
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 64, 7)
    assert row["template_version"] == "12"


def test_protobufs_own_json_is_read_too(store: Store) -> None:
    """Names with underscores, ids in base64, enumerations by name."""
    found = {"resource_spans": [{"scope_spans": [{"spans": [{
        "trace_id": base64.b64encode(bytes.fromhex(TRACE)).decode(),
        "span_id": base64.b64encode(bytes.fromhex("eee19b7ec3c1b174")).decode(),
        "kind": "SPAN_KIND_CLIENT", "status": {"code": "STATUS_CODE_ERROR"},
        "start_time_unix_nano": START_NS, "end_time_unix_nano": START_NS + 5,
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"string_value": "chat"}},
            {"key": "gen_ai.usage.input_tokens", "value": {"int_value": 100}},
            {"key": "server.address", "value": {"string_value": "api.example.com"}},
            {"key": "host.name", "value": {"string_value": "caller"}},
        ]}]}]}]}  # fmt: skip
    load(store, [found], format="auto")
    (row,) = requests(store)
    assert (row["request_id"], row["trace_id"]) == ("eee19b7ec3c1b174", TRACE)
    assert (row["status"], row["replica"]) == ("error", "api.example.com")


# ---- which spans count


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "chat"},
        {"gen_ai.operation.name": "text_completion"},
        {"gen_ai.operation.name": "generate_content"},
        {"openinference.span.kind": "LLM"},
        {"openinference.span.kind": "llm"},
        {"llm.request.type": "chat"},
        {"gen_ai.request.id": "x", "gen_ai.usage.prompt_tokens": 3},
        {"gen_ai.system": "openai", "gen_ai.usage.prompt_tokens": 3},
    ],
)
def test_calls_of_a_model_count(store: Store, attributes: dict[str, Value]) -> None:
    assert accepted(store, attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 100},
        {"openinference.span.kind": "AGENT", "llm.token_count.prompt": 100},
        {"gen_ai.operation.name": "invoke_agent", **BASE},
        {"gen_ai.operation.name": "execute_tool", **BASE},
        {"traceloop.span.kind": "workflow", **BASE},
    ],
)
def test_parents_that_repeat_usage_are_set_aside(
    store: Store, attributes: dict[str, Value]
) -> None:
    assert not accepted(store, attributes)
    assert rejects(store) == [(1, "parent_span")]


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"http.request.method": "POST", "http.route": "/chat"},
        {"openinference.span.kind": "CHAIN"},
        {"openinference.span.kind": "EMBEDDING", "llm.token_count.prompt": 100},
        {"gen_ai.operation.name": "embeddings", **BASE},
        {"gen_ai.operation.name": "execute_tool"},
        {"llm.request.type": "rerank", "llm.usage.prompt_tokens": 4},
    ],
)
def test_other_spans_are_counted_and_leave_no_row(
    store: Store, attributes: dict[str, Value]
) -> None:
    summary = load(store, [request(span(1, attributes))], format="otlp")
    assert (summary.accepted, summary.rejected) == (0, 0)
    assert summary.flags == {"not_an_llm_call": 1}
    assert rejects(store) == []


def test_t41_a_call_seen_by_two_libraries_counts_once(store: Store) -> None:
    """A framework's span of a call around the span of the client library it uses."""
    outer = call(1, {**BASE, "gen_ai.usage.cached_tokens": 64})
    inner = call(2, {**BASE, "gen_ai.usage.cached_tokens": 64}, parentSpanId=f"{1:016x}")
    summary = load(store, [request(inner, outer)], format="otlp")
    assert (summary.prompt_tokens, summary.cached_tokens) == (100, 64)
    assert [row["request_id"] for row in requests(store)] == [f"{2:016x}"]
    assert rejects(store) == [(1, "parent_span")]


def test_usage_summed_on_a_span_that_names_no_operation_counts_once(store: Store) -> None:
    total = span(1, {"gen_ai.usage.input_tokens": 200})
    step = span(2, {"http.request.method": "POST"}, parentSpanId=f"{1:016x}")
    calls = [call(n, BASE, parentSpanId=f"{2:016x}") for n in (3, 4)]
    summary = load(store, [request(*calls, step, total)], format="otlp")
    assert (summary.accepted, summary.prompt_tokens) == (2, 200)
    assert summary.reasons == {"parent_span": 1}
    assert summary.flags == {"not_an_llm_call": 1}


def test_a_call_made_by_a_tool_of_a_call_is_its_own(store: Store) -> None:
    outer = call(1, BASE)
    tool = span(2, {"gen_ai.operation.name": "execute_tool"}, parentSpanId=f"{1:016x}")
    inner = call(3, BASE, parentSpanId=f"{2:016x}")
    assert load(store, [request(outer, tool, inner)], format="otlp").prompt_tokens == 200


def test_spans_that_are_their_own_parents_end_somewhere(store: Store) -> None:
    ring = [span(1, BASE, parentSpanId=f"{2:016x}"), span(2, BASE, parentSpanId=f"{1:016x}"),
            span(3, BASE, parentSpanId=f"{3:016x}")]  # fmt: skip
    load(store, [request(*ring)], format="otlp")
    assert set(by_id(store)) == {f"{1:016x}", f"{3:016x}"}


def test_t04_answers_of_one_prompt_have_a_span_each_and_count_once(store: Store) -> None:
    """vLLM makes a span for each of n answers, all with the id of the request."""
    answers = [
        span(n, {"gen_ai.request.id": "cmpl-1", "gen_ai.request.n": 3,
                 "gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 5 + n},
             name="llm_request", startTimeUnixNano=str(START_NS))
        for n in range(3)
    ]  # fmt: skip
    assert load(store, [request(*answers)], format="otlp").prompt_tokens == 100
    assert [row["output_tokens"] for row in requests(store)] == [7]


@pytest.mark.parametrize("batches", [1, 2])
def test_the_engines_and_the_clients_span_of_one_response_are_joined(
    store: Store, batches: int
) -> None:
    """In one stream, as a collector sends them. The engine's ends first and states no cached
    tokens; the client's does. Sent again, both are known."""
    engine = span(1, {"gen_ai.request.id": "chatcmpl-1", "gen_ai.usage.prompt_tokens": 100,
                      "gen_ai.latency.time_in_queue": 0.25, "service.instance.id": "pod-1"},
                  name="llm_request", kind=2)  # fmt: skip
    client = call(1, {**BASE, "gen_ai.response.id": "chatcmpl-1", "user.id": "u1",
                      "gen_ai.usage.cache_read.input_tokens": 64, "server.address": "api"},
                  spanId=f"{2:016x}")  # fmt: skip
    for _ in range(2):
        for sent in ([[engine, client]], [[engine], [client]])[batches - 1]:
            load(store, [request(*sent)], format="otlp")
    (row,) = requests(store)
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 64, 7)
    assert (row["replica"], row["queue_seconds"], row["tenant"]) == ("pod-1", 0.25, "u1")
    assert "joined" in row["flags"]


def test_one_trace_joins_spans_that_share_no_id(store: Store) -> None:
    """vLLM goes on with the trace of its client; the client's library states no response id."""
    engine = span(1, {"gen_ai.request.id": "cmpl-1", "gen_ai.usage.prompt_tokens": 100},
                  name="llm_request", kind=2, parentSpanId=f"{2:016x}")  # fmt: skip
    client = call(1, {**BASE, "user.id": "u1"}, spanId=f"{2:016x}")
    load(store, [request(engine)], "vllm", format="otlp")
    load(store, [request(client)], "bot", format="otlp")
    (row,) = requests(store)
    assert (row["prompt_tokens"], row["tenant"]) == (100, "u1")


# ---- what a request says


def test_a_span_without_a_response_is_known_by_its_own_id(store: Store) -> None:
    row = one(store, call(255, BASE, spanId="00000000000000FF"))
    assert (row["request_id"], row["trace_id"]) == ("00000000000000ff", TRACE)


@pytest.mark.parametrize("bad", ["", "xyz", "0" * 16, 5, None, {"a": 1}])
def test_what_is_no_id_is_none(store: Store, bad: object) -> None:
    row = one(store, call(1, BASE, spanId=bad, traceId=bad))
    assert row["trace_id"] is None
    assert row["request_id"].startswith("line:")


def test_time_is_exact_to_the_microsecond(store: Store) -> None:
    row = one(store, call(0, BASE, startTimeUnixNano="1795992829490713999",
                          endTimeUnixNano="1795992829542002418"))  # fmt: skip
    assert row["ts"] == utc("2026-11-29 22:53:49.490713")
    assert row["e2e_seconds"] == pytest.approx(0.051288419, abs=1e-9)


@pytest.mark.parametrize(
    ("start", "outcome"),
    [
        (None, "no_time"),
        ("0", "no_time"),
        ("yesterday", "unreadable_time"),
        ("-5", "implausible_time"),
        ("9" * 5000, "unreadable_time"),
        (10**30, "unreadable_time"),
        (True, "unreadable_time"),
    ],
)
def test_odd_times(store: Store, start: object, outcome: str) -> None:
    summary = load(store, [request(call(1, BASE, startTimeUnixNano=start))], format="otlp")
    assert {**summary.reasons, **summary.flags} == {outcome: 1}


def test_an_end_before_the_start_is_no_duration(store: Store) -> None:
    assert one(store, call(1, BASE, endTimeUnixNano="5"))["e2e_seconds"] is None


@pytest.mark.parametrize(
    ("attributes", "more", "status"),
    [
        ({}, {}, "ok"),
        ({}, {"status": {"code": 1}}, "ok"),
        ({}, {"status": {"code": 2}}, "error"),
        ({"error.type": "429"}, {}, "error"),
        ({"error.type": "asyncio.CancelledError"}, {"status": {"code": 2}}, "cancelled"),
        ({"error.type": "499"}, {"status": {"code": 2}}, "cancelled"),
        ({"gen_ai.response.finish_reasons": ["stop"]}, {}, "ok"),
        ({"gen_ai.response.finish_reasons": ["abort"]}, {}, "cancelled"),
        ({"gen_ai.response.finish_reasons": ["error"]}, {}, "error"),
    ],
)
def test_how_a_call_ended(
    store: Store, attributes: dict[str, Value], more: dict[str, object], status: str
) -> None:
    assert one(store, call(1, {**BASE, **attributes}, **more))["status"] == status


@pytest.mark.parametrize(
    ("resource", "attributes", "kind", "replica"),
    [
        ({"service.instance.id": "a", "k8s.pod.name": "b", "host.name": "c"}, {}, 2, "a"),
        ({"k8s.pod.name": "b", "host.name": "c"}, {}, 2, "b"),
        ({"host.name": "c"}, {"server.address": "d"}, 2, "c"),
        ({}, {"server.address": "d", "server.port": 8000}, 2, "d:8000"),
        ({"service.instance.id": "caller"}, {"server.address": "d"}, 3, "d"),
        ({"service.instance.id": "caller"}, {}, 3, "caller"),
        ({}, {}, 3, None),
    ],
)
def test_replica_is_where_the_call_was_served(
    store: Store,
    resource: dict[str, Value],
    attributes: dict[str, Value],
    kind: int,
    replica: str | None,
) -> None:
    found = call(1, {**BASE, **attributes}, kind=kind)
    assert one(store, found, resource=resource)["replica"] == replica


def test_an_attribute_of_the_span_wins_over_one_of_its_resource(store: Store) -> None:
    row = one(store, call(1, {**BASE, "user.id": "u1"}), resource={"user.id": "host"})
    assert row["tenant"] == "u1"


def test_sglang_counts_the_queue_into_its_prefill_time(store: Store) -> None:
    found = span(1, {
        "gen_ai.request.id": "s1", "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.cached_tokens": 64, "gen_ai.latency.time_in_queue": 0.25,
        "gen_ai.latency.time_in_model_prefill": 0.75,
        "gen_ai.latency.time_to_first_token": 0.8, "gen_ai.response.model": "m",
    }, name="decode Req s1", kind=1)  # fmt: skip
    row = one(store, found, scope="sglang server")
    assert (row["queue_seconds"], row["prefill_seconds"]) == (0.25, 0.5)
    assert (row["ttft_seconds"], row["ttft_point"]) == (0.8, "engine_arrival")
    assert (row["replica_role"], row["prompt_basis"]) == ("decode", "inclusive")


def test_not_streamed_calls_have_no_first_token(store: Store) -> None:
    row = one(store, call(1, {**BASE, "gen_ai.request.stream": False,
                              "gen_ai.response.time_to_first_chunk": 0.3}))  # fmt: skip
    assert (row["ttft_seconds"], row["flags"]) == (None, ["ttft_not_streamed"])


# ---- names


def test_naming_rules_reach_attributes_and_headers(store: Store) -> None:
    rules = SourceNames.model_validate({
        "route": [{"field": 'attributes."http.route"'}],
        "tenant": [{"header": "x-tenant"}],
        "template": [{"field": 'attributes."app.template"', "pattern": "^(.*)@"}],
    })  # fmt: skip
    found = call(1, {**BASE, "http.route": "/support", "app.template": "triage@v12",
                     "http.request.header.x-tenant": ["acme"]})  # fmt: skip
    intake = Intake(store, names={"log": rules})
    intake.ingest(io.BytesIO(ndjson([request(found)])), source="log", format="otlp")
    (row,) = requests(store)
    assert (row["route"], row["tenant"], row["template"]) == ("/support", "acme", "triage")


# ---- forms of input


def test_a_document_over_many_lines_is_read_whole(store: Store) -> None:
    found = request(call(1, BASE), span(2, {}))
    summary = load(store, json.dumps(found, indent=2).encode(), format="auto")
    assert (summary.format, summary.accepted) == ("otlp_document", 1)
    assert summary.flags == {"not_an_llm_call": 1}


@pytest.mark.parametrize("broken", ['{"resourceSpans": [\n{', '{\n"resourceSpans": 5\n}'])
def test_a_broken_document_is_an_error_to_read(store: Store, broken: str) -> None:
    with pytest.raises(PrefixscopeError, match="the OTLP document cannot be read"):
        load(store, broken.encode(), format="auto")


def test_a_request_with_more_than_a_usual_line_is_read(store: Store) -> None:
    """A collector's batch of 8192 spans is some megabytes long."""
    found = request(*(call(n, {**BASE, "gen_ai.response.id": f"r{n}"}) for n in range(4000)))
    data = ndjson([found])
    assert len(data) > 1 << 20
    summary = load(store, data, format="auto")
    assert summary.decided_because == "it begins with resourceSpans"
    assert (summary.accepted, summary.prompt_tokens) == (4000, 400_000)


def test_lines_that_cannot_be_read_are_rejected_one_by_one(store: Store) -> None:
    good = request(call(1, BASE))
    cut = json.dumps(good)[:-20]
    lines = [good, cut, '{"resourceSpans": {}}', "[]", '{"resourceSpans": [5]}', "null",
             request(call(2, BASE))]  # fmt: skip
    summary = load(store, lines, format="otlp")
    assert summary.accepted == 2
    assert rejects(store) == [(2, "invalid_json"), (3, "no_known_field"), (4, "not_an_object"),
                              (5, "no_known_field"), (6, "not_an_object")]  # fmt: skip


def test_attributes_that_are_no_list_of_attributes_are_not_taken(store: Store) -> None:
    odd = call(1, BASE) | {"attributes": {"gen_ai.usage.input_tokens": 5}}
    load(store, [request(odd), request(call(2, BASE))], format="otlp")
    assert set(by_id(store)) == {f"{2:016x}"}
    assert rejects(store) == [(1, "no_known_field")]


def test_a_span_that_is_no_object_does_not_cost_its_neighbours(store: Store) -> None:
    found = request(call(1, BASE))
    found["resourceSpans"][0]["scopeSpans"][0]["spans"] += [5, None, call(2, BASE)]
    load(store, [found], format="otlp")
    assert set(by_id(store)) == {f"{1:016x}", f"{2:016x}"}
    assert rejects(store) == [(1, "unreadable_span"), (1, "unreadable_span")]


def test_rows_that_only_look_like_ours_say_nothing(store: Store) -> None:
    """Reasons and flags are kept, so nobody may make up their words."""
    rows: list[Row | str | bytes] = [
        {"left_out": "a secret", "rows": 5},
        {"left_out": "not_an_llm_call", "rows": -5},
        {"left_out": "not_an_llm_call", "rows": "x"},
        {"skip": "a secret", "start": 1},
    ]
    summary = load(store, rows, format="otlp")
    assert summary.flags == {}
    assert "a secret" not in repr(summary)
    assert summary.accepted == 0


def test_a_span_without_an_id_is_nobodys_parent(store: Store) -> None:
    first = call(1, {**BASE, "gen_ai.response.id": "a"}, spanId="")
    second = call(2, {**BASE, "gen_ai.response.id": "b"})
    assert load(store, [request(first, second)], format="otlp").accepted == 2
