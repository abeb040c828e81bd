"""POST /v1/traces by the OpenTelemetry protocol: encodings, answers, errors, sources."""

import gzip
import json
import threading
from typing import BinaryIO

import pytest
import requests
import zstandard
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporter.endpoints import otlp
from exporter.sources.intake import IngestSummary
from tests.log_path import rejects
from tests.log_path import requests as stored
from tests.unit_otel.spans import (
    JSON,
    PROTOBUF,
    House,
    Object,
    as_json,
    as_protobuf,
    call,
    request,
    span,
)

USAGE = {
    "gen_ai.request.model": "m",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.cache_read.input_tokens": 700,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.response.time_to_first_chunk": 0.25,
    "gen_ai.request.stream": True,
}


def usage(number: int) -> Object:
    return call(number, {**USAGE, "gen_ai.response.id": f"r{number}"})


def read(kind: type[Message], answer: requests.Response) -> Message:
    assert answer.headers["content-type"] == PROTOBUF
    message = kind()
    message.ParseFromString(answer.content)
    return message


# ---- taking spans


@pytest.mark.parametrize("kind", [JSON, PROTOBUF, "application/json; charset=utf-8"])
@pytest.mark.parametrize("packed", ["", "gzip", "zstd"])
def test_every_encoding_gives_the_same_rows(house: House, kind: str, packed: str) -> None:
    found = request(usage(1), usage(2), resource={"service.name": "bot"})
    body = as_protobuf(found) if kind == PROTOBUF else as_json(found)
    pack = {"gzip": gzip.compress, "zstd": zstandard.compress}.get(packed, bytes)
    headers = {"Content-Encoding": packed} if packed else {}
    answer = house.post(pack(body), kind, **headers)
    assert answer.status_code == 200
    (first, second) = stored(house.store)
    assert (first["request_id"], second["request_id"]) == ("r1", "r2")
    assert (first["prompt_tokens"], first["cached_tokens"]) == (1000, 700)
    assert (first["ttft_seconds"], first["ttft_point"], first["stream"]) == (0.25, "client", True)
    assert (first["source"], first["model"], first["e2e_seconds"]) == ("bot", "m", 1.0)
    (ratio,) = house.ask("hit_ratio")
    assert (ratio["token_hit_ratio"], ratio["coverage_ratio"]) == (0.7, 1.0)


def test_success_is_answered_in_the_encoding_of_the_request(house: House) -> None:
    found = request(usage(1))
    protobuf = house.post(as_protobuf(found), PROTOBUF)
    assert read(ExportTraceServiceResponse, protobuf) == ExportTraceServiceResponse()
    plain = house.post(as_json(found), JSON)
    assert (plain.headers["content-type"], plain.json()) == (JSON, {})


@pytest.mark.parametrize(("kind", "body"), [(JSON, b"{}"), (PROTOBUF, b"")])
def test_an_empty_request_is_taken(house: House, kind: str, body: bytes) -> None:
    assert house.post(body, kind).status_code == 200
    assert stored(house.store) == []


def test_t67_spans_that_are_sent_again_change_nothing(house: House) -> None:
    body = as_protobuf(request(usage(1), usage(2)))
    for _ in range(2):
        assert house.post(body, PROTOBUF).status_code == 200
    assert house.ask("hit_ratio")[0]["prompt_tokens"] == 2000
    assert house.ask("ingest_health")[0]["duplicate"] == 2


def test_refused_spans_are_a_partial_success_with_their_reasons(house: House) -> None:
    ahead = call(1, USAGE, startTimeUnixNano="9999999999000000000", endTimeUnixNano="0")
    found = request(ahead, usage(2), call(3, USAGE, startTimeUnixNano="1000"))
    protobuf = house.post(as_protobuf(found), PROTOBUF)
    assert protobuf.status_code == 200
    partial = ExportTraceServiceResponse.FromString(protobuf.content).partial_success
    assert partial.rejected_spans == 2
    assert partial.error_message == "implausible_time: 2; see the question `rejects`"
    plain = house.post(as_json(found), JSON).json()["partialSuccess"]
    assert plain == {"rejectedSpans": "2", "errorMessage": partial.error_message}
    assert len(stored(house.store)) == 1


def test_ordinary_spans_are_only_counted(house: House) -> None:
    """A tracing system sends thousands of them for every call of a model."""
    http = [span(n, {"http.request.method": "GET"}) for n in range(2, 502)]
    answer = house.post(as_json(request(usage(1), *http)))
    assert answer.json() == {}
    (health,) = house.ask("ingest_health")
    assert (health["accepted"], health["rejected"]) == (1, 0)
    assert health["flags"] == {"not_an_llm_call": 500}
    assert house.store.cursor().execute("SELECT count(*) FROM rejects").fetchall() == [(0,)]


