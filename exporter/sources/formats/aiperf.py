"""AIPerf's records, `profile_export.jsonl`: one request a line, warm-up included.

Who emits it: `aiperf profile --export-level records` (and raw). Token counts are the server's
own where it stated usage; else the client's tokeniser counted the prompt, which is flagged and
cannot be set against cached tokens of the server. Every metric names its unit. Rows of the
warm-up phase are set aside. Versions read: AIPerf 0.13.0.
"""

from collections.abc import Iterable

from exporter.sources.formats.documents import inner, kept, number
from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    case,
    seconds,
    status,
    text,
    time,
    tokens,
)
from exporter.sources.formats.reshape import one_object

_METADATA = (
    "x_request_id", "x_correlation_id", "conversation_id", "turn_index", "request_start_ns",
    "benchmark_phase", "was_cancelled",
)  # fmt: skip
_COUNTS = (
    "usage_prompt_tokens", "usage_prompt_cache_read_tokens", "usage_prompt_cache_write_tokens",
    "usage_completion_tokens", "input_sequence_length", "output_sequence_length",
)  # fmt: skip
_SPANS = ("time_to_first_token", "request_latency")
_SECONDS_PER = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def _rows(line: str) -> Iterable[Row]:
    record = one_object(line)
    metrics = inner(record, "metrics")
    row: dict[str, object] = kept(inner(record, "metadata"), _METADATA)
    row |= {name: inner(metrics, name).get("value") for name in _COUNTS}
    notes = [note for name in _SPANS if (note := _place_span(row, name, inner(metrics, name)))]
    if row["usage_prompt_tokens"] is None and row["input_sequence_length"] is not None:
        notes.append("client_token_count")
    row["note"] = notes[0] if notes else None
    row["failed"] = record.get("error") is not None
    turn = number(row.get("turn_index"))
    row["turn"] = None if turn is None else turn + 1
    return [row]


def _place_span(row: dict[str, object], name: str, metric: dict[str, object]) -> str | None:
    """Puts a span into the row in seconds; says so where its unit is not known."""
    value, unit = number(metric.get("value")), str(metric.get("unit"))
    if value is None:
        return None
    if unit not in _SECONDS_PER:
        return "unknown_unit"
    row[name] = value * _SECONDS_PER[unit]
    return None


FORMAT = LogFormat(
    name="aiperf",
    title="AIPerf records (profile_export.jsonl)",
    versions="AIPerf 0.13.0",
    basis="inclusive",
    signature=(
        ("metadata.request_start_ns",),
        ("metadata.benchmark_phase", "metadata.session_num"),
        ("metrics",),
    ),
    fields=(
        text("skip", cases=(case("warmup", "benchmark_phase", "warmup"),)),
        text("note", "note"),
        time("ts", "request_start_ns"),
        text("request_id", "x_request_id"),
        text("session", "x_correlation_id", "conversation_id"),
        tokens("turn", "turn"),
        tokens("prompt_tokens", "usage_prompt_tokens", "input_sequence_length"),
        tokens("cached_tokens", "usage_prompt_cache_read_tokens"),
        tokens("cache_write_tokens", "usage_prompt_cache_write_tokens"),
        tokens("output_tokens", "usage_completion_tokens", "output_sequence_length"),
        seconds("ttft_seconds", "time_to_first_token"),
        seconds("e2e_seconds", "request_latency"),
        status(cases=(case("cancelled", "was_cancelled", "true"), case("error", "failed", "true"))),
    ),
    constants=(("ttft_point", "client"),),
    reshape=_rows,
)
