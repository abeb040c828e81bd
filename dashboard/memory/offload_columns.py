"""Which columns the tables of the Offload tab show. Definitions come from the questions."""

from dashboard.tables import Column

COST = (
    Column("model", "model", "name", "offload_cost"),
    Column("tier", "tier", "text", "offload_cost"),
    Column("store_seconds", "writing, s", "seconds", "offload_cost"),
    Column("stored_tokens", "tokens written", "count", "offload_cost"),
    Column("loaded_tokens", "tokens brought back", "count", "offload_cost"),
    Column("unread_tokens", "not read (at least)", "count", "offload_cost"),
    Column("stored_bytes", "GiB written", "gib", "offload_cost"),
    Column("loaded_bytes", "GiB brought back", "gib", "offload_cost"),
    Column("dropped_tokens", "tokens dropped", "count", "offload_cost"),
    Column("counted_seconds", "counted over, s", "count", "offload_cost"),
)

SLOWDOWN = (
    Column("model", "model", "name", "offload_ttft"),
    Column("served_requests", "while transfers ran", "count", "offload_ttft"),
    Column("computed_requests", "while none ran", "count", "offload_ttft"),
    Column("difference_seconds", "difference, s", "seconds", "offload_ttft"),
    Column("low_seconds", "from, s", "seconds", "offload_ttft"),
    Column("high_seconds", "to, s", "seconds", "offload_ttft"),
)

STALE_REUSE = (
    Column("severity", "severity", "text", "stale_reuse"),
    Column("reason", "reason", "text", "stale_reuse"),
    Column("model", "model", "name", "stale_reuse"),
    Column("replica", "replica", "name", "stale_reuse"),
    Column("tier", "tier", "text", "stale_reuse"),
    Column("tokens", "tokens", "count", "stale_reuse"),
    Column("requests", "requests", "count", "stale_reuse"),
    Column("written_under", "written under", "name", "stale_reuse"),
    Column("read_under", "reused under", "name", "stale_reuse"),
    Column("first_ts", "first (UTC)", "moment", "stale_reuse"),
    Column("last_ts", "last (UTC)", "moment", "stale_reuse"),
)
