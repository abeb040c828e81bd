"""Which columns each table shows. Definitions come from the questions' headers."""

from collections.abc import Sequence

from dashboard.figures.rows import Rows
from dashboard.tables import Column


def sized(columns: Sequence[Column], rows: Rows) -> list[Column]:
    """The columns without those in GiB that no row knows: bytes need a model's geometry."""
    return [
        column for column in columns
        if column.kind != "gib" or any(row.get(column.source) is not None for row in rows)
    ]  # fmt: skip


REPLICAS = (
    Column("replica", "replica", "name", "replicas"),
    Column("state", "state", "text", meaning="Does its metrics page answer, is anything missing."),
    Column("token_hit_ratio", "token hit ratio", "bar", "replicas"),
    Column("kv_usage_ratio", "KV in use", "bar", "replicas"),
    Column("computed_tokens_per_second", "computed tokens/s", "rate", "replicas"),
    Column("running_requests", "running", "count", "replicas"),
    Column("waiting_requests", "waiting", "count", "replicas"),
    Column("outlier_score", "outlier score", "score", "replicas"),
    Column("resets", "resets", "count", "replicas"),
    Column("prompt_tokens", "prompt tokens", "count", "replicas"),
    Column("cached_tokens", "cached tokens", "count", "replicas"),
    Column("model", "model", "name", "replicas"),
    Column("engine", "engine", "name", "replicas"),
    Column("role", "role", "text", "replicas"),
)

JUDGED = (
    Column("model", "model", "name", "peak_drop"),
    Column("token_hit_ratio", "token hit ratio", "bar", "peak_drop"),
    Column("expected_low_ratio", "expected from", "ratio", "peak_drop"),
    Column("expected_high_ratio", "to", "ratio", "peak_drop"),
    Column("class", "class", "text", "peak_drop"),
    Column("evidence", "evidence", "text", "peak_drop"),
    Column("severity", "severity", "text", "peak_drop"),
    Column("coverage_ratio", "coverage", "ratio", "peak_drop"),
    Column("reported_prompt_tokens", "reported prompt tokens", "count", "peak_drop"),
)

ALERTS = (
    Column("severity", "severity", "text", meaning="page or ticket."),
    Column("alert", "alert", "text", meaning="Its name, also that of its runbook."),
    Column("about", "about", "text", meaning="What it is about."),
    Column("state", "state", "text", meaning="firing, or pending until it has lasted."),
    Column("since", "since (UTC)", "moment", meaning="Since when, where it is known."),
    Column("summary", "summary", "text", meaning="What it says."),
)

MEMORY = (
    Column("replica", "replica", "name", "memory_split"),
    Column("kv_usage_ratio", "KV in use", "bar", "memory_split"),
    Column("running_tokens", "running tokens", "count", "memory_split"),
    Column("cached_tokens", "cached tokens", "count", "memory_split"),
    Column("free_tokens", "free tokens", "count", "memory_split"),
    Column("capacity_tokens", "capacity tokens", "count", "memory_split"),
    Column("running_bytes", "running, GiB", "gib", "memory_split"),
    Column("cached_bytes", "cached, GiB", "gib", "memory_split"),
    Column("free_bytes", "free, GiB", "gib", "memory_split"),
    Column("resident_tokens", "resident tokens", "count", "memory_split"),
    Column("basis", "told by", "text", "memory_split"),
    Column("uncertain", "uncertain", "text", "memory_split"),
    Column("as_of", "as of (UTC)", "moment", "memory_split"),
)

EVICTIONS = (
    Column("replica", "replica", "name", "evictions"),
    Column("tier", "tier", "text", "evictions"),
    Column("evicted_blocks", "evicted blocks", "count", "evictions"),
    Column("turnover_ratio", "turned over a minute", "ratio", "evictions"),
    Column("never_reused_ratio", "never reused", "ratio", "evictions"),
    Column("demoted_blocks", "demoted blocks", "count", "evictions"),
    Column("promoted_blocks", "promoted blocks", "count", "evictions"),
    Column("stored_blocks", "stored blocks", "count", "evictions"),
    Column("reset_blocks", "lost to resets", "count", "evictions"),
    Column("evicted_tokens", "evicted tokens", "count", "evictions"),
    Column("basis", "by", "text", "evictions"),
    Column("uncertain", "uncertain", "text", "evictions"),
)

RESETS = (
    Column("ts", "time (UTC)", "moment", "block_resets"),
    Column("replica", "replica", "name", "block_resets"),
    Column("reason", "reason", "text", "block_resets"),
    Column("tier", "tier", "text", "block_resets"),
    Column("blocks", "blocks lost", "count", "block_resets"),
    Column("basis", "by", "text", "block_resets"),
)

PREFIXES = (
    Column("prefix", "prefix", "text", "resident_prefixes"),
    Column("template", "template", "name", "resident_prefixes"),
    Column("tenant", "tenant", "name", "resident_prefixes"),
    Column("prefix_tokens", "length, tokens", "count", "resident_prefixes"),
    Column("tokens", "held tokens", "count", "resident_prefixes"),
    Column("bytes", "GiB", "gib", "resident_prefixes"),
    Column("share_ratio", "of resident", "ratio", "resident_prefixes"),
    Column("replicas", "replicas", "count", "resident_prefixes"),
    Column("requests", "requests", "count", "resident_prefixes"),
    Column("last_used", "last used (UTC)", "moment", "resident_prefixes"),
    Column("tier", "tier", "text", "resident_prefixes"),
    Column("model", "model", "name", "resident_prefixes"),
)

