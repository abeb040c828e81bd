"""Spans as tests write them, in each encoding of OTLP, and an exporter to post them to."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from exporter.collector import Collector, Inputs
from exporter.engine_totals import EngineTotals
from exporter.server import Services, build_app
from exporter.server_settings import ServerSettings
from exporter.sources.intake import Intake
from exporter.store.store import Store
from tests.log_path import SMALL

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
START_NS = 1772452800_000_000_000  # 2026-03-02T12:00:00Z
TRACE = "5b8efff798038103d269b633813fc60c"

Value = str | int | float | bool | list[str]
Object = dict[str, Any]


def span(number: int, attributes: Mapping[str, Value], **more: object) -> Object:
    """A span of one second, its number in its id, as OTLP/JSON writes it."""
    start = START_NS + number * 10_000_000_000
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "name": "span",
        "kind": 3,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 1_000_000_000),
        "attributes": _attributes(attributes),
    } | more


def call(number: int, attributes: Mapping[str, Value], **more: object) -> Object:
    """The span of a chat call by the current names."""
    return span(number, {"gen_ai.operation.name": "chat", **attributes}, **more)


def request(
    *spans: Object, resource: Mapping[str, Value] | None = None, scope: str = "test"
) -> Object:
    """An export request with these spans."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource or {})},
                "scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}],
            }
        ]
    }


def _attributes(values: Mapping[str, Value]) -> list[Object]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Value) -> Object:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(element) for element in value]}}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def as_json(found: Object) -> bytes:
    return json.dumps(found).encode()


def as_protobuf(found: Object) -> bytes:
    """The same request in the other encoding, by the message types of the protocol."""
    message = ExportTraceServiceRequest()
    for resource in found["resourceSpans"]:
        into = message.resource_spans.add()
        into.resource.attributes.extend(_key_values(resource["resource"]["attributes"]))
        for scope in resource["scopeSpans"]:
            _fill_scope(into, scope)
    return bytes(message.SerializeToString())


def _fill_scope(into: ResourceSpans, scope: Object) -> None:
    spans: ScopeSpans = into.scope_spans.add()
    spans.scope.name = scope["scope"]["name"]
    for one in scope["spans"]:
        made: Span = spans.spans.add(
            trace_id=bytes.fromhex(one["traceId"]),
            span_id=bytes.fromhex(one["spanId"]),
            parent_span_id=bytes.fromhex(one.get("parentSpanId", "")),
            name=one["name"],
            kind=one["kind"],
            start_time_unix_nano=int(one["startTimeUnixNano"]),
            end_time_unix_nano=int(one["endTimeUnixNano"]),
            attributes=_key_values(one["attributes"]),
        )
        made.status.code = one.get("status", {}).get("code", 0)
        made.status.message = one.get("status", {}).get("message", "")
        for event in one.get("events", ()):
            made.events.add(name=event["name"], attributes=_key_values(event["attributes"]))
        for link in one.get("links", ()):
            made.links.add(attributes=_key_values(link["attributes"]))


def _key_values(entries: list[Object]) -> list[KeyValue]:
    return [KeyValue(key=entry["key"], value=_any(entry["value"])) for entry in entries]


def _any(value: Object) -> AnyValue:
    ((kind, content),) = value.items()
    if kind == "arrayValue":
        made = AnyValue()
        made.array_value.values.extend(_any(element) for element in content["values"])
        return made
    name = {"stringValue": "string_value", "intValue": "int_value",
            "doubleValue": "double_value", "boolValue": "bool_value"}[kind]  # fmt: skip
    return AnyValue(**{name: int(content) if kind == "intValue" else content})


class House:
    """One exporter on a free port of loopback, for as long as a `with` lasts."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder, SMALL)
        self.intake = Intake(self.store)
        inputs = Inputs(
            counters=self.store.counters.snapshot,
            engines=EngineTotals().snapshot,
            targets=list,
            store_file=self.store.path,
            version="1",
        )
        services = Services(
            store=self.store, intake=self.intake, collector=Collector(inputs), version="1"
        )
        bounds = ServerSettings.model_validate(
            {"max_body_bytes": 1 << 20, "max_waiting_batches": 1}
        )
        self._socket = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(build_app(services, bounds), log_level="critical")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> "House":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()
        self.store.close()

    def post(
        self, content: bytes, kind: str | None = JSON, query: str = "", **headers: str
    ) -> requests.Response:
        typed = {"Content-Type": kind} if kind else {}
        return requests.post(
            f"{self.url}/v1/traces{query}", data=content, headers=typed | headers, timeout=60
        )

    def ask(self, name: str, **params: str) -> list[Object]:
        response = requests.get(f"{self.url}/api/v1/query/{name}", params, timeout=60)
        assert response.status_code == 200, response.text
        rows: list[Object] = response.json()
        return rows


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "store") as house:
        yield house
