"""The metric page of vLLM production-stack's router, at /metrics.

Read from source at two commits of 2026. It re-exports engines' numbers as *gauges* under vLLM's own
names with a `server` label (`vllm:gpu_prefix_cache_hits_total{server}`). They are copies, of names
vLLM dropped with 0.12, so that they stand at 0 since: they are never engine data and are not read.
What is read are the router's own counters, whose names no engine has.
"""

from exporter.sources.engines.mapping import Engine, Row

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("vllm:input_tokens_total",),
        "prompt tokens of the answers' usage; cached ones are not counted",
        provenance="finish/once/tokens", expected=False,
    ),
    Row(
        "output_tokens", "counter", "tokens", ("vllm:output_tokens_total",),
        "generated tokens of the answers' usage", expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("vllm:num_incoming_requests_total",),
        "requests that came in, answered or not", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("vllm:num_prefill_requests",
         "vllm:num_decoding_requests"),
        "under way at all servers", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "vllm:gpu_prefix_cache_": "copies of an engine's counters as gauges; 0 since vLLM 0.12",
    "vllm:num_requests_": "copies of an engine's gauges",
    "vllm:routing_decisions_total": "which algorithm chose, not whether a prefix matched",
    "vllm:current_qps": "a rate of its own",
    "vllm:avg_": "averages of its own",
    "vllm:healthy_pods_total": "health, not reuse",
    "vllm:request_latency_seconds": "no figure uses the router's end-to-end time",
    "vllm:request_errors_total": "errors, not reuse",
}

PRODUCTION_STACK = Engine(
    name="production_stack",
    title="vLLM production-stack router",
    versions="commits of 2026",
    observer="router",
    rows=ROWS,
    skipped=SKIPPED,
    marks=('server="',),
    model_labels=("model",),
    notice="the router's cache metrics are copies of engine numbers: scrape the engines",
)
