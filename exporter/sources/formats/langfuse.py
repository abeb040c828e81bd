"""Langfuse observations: one JSON object a generation, from the API or a blob export.

Who emits it: Langfuse's public API (camelCase) and its blob-storage exports (snake_case).
`usageDetails` holds buckets with free names that are meant to be disjoint, so the prompt is the
sum of all input buckets; where the total shows that an SDK sent an inclusive input, that wins.
Other types than generations and embeddings are spans and repeat what their children used.
Times between moments are taken from the moments: exports differ in the unit of their own.
Version read: commit 6275144 (source and documentation).
"""

from collections.abc import Iterable, Mapping

from exporter.sources.formats.mapping import (
    LogFormat,
    Row,
    case,
    seconds,
    status,
    text,
    time,
    tokens,
    unless,
)
from exporter.sources.formats.reshape import one_object
from exporter.sources.formats.row_values import (
    WORKED_OUT,
    count,
    open_texts,
    seconds_between,
)

# The same bucket under names of different SDKs; a row may have several of them.
_READ = ("input_cached_tokens", "cache_read_input_tokens", "input_cache_read", "cached_tokens")
_WRITTEN = ("input_cache_creation", "cache_creation_input_tokens", "input_cache_write")
_WRITTEN_5M = ("input_cache_creation_5m",)
_WRITTEN_1H = ("input_cache_creation_1h",)
_CACHE = {*_READ, *_WRITTEN, *_WRITTEN_5M, *_WRITTEN_1H}


def _counted(line: str) -> Iterable[Row]:
    row = one_object(line)
    open_texts(row, "usageDetails", "usage_details", "usage", "metadata")
    usage = row.get("usageDetails") or row.get("usage_details") or row.get("usage")
    row[WORKED_OUT] = {
        **(_buckets(usage) if isinstance(usage, dict) else {}),
        "e2e_seconds": _span(row, "endTime", "end_time"),
        "ttft_seconds": _span(row, "completionStartTime", "completion_start_time"),
    }
    yield row


def _span(row: Mapping[str, object], *ends: str) -> float | None:
    start = row.get("startTime") or row.get("start_time")
    return seconds_between(start, next((row[name] for name in ends if row.get(name)), None))


def _buckets(usage: Mapping[str, object]) -> dict[str, int | None]:
    """Counts of a usage object, each bucket once."""
    plain = [
        count(value)
        for name, value in usage.items()
        if name.startswith("input") and name not in _CACHE
    ]
    five_minutes, hour = _first(usage, _WRITTEN_5M), _first(usage, _WRITTEN_1H)
    by_lifetime = (five_minutes or 0) + (hour or 0)
    # Beside its parts a total may stand for all writes, or for those of no known lifetime.
    written = _first(usage, _WRITTEN)
    if by_lifetime and (written is None or written < by_lifetime):
        written = (written or 0) + by_lifetime
    known = [value for value in plain if value is not None]
    return {
        "prompt_tokens": sum(known) if known else None,
        "cached_tokens": _first(usage, _READ),
        "cache_write_tokens": written,
        "cache_write_5m": five_minutes,
        "cache_write_1h": hour,
        "output_tokens": count(usage.get("output")),
        "total_tokens": count(usage.get("total")),
    }


def _first(usage: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    found = (count(usage.get(name)) for name in names)
    return next((value for value in found if value is not None), None)


def _worked_out(*names: str) -> tuple[str, ...]:
    return tuple(f"{WORKED_OUT}.{name}" for name in names)


_COUNTS = (
    "prompt_tokens", "cached_tokens", "cache_write_tokens", "cache_write_5m", "cache_write_1h",
    "output_tokens", "total_tokens",
)  # fmt: skip

FORMAT = LogFormat(
    name="langfuse",
    title="Langfuse observations",
    versions="Langfuse 6275144",
    basis="exclusive",
    signature=(
        ("traceId", "trace_id"),
        ("usageDetails", "usage_details", "promptName", "prompt_name", "parentObservationId"),
        ("type",),
        ("startTime", "start_time"),
    ),
    fields=(
        time("ts", "startTime", "start_time"),
        text("request_id", "id"),
        text("trace_id", "traceId", "trace_id"),
        text("session", "sessionId", "session_id"),
        text("model", "model", "providedModelName", "provided_model_name"),
        text("route", "name"),
        text("template", "promptName", "prompt_name"),
        text("template_version", "promptVersion", "prompt_version"),
        text("tenant", "userId", "user_id"),
        *(tokens(name, *_worked_out(name)) for name in _COUNTS),
        seconds("ttft_seconds", *_worked_out("ttft_seconds"), "timeToFirstToken"),
        seconds("e2e_seconds", *_worked_out("e2e_seconds"), "latency"),
        status(cases=(case("error", "level", "ERROR"),)),
        text("ineligible_reason", cases=(case("no_generation", "type", "EMBEDDING"),)),
        text("skip", cases=(unless("not_a_generation", "type", "GENERATION", "EMBEDDING"),)),
    ),
    constants=(("ttft_point", "client"),),
    merges_lines=True,
    reshape=_counted,
)
