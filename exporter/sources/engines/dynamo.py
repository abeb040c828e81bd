"""NVIDIA Dynamo's own metrics: its frontend and router, and its block manager (KVBM).

Read against 1.6.1. Two tables, because they are two observers:

- `dynamo` (a router): the frontend counts prompt tokens of every request and cached tokens of
  those whose engine reported them. Where some did not, the two belong to different requests,
  and cached tokens are unknown. Router and frontend serve the same counters under two
  prefixes; where both are on a page the frontend's are read.
- `dynamo_kvbm` (a KV store): tokens matched outside the device. It counts no look-ups, so the
  only denominator is the prompt tokens of the engine on the same target; without them there is
  an amount and no ratio.

A worker's page (DYN_SYSTEM_PORT) also repeats the engine's own `vllm:`, `sglang:`, `trtllm_` or
`lmcache:` series with added labels (`dynamo_component`): those belong to the engine's table.
"""

from exporter.sources.engines.mapping import Engine, Row, leave_out_if_partly_reported

_FINISH = "finish/once/tokens"
_LOOKUP = "lookup/attempt/tokens"

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("dynamo_frontend_input_sequence_tokens_sum",),
        "prompt length of every request", provenance=_FINISH,
    ),
    Row(
        "prompt_tokens", "counter", "tokens",
        ("dynamo_component_router_input_sequence_tokens_sum",),
        "the same on a router of its own", provenance=_FINISH,
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("dynamo_frontend_cached_tokens_sum",),
        "cached tokens the engines reported with their answers", provenance=_FINISH,
        expected=False, remedy="switch on the usage details of the engines",
    ),
    Row(
        "finished_requests", "counter", "requests",
        ("dynamo_frontend_input_sequence_tokens_count",), "requests with a prompt length",
        expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests",
        ("dynamo_component_router_input_sequence_tokens_count",),
        "the same on a router of its own", expected=False,
    ),
    Row(
        "aside/reported_requests", "counter", "requests", ("dynamo_frontend_cached_tokens_count",),
        "requests whose engine reported cached tokens, hit or not", expected=False,
    ),
    Row(
        "lookup_tokens", "counter", "tokens", ("dynamo_frontend_input_sequence_tokens_sum",),
        "prompt length of every request, against which the router predicts",
        provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_tokens", "counter", "tokens",
        ("dynamo_component_router_input_sequence_tokens_sum",),
        "the same on a router of its own", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens",
        ("dynamo_frontend_kv_selected_cached_prefix_tokens_total",),
        "the prefix the chosen worker held by the router's index: a prediction",
        provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens",
        ("dynamo_component_router_kv_selected_cached_prefix_tokens_total",),
        "the same on a router of its own", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "ttft_buckets", "histogram", "seconds", ("dynamo_frontend_time_to_first_token_seconds",),
        "from the frontend's side", expected=False,
    ),
    Row(
        "waiting_requests", "gauge", "requests", ("dynamo_frontend_queued_requests",), "queued",
        expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "dynamo_frontend_kv_hit_rate": "a distribution of predicted ratios",
    "dynamo_frontend_kv_best_eligible_cached_prefix_tokens": "what another choice could have hit",
    "dynamo_component_router_kv_best_eligible_": "what another choice could have hit",
    "dynamo_frontend_kv_worker_reused_tokens": "the same cached tokens, counted a second time",
    "dynamo_component_router_kv_worker_reused_tokens": "the same, on a router of its own",
    "dynamo_component_router_kv_hit_rate": "a distribution of predicted ratios",
    "dynamo_frontend_shared_cache_": "shares of blocks per request, not tokens",
    "dynamo_frontend_overlap_blocks_lost": "blocks of a size other pages tell",
    "dynamo_frontend_tokenizer_cache_": "tokens whose text was not tokenised again: not KV",
    "dynamo_component_kv_cache_hit_rate": "the engine's own gauge; its counters are read",
    "dynamo_component_gpu_cache_usage_percent": "the engine's own gauge, repeated",
    "dynamo_component_total_blocks": "the engine's own constant, repeated",
    "dynamo_component_kv_publisher_": "the health of the event pipeline",
    "dynamo_component_kv_cache_events_applied": "the health of the event pipeline",
}


DYNAMO = Engine(
    name="dynamo",
    title="NVIDIA Dynamo frontend and router",
    versions="1.6.1",
    observer="router",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("dynamo_frontend_", "dynamo_component_router_"),
    model_labels=("model", "model_name"),
    settle=leave_out_if_partly_reported,
)

KVBM_ROWS = (
    Row(
        "lookup_hit_tokens", "counter", "tokens", ("dynamo_kvbm_matched_tokens_total",),
        "tokens found in host memory, on disk or in object storage",
        provenance="lookup/attempt/tokens",
    ),
    Row(
        "offload_bytes/store/remote", "counter", "bytes",
        ("dynamo_kvbm_offload_bytes_object_total",), "written to object storage", expected=False,
    ),
    Row(
        "offload_bytes/load/remote", "counter", "bytes",
        ("dynamo_kvbm_onboard_bytes_object_total",), "read from object storage", expected=False,
    ),
)  # fmt: skip

KVBM_SKIPPED = {
    "dynamo_kvbm_offload_blocks_": "blocks of a size this page does not tell",
    "dynamo_kvbm_onboard_blocks_": "blocks of a size this page does not tell",
    "dynamo_kvbm_host_cache_hit_rate": "a sliding window of its own",
    "dynamo_kvbm_disk_cache_hit_rate": "a sliding window of its own",
    "dynamo_kvbm_object_": "a sliding window of its own, and failures",
}

KVBM = Engine(
    name="dynamo_kvbm",
    title="NVIDIA Dynamo block manager (KVBM)",
    versions="1.6.1",
    observer="kv_store",
    rows=KVBM_ROWS,
    skipped=KVBM_SKIPPED,
    marks=("dynamo_kvbm_",),
    model_labels=("model", "model_name"),
)
