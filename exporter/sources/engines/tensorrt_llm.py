"""TensorRT-LLM's metrics (trtllm-serve), of both kinds.

Read against the collector of 2026 (`tensorrt_llm/metrics/collector.py`); 1.1 had only request
counts and latencies, and everything about caching is later.

- Prometheus text at /prometheus/metrics, request counters with `return_perf_metrics: true`,
  block counters with `enable_iter_perf_stats: true`. Three families that are credited at
  different moments and are never added or forced to agree: prompt_cached_tokens when a request
  finishes (the hit ratio), prompt_cache_hit_tokens by tier per iteration (the shares of the
  tiers), and reused/missed blocks at allocation (look-ups, in whole blocks).
- JSON at /metrics: a list of iterations since the last GET *by anybody*, so that two readers take
  them from each other. Poll it only where nothing else does. Reused and missed blocks in
  it are totals since start, which survive that; tokens by tier and completed requests are not,
  and may be too few.
"""

from exporter.sources.engines.mapping import Engine, Fields, Row
from exporter.sources.engines.tensorrt_llm_iterations import RANK, TIERED, read_iterations

_FINISH = "finish/once/tokens"
_LOOKUP = "lookup/attempt/blocks"
_TIERED = ("trtllm_prompt_cache_hit_tokens_total",)
_JSON_TIERED = (TIERED,)
_ITERATIONS = "switch on enable_iter_perf_stats"
_REQUESTS = "switch on return_perf_metrics and read /prometheus/metrics"


def _tier(*names: str) -> dict[str, frozenset[str]]:
    return {"cache_tier": frozenset(names)}


_DEVICE, _HOST, _DISK = _tier("gpu", "device"), _tier("host", "cpu"), _tier("disk")