COPIES = (
    Column("replica_a", "replica", "name", "block_copies"),
    Column("replica_b", "and", "name", "block_copies"),
    Column("overlap_ratio", "overlap", "bar", "block_copies"),
    Column("shared_blocks", "on both, blocks", "count", "block_copies"),
    Column("unique_blocks", "different blocks", "count", "block_copies"),
    Column("tier", "tier", "text", "block_copies"),
    Column("model", "model", "name", "block_copies"),
)

OUTCOMES = (
    Column("outcome", "outcome", "name", "ttft_by_outcome"),
    Column("requests", "requests", "count", "ttft_by_outcome"),
    Column("mean_seconds", "mean, s", "seconds", "ttft_by_outcome"),
    Column("p50_seconds", "p50, s", "seconds", "ttft_by_outcome"),
    Column("p90_seconds", "p90, s", "seconds", "ttft_by_outcome"),
    Column("p95_seconds", "p95, s", "seconds", "ttft_by_outcome"),
    Column("p99_seconds", "p99, s", "seconds", "ttft_by_outcome"),
)

SPEED = (
    Column("replica", "replica", "name", "prefill_speed"),
    Column("model", "model", "name", "prefill_speed"),
    Column("tokens_per_second", "prefill speed, tokens/s (estimated)", "rate", "prefill_speed"),
    Column("fit", "fit", "fit", "prefill_speed"),
    Column("requests", "requests", "count", "prefill_speed"),
    Column("min_computed_tokens", "from computed tokens", "count", "prefill_speed"),
    Column("max_computed_tokens", "to computed tokens", "count", "prefill_speed"),
    Column("basis", "basis", "text", "prefill_speed"),
)

SOURCE_PAIRS = (
    Column("kind", "compared", "text", "source_pairs"),
    Column("first_source", "first", "name", "source_pairs"),
    Column("second_source", "second", "name", "source_pairs"),
    Column("model", "model", "text", "source_pairs"),
    Column("replica", "replica", "text", "source_pairs"),
    Column("shared", "shared", "count", "source_pairs"),
    Column("first_prompt_tokens", "prompt tokens, first", "count", "source_pairs"),
    Column("second_prompt_tokens", "second", "count", "source_pairs"),
    Column("difference_tokens", "difference", "count", "source_pairs"),
    Column("difference_ratio", "of the first", "ratio", "source_pairs"),
    Column("first_cached_tokens", "cached tokens, first", "count", "source_pairs"),
    Column("second_cached_tokens", "second", "count", "source_pairs"),
)

ENGINE_TTFT = (
    Column("replica", "replica", "name", "engine_ttft"),
    Column("requests", "requests", "count", "engine_ttft"),
    Column("mean_seconds", "mean, s", "seconds", "engine_ttft"),
    Column("p50_seconds", "p50, s", "seconds", "engine_ttft"),
    Column("p95_seconds", "p95, s", "seconds", "engine_ttft"),
)


def who(by: str) -> tuple[Column, ...]:
    """The table of the Who page for one dimension of the request log."""
    return (
        Column(by, by, "name", meaning=f"The {by}; “(not given)” where rows do not say."),
        Column("token_hit_ratio", "token hit ratio", "bar", "hit_ratio"),
        Column("coverage_ratio", "coverage", "ratio", "hit_ratio"),
        Column("trend", "ratio over time", "trend",
               meaning="Token hit ratio, 0 to 100 %, over the window. Gaps: no traffic."),
        Column("computed_tokens", "computed tokens", "count", "hit_ratio"),
        Column("computed_share", "share of computed", "ratio",
               meaning="Its computed tokens / computed tokens of all rows of this table."),
        Column("prompt_tokens", "prompt tokens", "count", "hit_ratio"),
        Column("cached_tokens", "cached tokens", "count", "hit_ratio"),
        Column("requests", "requests", "count", "hit_ratio"),
        Column("request_hit_ratio", "request hit ratio", "ratio", "hit_ratio"),
    )  # fmt: skip


def parts(by: str) -> tuple[Column, ...]:
    """Each segment's part of the change, and both windows side by side."""
    return (
        Column(by, by, "name", meaning=f"The {by}; “(not given)” where rows do not say."),
        Column("change_ratio", "part of the change, points", "points", "explain"),
        Column("within_tokens", "by its ratio, tokens", "count", "explain"),
        Column("mix_tokens", "by its share, tokens", "count", "explain"),
        Column("token_hit_ratio_before", "ratio before", "ratio", "explain"),
        Column("token_hit_ratio", "ratio now", "ratio", "explain"),
        Column("traffic_share_ratio_before", "share before", "ratio", "explain"),
        Column("traffic_share_ratio", "share now", "ratio", "explain"),
    )


def engine(by: str) -> tuple[Column, ...]:
    """Engine counters by a dimension engines know."""
    question = "engine_hit_ratio"
    return (
        Column(by, by, "name", meaning=f"The {by}, as the engines name it."),
        Column("token_hit_ratio", "token hit ratio (engine counters)", "bar", question),
        Column("trend", "ratio over time", "trend",
               meaning="Token hit ratio, 0 to 100 %, over the window. Gaps: no samples."),
        Column("computed_tokens", "computed tokens", "count", question),
        Column("prompt_tokens", "prompt tokens", "count", question),
        Column("cached_tokens", "cached tokens", "count", question),
        Column("preemptions", "preemptions", "count", question),
        Column("resets", "resets", "count", question),
        Column("caution", "caution", "text", question),
    )  # fmt: skip
