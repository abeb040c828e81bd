"""The metric page of vllm-router (`--prometheus-port`, 29000).

Recorded from 0.1.17. The cache-aware policy needs the tokens of a prompt and asks a replica to
render them; where the replica refuses (vLLM answers 403 unless started with
--enable-scale-out), the router balances by load and says so nowhere above log level debug. Only
one counter shows it, outcome `missing_tokens`: those requests were not looked up at all, which
is neither a hit nor a miss. What it calls a hit is a match in its own tree, in requests: what
the engine reused, the engine tells.
"""

from exporter.sources.engines.mapping import Engine, Row

_ONCE = "lookup/once/requests"
_DECISIONS = ("vllm_router_prefix_routing_decisions_total",)
_OLD = ("vllm_router_cache_hits_total", "vllm_router_cache_misses_total")


def _outcome(*values: str) -> dict[str, frozenset[str]]:
    return {"outcome": frozenset(values)}


ROWS = (
    Row(
        "lookup_count", "counter", "requests", _DECISIONS,
        "requests whose prefix was looked up in the router's tree",
        where=_outcome("prefix_hit", "prefix_miss"), expected=False, provenance=_ONCE,
    ),
    Row(
        "lookup_count", "counter", "requests", _OLD,
        "the same by older names", expected=False, provenance=_ONCE,
    ),
    Row(
        "hit_count", "counter", "requests", _DECISIONS,
        "of these sent to a worker that has served a matching prefix",
        where=_outcome("prefix_hit"), expected=False, provenance=_ONCE,
    ),
    Row(
        "hit_count", "counter", "requests", _OLD[:1],
        "the same by older names", expected=False, provenance=_ONCE,
    ),
    Row(
        "skipped_count", "counter", "requests", _DECISIONS,
        "requests placed by load because their tokens could not be had (is vLLM running with "
        "--enable-scale-out?)",
        where=_outcome("missing_tokens"), expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("vllm_router_requests_total",),
        "requests routed", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("vllm_router_running_requests",),
        "under way at all workers", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "vllm_router_kv_routing_inputs_total": "two per request: how its tokens were asked for",
    "vllm_router_policy_decisions_total": "which worker was chosen, not why",
    "vllm_router_agent_aware_": "estimates of another policy",
    "vllm_router_": "load, health and circuit breakers, not reuse",
}

VLLM_ROUTER = Engine(
    name="vllm_router",
    title="vllm-router",
    versions="0.1.17",
    recorded="0.1.17",
    observer="router",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("vllm_router_",),
    # There before the first request, unlike everything above.
    version_marks={"vllm_router_active_workers": (None, None)},
)
