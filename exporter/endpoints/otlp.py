"""OTLP/HTTP: what `POST /v1/traces` takes and answers, by the OpenTelemetry protocol.

Protobuf and JSON bodies become the same rows. A client of the protocol expects its own content
type back, in errors too, and sends again only after 429 and 503.
"""

import io
import json
from collections.abc import Mapping

from exporter.endpoints.body import UnreadableBody
from exporter.errors import PrefixscopeError
from exporter.sources.formats import otel_json, otel_spans
from exporter.sources.formats.otel_spans import Span
from exporter.sources.intake import IngestSummary

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_SPELLINGS = {PROTOBUF: PROTOBUF, "application/protobuf": PROTOBUF, JSON: JSON}

DEFAULT_SOURCE = "otlp"
# What SDKs put where nobody named the service.
_UNNAMED = "unknown_service"
# Sources are columns and labels; whoever posts can make up services without end.
_SERVICES_LIMIT = 100


class UnknownContentType(PrefixscopeError):
    """Neither protobuf nor JSON."""


def content_type(header: str) -> str:
    """The encoding a Content-Type names. Raises UnknownContentType for any other."""
    kind = _SPELLINGS.get(header.split(";", 1)[0].strip().lower())
    if kind is None:
        raise UnknownContentType(f"send Content-Type {PROTOBUF} or {JSON}")
    return kind


def read(body: bytes, kind: str) -> list[Span]:
    """The spans of a request. Raises UnreadableBody where the whole cannot be read."""
    try:
        if kind == PROTOBUF:
            # Imported when the first protobuf arrives: most installations never see one.
            from exporter.sources.formats import otel_protobuf  # noqa: PLC0415

            return otel_protobuf.spans_in(body)
        return otel_json.spans_in(otel_json.read_object(body))
    except ValueError as error:
        raise UnreadableBody(f"no readable ExportTraceServiceRequest: {error}") from None


def is_source(name: str) -> bool:
    """Whether a text can name a stream: short and printable."""
    return len(name) <= 100 and name.isprintable()


class Sources:
    """Which source a service's rows belong to: its own name, for the first services seen."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def name(self, service: str | None) -> str:
        """The source; the common one for unnamed services and those beyond the limit."""
        if not service or service.startswith(_UNNAMED) or not is_source(service):
            return DEFAULT_SOURCE
        if service not in self._named:
            if len(self._named) >= _SERVICES_LIMIT:
                return DEFAULT_SOURCE
            self._named.add(service)
        return service


def batches(spans: list[Span], sources: Sources, given_source: str | None) -> dict[str, io.BytesIO]:
    """Rows as lines, by source: the one given, else that of the service."""
    found: dict[str, io.BytesIO] = {}
    for service, row in otel_spans.rows_of(spans):
        lines = found.setdefault(given_source or sources.name(service), io.BytesIO())
        lines.write(json.dumps(row).encode() + b"\n")
    for lines in found.values():
        lines.seek(0)
    return found


def refused_spans(summaries: list[IngestSummary]) -> Mapping[str, int]:
    """Rows that should have been requests and could not be, by reason. A parent span that only
    repeats its children was set aside rightly, and its sender need not hear of it."""
    found: dict[str, int] = {}
    for summary in summaries:
        for reason, count in summary.reasons.items():
            if reason != otel_spans.PARENT:
                found[reason] = found.get(reason, 0) + count
    return found


def accepted(kind: str, refused: Mapping[str, int]) -> bytes:
    """The answer to a request that was taken: how many spans were refused, and why."""
    count = sum(refused.values())
    reasons = ", ".join(f"{reason}: {number}" for reason, number in sorted(refused.items()))
    message = f"{reasons}; see the question `rejects`" if count else ""
    if kind == PROTOBUF:
        from exporter.sources.formats import otel_protobuf  # noqa: PLC0415  # see `read`

        return otel_protobuf.response(count, message)
    partial = {"rejectedSpans": str(count), "errorMessage": message}
    return json.dumps({"partialSuccess": partial} if count else {}).encode()


def failed(kind: str, message: str) -> bytes:
    """The answer to a request that was not taken: a Status with only its message."""
    if kind == JSON:
        return json.dumps({"message": message}).encode()
    text = message.encode()
    return b"\x12" + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    """A whole number in protobuf's encoding: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