ROWS = (
    Row(
        "block_size", "gauge", "tokens", ("trtllm_kv_cache_tokens_per_block",),
        "tokens per block", expected=False,
    ),
    Row(
        "block_size", "gauge", "tokens", ("trtllm_json:tokens_per_block",),
        "tokens per block", expected=False,
    ),
    Row(
        "prompt_tokens", "counter", "tokens", ("trtllm_prompt_tokens_total",),
        "prompt length, when the request finishes", provenance=_FINISH, remedy=_REQUESTS,
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("trtllm_prompt_cached_tokens_total",),
        "prompt tokens served from the cache, when the request finishes", provenance=_FINISH,
        remedy=_REQUESTS,
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("trtllm_prompt_cached_tokens_per_request_sum",),
        "the same; there from the first request on, hit or not", provenance=_FINISH,
        remedy=_REQUESTS,
    ),
    Row(
        "cached_device", "counter", "tokens", _TIERED, "hits in device memory, per iteration",
        where=_DEVICE, expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "cached_host", "counter", "tokens", _TIERED, "hits in host memory, per iteration",
        where=_HOST, expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "cached_disk", "counter", "tokens", _TIERED, "hits on disk, per iteration",
        where=_DISK, expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "cached_device", "increase", "tokens", _JSON_TIERED, "hits in device memory",
        where=_DEVICE, expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "cached_host", "increase", "tokens", _JSON_TIERED, "hits in host memory",
        where=_HOST, expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "cached_disk", "increase", "tokens", _JSON_TIERED, "hits on disk",
        where=_DISK, expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "lookup_tokens", "counter", "blocks",
        ("trtllm_kv_cache_iter_reused_blocks_total", "trtllm_kv_cache_iter_missed_blocks_total"),
        "blocks of prompts, reused or not", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_tokens", "counter", "blocks",
        ("trtllm_kv_cache_reused_blocks_total", "trtllm_kv_cache_missed_blocks_total"),
        "the same by an older count", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_tokens", "counter", "blocks", ("trtllm_kv_cache_iter_missed_blocks_total",),
        "while no block was ever reused", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_tokens", "counter", "blocks", ("trtllm_kv_cache_missed_blocks_total",),
        "while no block was ever reused", provenance=_LOOKUP, remedy=_ITERATIONS,
    ),
    Row(
        "lookup_tokens", "counter", "blocks",
        ("trtllm_json:reused_blocks", "trtllm_json:missed_blocks"),
        "blocks of prompts, reused or not, since start", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_hit_tokens", "counter", "blocks", ("trtllm_kv_cache_iter_reused_blocks_total",),
        "of these reused, wholly or in part", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_hit_tokens", "counter", "blocks", ("trtllm_kv_cache_reused_blocks_total",),
        "the same by an older count", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "lookup_hit_tokens", "counter", "blocks", ("trtllm_json:reused_blocks",),
        "of these reused, since start", provenance=_LOOKUP, expected=False,
    ),
    Row(
        "output_tokens", "counter", "tokens", ("trtllm_generation_tokens_total",),
        "generated tokens, when the request finishes", expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("trtllm_request_success_total",),
        "requests finished, whatever the reason", expected=False,
    ),
    Row(
        "finished_requests", "increase", "requests", ("trtllm_json:completed_requests",),
        "requests finished", expected=False,
    ),
    Row(
        "offload_bytes/store/host", "counter", "bytes", ("trtllm_kv_cache_offload_bytes_total",),
        "copied from the device to the host", expected=False,
    ),
    Row(
        "offload_bytes/load/host", "counter", "bytes", ("trtllm_kv_cache_onboard_bytes_total",),
        "copied from the host to the device", expected=False,
    ),
    Row(
        "ttft_buckets", "histogram", "seconds", ("trtllm_time_to_first_token_seconds",),
        "arrival to first token", expected=False,
    ),
    Row(
        "prefill_seconds", "counter", "seconds", ("trtllm_request_prefill_time_seconds_sum",),
        "first scheduled to first token", expected=False,
    ),
    Row(
        "queue_seconds", "counter", "seconds", ("trtllm_request_queue_time_seconds_sum",),
        "time in the queue", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("trtllm_num_requests_running",), "being served",
        expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("trtllm_json:running",), "being served",
        expected=False,
    ),
    Row(
        "waiting_requests", "gauge", "requests", ("trtllm_num_requests_waiting",), "queued",
        expected=False,
    ),
    Row(
        "waiting_requests", "gauge", "requests", ("trtllm_json:waiting",), "queued",
        expected=False,
    ),
    Row(
        "kv_usage_ratio", "gauge", "ratio", ("trtllm_kv_cache_utilization",),
        "share of device blocks in use", expected=False,
    ),
    Row(
        "kv_running_tokens", "gauge", "blocks", ("trtllm_kv_cache_used_blocks",),
        "blocks in use", expected=False,
    ),
    Row(
        "kv_running_tokens", "gauge", "blocks", ("trtllm_json:used_blocks",), "blocks in use",
        expected=False,
    ),
    Row(
        "kv_capacity_tokens", "gauge", "blocks", ("trtllm_kv_cache_max_blocks",),
        "blocks that fit", expected=False,
    ),
    Row(
        "kv_capacity_tokens", "gauge", "blocks", ("trtllm_json:max_blocks",), "blocks that fit",
        expected=False,
    ),
    Row(
        "caching_enabled", "info", "yes_or_no", ("trtllm_kv_cache_config_info",),
        "whether block reuse is on", label="enable_block_reuse", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "trtllm_kv_cache_hit_rate": "a ratio since start, warm-up included",
    "trtllm_kv_cache_iter_reuse_rate": "the last iteration's ratio",
    "trtllm_kv_cache_iter_full_reused_blocks": "a part of the reused blocks",
    "trtllm_kv_cache_iter_partial_reused_blocks": "a part of the reused blocks",
    "trtllm_kv_cache_free_blocks": "free ones may hold reusable content",
    "trtllm_kv_cache_host_utilization": "a share of a pool of unknown size",
    "trtllm_kv_cache_gen_alloc_blocks": "blocks for generated tokens",
    "trtllm_kv_cache_intra_device_copy_bytes": "within the device",
    "trtllm_kv_cache_disk_prefetch_blocks": "from disk to host, ahead of need",
    "trtllm_num_requests_completed": "requests by another family",
    "trtllm_": "latencies, batching and memory of the process",
}


def _settle(fields: Fields, _names: frozenset[str]) -> None:
    """A counter exists from its first increase on: blocks missed and none reused are 0 reused."""
    if isinstance(fields.get("lookup_tokens"), int):
        fields.setdefault("lookup_hit_tokens", 0)


TENSORRT_LLM = Engine(
    name="tensorrt_llm",
    title="TensorRT-LLM (trtllm-serve)",
    versions="the collector of 2026; 1.1",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("trtllm_", "kvCacheStats"),
    rank_label=RANK,
    role_label="engine_type",
    read=read_iterations,
    settle=_settle,
)
