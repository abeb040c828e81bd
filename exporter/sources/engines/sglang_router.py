"""The metric page of sglang-router (`--prometheus-port`, 29000).

Recorded from 0.3.2 (`smg_*`); names of 0.1.9 and 0.2.2 (`sgl_router_*`) read from the packages.
Until 0.2 the cache-aware policy counted requests it sent to a replica whose tree matched; from 0.3
on it counts only which policy chose, not whether a prefix matched. Neither says what the engine
reused: a match in the router's tree of texts is a prediction, and in requests, not tokens.
"""

from exporter.sources.engines.mapping import Engine, Row

_ONCE = "lookup/once/requests"

ROWS = (
    Row(
        "lookup_count", "counter", "requests",
        ("sgl_router_cache_hits_total", "sgl_router_cache_misses_total"),
        "requests the cache-aware policy placed", until="0.2.2", expected=False, provenance=_ONCE,
    ),
    Row(
        "hit_count", "counter", "requests", ("sgl_router_cache_hits_total",),
        "of these sent where the tree matched", until="0.2.2", expected=False, provenance=_ONCE,
    ),
    Row(
        "finished_requests", "counter", "requests", ("smg_router_requests_total",),
        "requests routed", since="0.3.2", expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("sgl_router_requests_total",),
        "the name until 0.2", until="0.2.2", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("smg_worker_requests_active",),
        "under way at all workers", since="0.3.2", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("sgl_router_running_requests",),
        "the name until 0.2", until="0.2.2", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "smg_worker_selection_total": "which policy chose, not whether a prefix matched",
    "smg_": "HTTP, health and circuit breakers, not reuse",
    "sgl_router_tree_size": "the router's own tree of texts",
    "sgl_router_": "load and health, not reuse",
}

SGLANG_ROUTER = Engine(
    name="sglang_router",
    title="sglang-router",
    versions="0.1.9, 0.2.2, 0.3.2",
    recorded="0.3.2",
    observer="router",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("smg_", "sgl_router_"),
    model_labels=("model",),
    # There before the first request, unlike everything above.
    version_marks={"smg_worker_pool_size": ("0.3.2", None)},
    notice="from 0.3 on the router does not tell whether a prefix matched: scrape the engines",
)
