"""Columns of the tables on the page Week: rows are values of the report (dashboard.report.week).
Most columns mean what the question's column of that name means."""

from dashboard.tables import Column

_OF_REPORT = "As the weekly report says it."

INCIDENTS = (
    Column("ts", "when", "moment", meaning="By the clocks of the report's zone."),
    Column("kind", "what", "text", meaning="A drop, a reset, no data or lost coverage."),
    Column("subject", "where", "name", meaning="Model, replica or source."),
    Column("sentence", "told", "text", meaning=_OF_REPORT),
    Column("severity", "severity", "text", meaning="What the alert of it is: page or ticket."),
)
TTFT_CLASSES = (
    Column("from_tokens", "prompt from", "count", meaning="Shortest prompt of the class, tokens."),
    Column("to_tokens", "to below", "count", meaning="Its upper bound, tokens."),
    Column("hit_p50_seconds", "hit p50, s", "seconds", meaning="Median of the hits."),
    Column("miss_p50_seconds", "miss p50, s", "seconds", meaning="Median of the misses."),
    Column("hit_requests", "hits", "count", meaning="Hits of the class."),
    Column("miss_requests", "misses", "count", meaning="Misses of the class."),
)
OUTCOMES = (
    Column("outcome", "outcome", "text", "ttft_by_outcome"),
    Column("ttft_point", "measured at", "text", "ttft_by_outcome"),
    Column("requests", "requests", "count", "ttft_by_outcome"),
    Column("p50_seconds", "p50, s", "seconds", "ttft_by_outcome"),
    Column("p90_seconds", "p90, s", "seconds", "ttft_by_outcome"),
    Column("p95_seconds", "p95, s", "seconds", "ttft_by_outcome"),
    Column("p99_seconds", "p99, s", "seconds", "ttft_by_outcome"),
)
ENGINE_TTFT = (
    Column("model", "model", "name", "engine_ttft"),
    Column("requests", "requests", "count", "engine_ttft"),
    Column("p50_seconds", "p50, s", "seconds", "engine_ttft"),
    Column("p95_seconds", "p95, s", "seconds", "engine_ttft"),
)
MEMORY = (
    Column("model", "model", "name", "memory_split"),
    Column("replicas", "replicas", "count", "memory_split"),
    Column("capacity_tokens", "capacity tokens", "count", "memory_split"),
    Column("running_tokens", "running", "count", "memory_split"),
    Column("cached_tokens", "cached", "count", "memory_split"),
    Column("free_tokens", "free", "count", "memory_split"),
    Column("kv_usage_ratio", "KV in use", "ratio", "memory_split"),
    Column("basis", "told by", "text", "memory_split"),
)
EVICTIONS = (
    Column("basis", "told by", "text", "evictions"),
    Column("observer", "cache", "text", "evictions"),
    Column("tier", "tier", "text", "evictions"),
    Column("evicted_tokens", "evicted tokens", "count", "evictions"),
    Column("demoted_tokens", "demoted", "count", "evictions"),
    Column("reset_tokens", "reset", "count", "evictions"),
    Column("turnover_ratio", "turned over a minute", "ratio", "evictions"),
    Column("never_reused_ratio", "never reused", "ratio", "evictions"),
)
OFFLOAD = (
    Column("tier", "tier", "text", "offload_verdict"),
    Column("verdict", "verdict", "text", "offload_verdict"),
    Column("sentence", "why", "text", "offload_verdict"),
    Column("stored_bytes", "written, GiB", "gib", meaning="Bytes written to it in the week."),
    Column("loaded_bytes", "read, GiB", "gib", meaning="Bytes read from it in the week."),
)
PRICES = (
    Column("model", "model", "name", "costs"),
    Column("prompt_tokens", "prompt tokens", "count", "costs"),
    Column("priced_ratio", "with a price", "ratio", "costs"),
    Column("input_usd", "input cost, USD", "usd", "costs"),
    Column("write_surcharge_usd", "write surcharge, USD", "usd", "costs"),
    Column("net_saved_usd", "net saving, USD", "usd", "costs"),
)
SOURCES = (
    Column("name", "source", "name", meaning="Name of the stream, or of the engines' counters."),
    Column("details", "known", "text", meaning=_OF_REPORT),
)
INELIGIBLE = (
    Column("reason", "reason", "text", meaning="Why no prefix cache could serve it."),
    Column("requests", "requests", "count", meaning="Requests of the week."),
    Column("prompt_tokens", "prompt tokens", "count", meaning="Their prompt tokens."),
)
REJECTS = (
    Column("source", "source", "name", "rejects"),
    Column("reason", "reason", "text", "rejects"),
    Column("rows", "rows", "count", meaning="Rows that arrived in the week."),
)


def segments(by: str, *, has_log: bool) -> list[Column]:
    """The largest values of a dimension; engine counters know no requests and no coverage."""
    found = [
        Column("name", by, "name", meaning=f"The {by}; the last row may be all others together."),
        Column("token_hit_ratio", "hit ratio", "bar", "hit_ratio"),
        Column("token_hit_ratio_before", "before", "ratio", "movers"),
        Column("prompt_tokens", "prompt tokens", "count", "hit_ratio"),
        Column("cached_tokens", "cached tokens", "count", "hit_ratio"),
    ]
    if has_log:
        found += [
            Column("coverage_ratio", "coverage", "ratio", "hit_ratio"),
            Column("requests", "requests", "count", "hit_ratio"),
        ]
    return found
