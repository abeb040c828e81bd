"""OTLP/protobuf -> spans: the body of a POST as most OpenTelemetry exporters send it."""

import sys
from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from exporter.sources.formats.otel_attributes import Scalar, kept, may_keep, may_list
from exporter.sources.formats.otel_spans import Span


def spans_in(body: bytes) -> list[Span]:
    """Every span of an export request, in its order. Raises ValueError where it is none."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return [span for resource in request.resource_spans for span in _spans_of(resource)]


def response(rejected_spans: int, message: str) -> bytes:
    """The answer to an export request; partial success only where there is something to say."""
    if not rejected_spans and not message:
        return bytes(ExportTraceServiceResponse().SerializeToString())
    partial = ExportTracePartialSuccess(rejected_spans=rejected_spans, error_message=message)
    return bytes(ExportTraceServiceResponse(partial_success=partial).SerializeToString())


def _spans_of(resource_spans: trace_pb2.ResourceSpans) -> Iterator[Span]:
    resource = _attributes(resource_spans.resource.attributes)
    for scope_spans in resource_spans.scope_spans:
        for span in scope_spans.spans:
            yield Span(
                name=span.name,
                scope=scope_spans.scope.name,
                kind=span.kind,
                trace_id=span.trace_id.hex() or None,
                span_id=span.span_id.hex() or None,
                parent_id=span.parent_span_id.hex() or None,
                start=span.start_time_unix_nano,
                end=span.end_time_unix_nano,
                failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
                attributes={**resource, **_attributes(span.attributes)},
            )


def _attributes(entries: Iterable[KeyValue]) -> dict[str, Scalar]:
    """The attributes of a resource or span that may be kept, as plain values."""
    found: dict[str, Scalar] = {}
    for entry in entries:
        if may_keep(entry.key) and (value := _value(entry.value, entry.key)) is not None:
            short = kept(entry.key, value)
            if short is not None:
                found[sys.intern(entry.key)] = short
    return found


def _value(holder: AnyValue, name: str) -> Scalar | None:
    kind = holder.WhichOneof("value")
    if kind in ("string_value", "int_value", "double_value", "bool_value"):
        value: Scalar = getattr(holder, kind)
        return value
    if kind == "array_value" and may_list(name):
        listed = (_value(element, "") for element in holder.array_value.values)
        return ",".join(str(value) for value in listed if value is not None)
    return None
