"""The OpenTelemetry SDK itself as the client of a running exporter."""

import logging
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from exporter.endpoints import otlp
from exporter.sources.intake import IngestSummary
from tests.log_path import rejects
from tests.log_path import requests as stored
from tests.unit_otel.spans import START_NS, House, as_json, call, request

USAGE: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.response.model": "m",
    "gen_ai.usage.output_tokens": 20,
}


def exporting(house: House, compression: Compression) -> tuple[TracerProvider, OTLPSpanExporter]:
    resource = Resource({"service.name": "bot", "service.instance.id": "pod-1"})
    exporter = OTLPSpanExporter(endpoint=f"{house.url}/v1/traces", compression=compression)
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, exporter


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_an_instrumented_program_is_understood(
    house: House, compression: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    provider, _ = exporting(house, compression)
    tracer = provider.get_tracer("app")

    def call(identity: str, **usage: int) -> None:
        known: Mapping[str, Any] = {
            **USAGE,
            "gen_ai.response.id": identity,
            **{f"gen_ai.usage.{name.replace('__', '.')}": count for name, count in usage.items()},
        }
        with tracer.start_as_current_span("chat m", kind=SpanKind.CLIENT, attributes=known) as span:
            span.add_event("gen_ai.content", {"gen_ai.prompt": "what people wrote"})

    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 3000}
    with tracer.start_as_current_span("agent", attributes=agent):
        with tracer.start_as_current_span("GET /documents"):
            pass
        call("r1", input_tokens=1000, cache_read__input_tokens=0)
        call("r2", input_tokens=2000, cache_read__input_tokens=1536)
    with caplog.at_level(logging.WARNING):
        assert provider.force_flush()
        provider.shutdown()
    assert caplog.text == "", "the client had nothing to complain about"

    rows = {row["request_id"]: row for row in stored(house.store)}
    assert set(rows) == {"r1", "r2"}
    assert {(row["source"], row["replica"]) for row in rows.values()} == {("bot", "pod-1")}
    assert len({row["trace_id"] for row in rows.values()}) == 1
    (ratio,) = house.ask("hit_ratio")
    assert (ratio["prompt_tokens"], ratio["cached_tokens"]) == (3000, 1536)
    assert ratio["token_hit_ratio"] == pytest.approx(0.512)
    assert [reason for _, reason in rejects(house.store)] == ["parent_span"]
    assert house.ask("ingest_health")[0]["flags"] == {"not_an_llm_call": 1}


def test_times_and_status_are_those_of_the_program(house: House) -> None:
    provider, _ = exporting(house, Compression.Gzip)
    span = provider.get_tracer("app").start_span("chat m", attributes=USAGE, start_time=START_NS)
    span.set_status(Status(StatusCode.ERROR, "what people wrote"))
    span.end(START_NS + 2_500_000_000)
    provider.shutdown()
    (row,) = stored(house.store)
    assert (row["ts"].isoformat(), row["e2e_seconds"]) == ("2026-03-02T12:00:00", 2.5)
    context = span.get_span_context()
    assert row["request_id"] == f"{context.span_id:016x}"
    assert row["trace_id"] == f"{context.trace_id:032x}"
    assert (row["status"], row["prompt_tokens"]) == ("error", None)


def test_refused_spans_do_not_make_the_client_send_again(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    provider, _ = exporting(house, Compression.NoCompression)
    tracer = provider.get_tracer("app")
    tracer.start_span("chat m", attributes=USAGE, start_time=1_000_000_000).end(2_000_000_000)
    with caplog.at_level(logging.WARNING):
        provider.shutdown()
    assert caplog.text == ""
    assert stored(house.store) == []
    assert [reason for _, reason in rejects(house.store)] == ["implausible_time"]


def test_a_client_that_is_told_to_wait_sends_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, leave = threading.Event(), threading.Event()
    ingest, failed = house.intake.ingest, otlp.failed

    def slow(stream: BinaryIO, **more: str) -> IngestSummary:
        inside.set()
        leave.wait(60)
        return ingest(stream, source=more["source"], format="otlp", origin="http")

    def refused(kind: str, message: str) -> bytes:
        leave.set()  # the client has its 429 now: the next try finds room
        return failed(kind, message)

    monkeypatch.setattr(house.intake, "ingest", slow)
    monkeypatch.setattr(otlp, "failed", refused)
    other = as_json(request(call(1, {"gen_ai.usage.input_tokens": 5})))
    sender = threading.Thread(target=house.post, args=(other,))
    sender.start()
    assert inside.wait(60)
    provider, _ = exporting(house, Compression.Gzip)
    provider.get_tracer("app").start_span("chat m", attributes=USAGE).end()
    provider.shutdown()
    sender.join()
    assert leave.is_set()
    assert sorted(row["source"] for row in stored(house.store)) == ["bot", "otlp"]