def test_parents_are_kept_as_rejects_and_not_complained_about(house: House) -> None:
    parent = span(1, {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 9})
    assert house.post(as_json(request(parent, usage(2)))).json() == {}
    assert [reason for _, reason in rejects(house.store)] == ["parent_span"]


# ---- sources


def test_a_source_is_the_service_or_what_the_query_says(house: House) -> None:
    def post(number: int, service: str | None, query: str = "") -> None:
        resource = {"service.name": service} if service else {}
        assert house.post(as_json(request(usage(number), resource=resource)), query=query).ok

    post(1, "bot")
    post(2, None)
    post(3, "unknown_service:python")
    post(4, "bot", "?source=gateway")
    post(5, "x" * 101)
    post(6, "line\nbreak")
    sources = {row["request_id"]: row["source"] for row in stored(house.store)}
    assert sources == {"r1": "bot", "r2": "otlp", "r3": "otlp", "r4": "gateway", "r5": "otlp",
                       "r6": "otlp"}  # fmt: skip


def test_services_of_one_request_keep_their_own_sources(house: House) -> None:
    found = request(usage(1), resource={"service.name": "a"})
    found["resourceSpans"] += request(usage(2), resource={"service.name": "b"})["resourceSpans"]
    assert house.post(as_protobuf(found), PROTOBUF).status_code == 200
    assert {row["source"]: row["request_id"] for row in stored(house.store)} == {
        "a": "r1",
        "b": "r2",
    }


def test_t50_services_without_end_do_not_become_sources_without_end() -> None:
    sources = otlp.Sources()
    named = {sources.name(f"service-{number}") for number in range(5000)}
    assert len(named) == 101
    assert sources.name("service-7") == "service-7"
    assert sources.name("service-4999") == "otlp"


def test_a_source_that_is_no_name_is_refused(house: House) -> None:
    answer = house.post(as_json(request(usage(1))), query="?source=" + "x" * 101)
    assert answer.status_code == 400
    assert "source" in answer.json()["message"]


# ---- errors


@pytest.mark.parametrize("kind", ["text/plain", "application/x-ndjson", "", None])
def test_another_content_type_is_415(house: House, kind: str | None) -> None:
    answer = house.post(as_json(request(usage(1))), kind)
    assert answer.status_code == 415
    status = read(Status, answer)
    assert isinstance(status, Status)
    assert status.message == "send Content-Type application/x-protobuf or application/json"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b'"text"', b"\xff", b'{"resourceSpans": 1}', b"[" * 100_000]
)
def test_json_that_is_no_request_is_400(house: House, body: bytes) -> None:
    answer = house.post(body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("no readable ExportTraceServiceRequest")


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"{}", b"\x0a\x05ab"])
def test_protobuf_that_is_no_request_is_400_with_a_status(house: House, body: bytes) -> None:
    answer = house.post(body, PROTOBUF)
    assert answer.status_code == 400
    status = read(Status, answer)
    assert isinstance(status, Status)
    assert status.message.startswith("no readable ExportTraceServiceRequest")


def test_a_long_message_is_still_a_status() -> None:
    for length in (0, 127, 128, 20_000):
        assert Status.FromString(otlp.failed(PROTOBUF, "é" * length)).message == "é" * length
    assert json.loads(otlp.failed(JSON, 'say "no"')) == {"message": 'say "no"'}


def test_broken_compression_is_400_and_an_unknown_one_415(house: House) -> None:
    assert house.post(b"not gzip", **{"Content-Encoding": "gzip"}).status_code == 400
    assert house.post(b"x", **{"Content-Encoding": "br"}).status_code == 415


def test_a_body_over_the_limit_is_413_packed_or_not(house: House) -> None:
    big = as_json(request(span(1, {"text": "x" * (1 << 20)})))
    assert house.post(big).status_code == 413
    packed = house.post(gzip.compress(big), **{"Content-Encoding": "gzip"})
    assert packed.status_code == 413
    assert "max_body_bytes" in packed.json()["message"]


def test_more_requests_than_allowed_get_429_and_a_time_to_wait(house: House) -> None:
    inside, leave = threading.Event(), threading.Event()
    ingest = house.intake.ingest

    def slow(stream: BinaryIO, **more: str) -> IngestSummary:
        inside.set()
        leave.wait(60)
        return ingest(stream, source=more["source"], format="otlp", origin="http")

    house.intake.ingest = slow  # type: ignore[method-assign]
    body, answers = as_protobuf(request(usage(1))), []
    sender = threading.Thread(target=lambda: answers.append(house.post(body, PROTOBUF)))
    sender.start()
    assert inside.wait(60)
    refused = house.post(as_protobuf(request(usage(2))), PROTOBUF)
    leave.set()
    sender.join()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    status = read(Status, refused)
    assert isinstance(status, Status)
    assert "send this again" in status.message
    assert [answer.status_code for answer in answers] == [200]
