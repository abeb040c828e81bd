"""OpenTelemetry spans of model calls, as OTLP/JSON: what collectors and SDKs write and send.

Who emits it: the GenAI instrumentations of OpenTelemetry, OpenLLMetry and OpenInference, vLLM
(`--otlp-traces-endpoint`), SGLang (`--enable-trace`), gateways. A line holds one export request
with any number of spans; a file may also be one document over many lines. `POST /v1/traces`
takes the same requests, protobuf too. The prompt includes cached tokens by convention; what
breaks it is found out by its numbers. vLLM's spans do not state cached tokens.
Versions read: semantic conventions 1.27 to 1.40, OpenInference 0.1.42, vLLM 0.32, SGLang 0.5.23.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import BinaryIO

from exporter.errors import PrefixscopeError
from exporter.sources.formats import otel_attributes as names
from exporter.sources.formats import otel_json, otel_spans
from exporter.sources.formats.documents import DOCUMENT_LIMIT_BYTES, is_json
from exporter.sources.formats.mapping import (
    Field,
    LogFormat,
    Row,
    case,
    flag,
    seconds,
    status,
    text,
    time,
    tokens,
)
from exporter.sources.formats.reshape import LEFT_OUT

# One export request is one line: a collector may put thousands of spans into it.
LINE_LIMIT_BYTES = 16 << 20
_READ_BYTES = 1 << 20


def _under(listed: Iterable[str]) -> list[str]:
    """Names of attributes as paths: each is one key among the attributes of the row."""
    return [f'attributes."{name}"' for name in listed]


# Only these words: any other text may be a prompt, and reasons are kept.
_SET_ASIDE = (otel_spans.PARENT, otel_spans.UNREADABLE)

_FIELDS: tuple[Field, ...] = (
    time("ts", "start"),
    text("request_id", *_under(names.REQUEST_ID), "span_id"),
    text("response_id", *_under(names.RESPONSE_ID)),
    text("trace_id", "trace_id"),
    text("side", "side"),
    text("session", *_under(names.SESSION)),
    text("replica", "replica"),
    text("replica_role", "replica_role"),
    text("provider", *_under(names.PROVIDER)),
    text("model", *_under(names.MODEL)),
    text("template", *_under(names.TEMPLATE)),
    text("template_version", *_under(names.TEMPLATE_VERSION)),
    text("tenant", *_under(names.TENANT)),
    tokens("prompt_tokens", *_under(names.PROMPT_TOKENS)),
    tokens("cached_tokens", *_under(names.CACHED_TOKENS)),
    tokens("cache_write_tokens", *_under(names.CACHE_WRITE_TOKENS)),
    tokens("output_tokens", *_under(names.OUTPUT_TOKENS)),
    tokens("total_tokens", *_under(names.TOTAL_TOKENS)),
    tokens("choices", *_under(names.CHOICES)),
    seconds("ttft_seconds", *_under((names.CLIENT_TTFT, names.ENGINE_TTFT))),
    text("ttft_point", "ttft_point"),
    seconds("queue_seconds", *_under((names.QUEUE,))),
    seconds("prefill_seconds", "prefill_seconds"),
    seconds("e2e_seconds", "e2e_seconds"),
    flag("stream", *_under(names.STREAM)),
    status("status"),
    text("convention", "convention"),
    text("skip", cases=tuple(case(reason, "skip", reason) for reason in _SET_ASIDE)),
)


def rows_in(line: str | bytes) -> Iterable[Row]:
    """The flat rows of one export request; a row made of one before stays as it is."""
    found = otel_json.read_object(line)
    if otel_json.is_request(found):
        return [row for _, row in otel_spans.rows_of(otel_json.spans_in(found))]
    if LEFT_OUT in found and not otel_spans.is_tally(found):
        raise ValueError("no tally of ours")
    return [found]


def _document(stream: BinaryIO) -> Iterable[Row]:
    """The rows of one export request that is written over many lines."""
    data = bytearray()
    while block := stream.read(_READ_BYTES):
        data += block
        if len(data) > DOCUMENT_LIMIT_BYTES:
            raise PrefixscopeError(
                f"the OTLP document is larger than {DOCUMENT_LIMIT_BYTES >> 20} MiB, the most "
                "that is read at once; write one export request a line, as the collector's file "
                "exporter does"
            )
    try:
        return rows_in(bytes(data))
    except ValueError as error:
        raise PrefixscopeError(f"the OTLP document cannot be read ({error})") from None


def _is_long_line(sample: str) -> str | None:
    """A first request longer than the sample cannot be parsed to be told."""
    cut = "\n" not in sample.strip() and not is_json(sample)
    return "it begins with resourceSpans" if cut and otel_json.OPENING.match(sample) else None


def _is_document(sample: str) -> str | None:
    first_line, *more = sample.strip().split("\n", 1)
    if not more or is_json(first_line) or not otel_json.OPENING.match(sample):
        return None
    return "one document over many lines that begins with resourceSpans"


FORMAT = LogFormat(
    name="otlp",
    title="OpenTelemetry spans (OTLP, one request a line)",
    versions="conventions 1.27–1.40, OpenInference 0.1.42, vLLM 0.32, SGLang 0.5.23",
    basis="assumed",
    signature=(("resourceSpans", "resource_spans"),),
    fields=_FIELDS,
    # One response may be seen by several spans: of the engine, of a library, of a retry that was
    # sent again. The richest wins.
    merges_lines=True,
    reshape=rows_in,
    sniff=_is_long_line,
    line_limit_bytes=LINE_LIMIT_BYTES,
)

DOCUMENT = replace(
    FORMAT,
    name="otlp_document",
    title="OpenTelemetry spans (OTLP, one document)",
    documents=_document,
    sniff=_is_document,
    line_limit_bytes=0,
)
