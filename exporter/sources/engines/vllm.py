"""vLLM's metric page, served by its API server at /metrics.

Read against releases 0.8.0 to 0.33.0; `since` is the first checked release that has a metric.
Two families count hits and are never mixed: prompt_tokens* when a request's first token is
out (each prompt once), prefix_cache_* at look-up (up to 0.26 once per attempt, so under
memory pressure more than once). An `engine` label tells data-parallel ranks apart.

The usage gauge is what running requests hold. Cached blocks that wait for reuse count as free
in it, so cached and free tokens stay unknown here. There is no eviction counter: the block
histograms are a sample whose rate the page does not tell, so their counts are no evictions.
The V0 engine (to 0.9) has only gauges of its hit rate, which are never read.
"""

from exporter.sources.engines import vllm_offload
from exporter.sources.engines.mapping import Engine, Fields, Row


def _sources(*names: str) -> dict[str, frozenset[str]]:
    return {"source": frozenset(names)}


_BY_TIER = ("vllm:prompt_tokens_cached_by_source_total",)
_BY_SOURCE = ("vllm:prompt_tokens_by_source_total",)
_CONFIG = ("vllm:cache_config_info",)
_LOOKED_UP = ("vllm:prefix_cache_queries_total",)
_HIT = ("vllm:prefix_cache_hits_total",)
_RECOMPUTED = "vllm:prompt_tokens_recomputed_total"
_V0 = "the V0 engine has only a gauge of it: start with VLLM_USE_V1=1, or upgrade"
_SAMPLED = "start with --kv-cache-metrics"

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("vllm:prompt_tokens_total",),
        "prompt length, once, when the request's first output is processed",
        provenance="finish/once/tokens",
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("vllm:prompt_tokens_cached_total",),
        "prompt tokens served from the device or through a connector, first prefill only",
        since="0.16.0", provenance="finish/once/tokens",
    ),
    Row(
        "cached_device", "counter", "tokens", _BY_TIER,
        "hits in device memory, at admission",
        where=_sources("device"), since="0.32.0", expected=False,
        provenance="lookup/once/tokens",
    ),
    Row(
        "cached_device", "counter", "tokens", _BY_SOURCE,
        "hits in device memory (up to 0.19.1 with the one recomputed token of a full hit)",
        where=_sources("local_cache_hit"), since="0.16.0", expected=False,
        provenance="finish/once/tokens",
    ),
    Row(
        "cached_host", "counter", "tokens", _BY_TIER,
        "hits the connector served from host memory",
        where=_sources("host"), since="0.32.0", expected=False,
        provenance="lookup/once/tokens",
    ),
    Row(
        "cached_disk", "counter", "tokens", _BY_TIER,
        "hits the connector served from disk",
        where=_sources("disk"), since="0.32.0", expected=False,
        provenance="lookup/once/tokens",
    ),
    Row(
        "cached_remote", "counter", "tokens", _BY_TIER,
        "hits from peers, and those whose connector does not say from where",
        where=_sources("p2p", "external_unspecified"), since="0.32.0", expected=False,
        provenance="lookup/once/tokens",
    ),
    Row(
        "cached_remote", "counter", "tokens", _BY_SOURCE,
        "hits through any connector: before 0.32 the tier behind it is not told",
        where=_sources("external_kv_transfer"), since="0.16.0", expected=False,
        provenance="finish/once/tokens",
    ),
    Row(
        "lookup_tokens", "counter", "tokens", _LOOKED_UP, "tokens looked up locally, at admission",
        since="0.27.1", proven=True, provenance="lookup/once/tokens",
    ),
    Row(
        "lookup_tokens", "counter", "tokens", _LOOKED_UP,
        "the same; up to 0.26 once per attempt to admit a request",
        since="0.9.2", provenance="lookup/attempt/tokens",
    ),
    Row(
        "lookup_tokens", "counter", "tokens", ("vllm:gpu_prefix_cache_queries_total",),
        "the name until 0.11", until="0.11.2", remedy=_V0, provenance="lookup/attempt/tokens",
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", _HIT, "of these found in device memory",
        since="0.27.1", proven=True, provenance="lookup/once/tokens",
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", _HIT,
        "the same; up to 0.26 once per attempt to admit a request",
        since="0.9.2", provenance="lookup/attempt/tokens",
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", ("vllm:gpu_prefix_cache_hits_total",),
        "the name until 0.11", until="0.11.2", remedy=_V0, provenance="lookup/attempt/tokens",
    ),
    Row(
        "external_lookup_tokens", "counter", "tokens",
        ("vllm:external_prefix_cache_queries_total",),
        "tokens asked of a connector: what the local look-up left (before 0.16 all of them, "
        "which `settle` corrects); look-ups that skip the local cache are in here only",
        since="0.11.2", expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "external_hit_tokens", "counter", "tokens", ("vllm:external_prefix_cache_hits_total",),
        "tokens the connector will load",
        since="0.11.2", expected=False, provenance="lookup/attempt/tokens",
    ),
    Row(
        "output_tokens", "counter", "tokens", ("vllm:generation_tokens_total",),
        "generated tokens, as they come",
    ),
    Row(
        "finished_requests", "counter", "requests", ("vllm:request_success_total",),
        "requests finished, whatever the reason",
    ),
    Row(
        "preemptions", "counter", "events", ("vllm:num_preemptions_total",),
        "requests thrown back to the queue for lack of KV memory",
    ),
    Row(
        "ttft_buckets", "histogram", "seconds", ("vllm:time_to_first_token_seconds",),
        "arrival at the API server to first output; no hit or miss label exists",
    ),
    Row(
        "block_lifetime_buckets", "histogram", "seconds", ("vllm:kv_block_lifetime_seconds",),
        "allocation to re-allocation of sampled blocks, never-cached ones included",
        since="0.12.0", expected=False, remedy=_SAMPLED,
    ),
    Row(
        "block_idle_buckets", "histogram", "seconds",
        ("vllm:kv_block_idle_before_evict_seconds",),
        "last use to re-allocation of the same blocks",
        since="0.12.0", expected=False, remedy=_SAMPLED,
    ),
    Row(
        "block_reuse_gap_buckets", "histogram", "seconds", ("vllm:kv_block_reuse_gap_seconds",),
        "time between two uses, of the last four of each of these blocks",
        since="0.12.0", expected=False, remedy=_SAMPLED,
    ),
    Row(
        "prefill_seconds", "counter", "seconds", ("vllm:request_prefill_time_seconds_sum",),
        "first scheduled to first token, preemptions included, per finished request",
        expected=False,
    ),
    Row(
        "queue_seconds", "counter", "seconds", ("vllm:request_queue_time_seconds_sum",),
        "queued to first scheduled, per finished request",
        expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("vllm:num_requests_running",), "being served",
    ),
    Row(
        "waiting_requests", "gauge", "requests", ("vllm:num_requests_waiting",), "queued",
    ),
    Row(
        "kv_usage_ratio", "gauge", "ratio", ("vllm:kv_cache_usage_perc",),
        "share of KV blocks held by running requests; reusable cached blocks count as free",
        since="0.9.2",
    ),
    Row(
        "kv_usage_ratio", "gauge", "ratio", ("vllm:gpu_cache_usage_perc",),
        "the name until 0.11", until="0.11.2",
    ),
    Row(
        "block_size", "info", "tokens", _CONFIG, "tokens per block", label="block_size",
    ),
    Row(
        "kv_capacity_tokens", "info", "tokens", _CONFIG,
        "tokens that fit; the only right figure for hybrid models",
        label="kv_cache_size_tokens", since="0.32.0",
    ),
    Row(
        "kv_capacity_tokens", "info", "blocks", _CONFIG,
        "blocks, less the null block no request can use",
        label="num_gpu_blocks", less=1,
    ),
    Row(
        "caching_enabled", "info", "yes_or_no", _CONFIG,
        "whether prefix caching is on", label="enable_prefix_caching",
    ),
    Row(
        "awake", "gauge", "yes_or_no", ("vllm:engine_sleep_state",),
        "no while the engine sleeps: then its KV memory is given back",
        where={"sleep_state": frozenset({"awake"})}, expected=False,
    ),
    *vllm_offload.ROWS,
)  # fmt: skip

SKIPPED = {
    "vllm:gpu_prefix_cache_hit_rate": "a rolling gauge: rates come from counters only",
    "vllm:cpu_prefix_cache_hit_rate": "a rolling gauge: rates come from counters only",
    "vllm:request_prefill_kv_computed_tokens": "prompt less cached, per finished request",
    "vllm:request_": "per-request distributions no figure uses",
    "vllm:iteration_tokens_total": "a histogram, wrong with several API servers",
    "vllm:mm_cache_": "the processor cache of images, not KV",
    "vllm:num_requests_waiting_by_reason": "parts of num_requests_waiting",
    "vllm:num_requests_kv_fetch_by_stage": "loads in progress; no figure uses it",
    "vllm:admission_rejections": "not about caching",
    "vllm:estimated_": "estimated work, not measured",
    "vllm:inter_token_latency_seconds": "decoding, not prefill",
    "vllm:e2e_request_latency_seconds": "no figure uses the engine's end-to-end time",
    "vllm:lora_requests_info": "names of adapters, no figure uses them",
    "vllm:cpu_cache_usage_perc": "swap space of the V0 engine",
    "vllm:num_requests_swapped": "swap space of the V0 engine",
    "vllm:time_in_queue_requests": "queue time of the V0 engine, no longer served",
    "vllm:time_per_output_token_seconds": "decoding, not prefill",
    "vllm:spec_decode_": "speculative decoding, not caching",
    **vllm_offload.SKIPPED,
}

# Series that tell the version and nothing else.
VERSION_MARKS: dict[str, tuple[str | None, str | None]] = {
    "vllm:gpu_prefix_cache_hit_rate": (None, "0.9.0"),
    "vllm:cpu_cache_usage_perc": (None, "0.9.0"),
    "vllm:num_requests_swapped": (None, "0.9.0"),
    "vllm:inter_token_latency_seconds_count": ("0.10.2", None),
    "vllm:time_per_output_token_seconds_count": (None, "0.14.1"),
    "vllm:request_prefill_kv_computed_tokens_count": ("0.13.0", None),
    _BY_SOURCE[0]: ("0.16.0", None),
    _RECOMPUTED: ("0.16.0", "0.19.1"),
    "vllm:num_requests_waiting_by_reason": ("0.20.2", None),
    "vllm:request_num_preemptions_count": ("0.30.0", None),
    _BY_TIER[0]: ("0.32.0", None),
}


def _settle(fields: Fields, names: frozenset[str]) -> None:
    """Running tokens from the usage gauge, and what older versions counted otherwise.

    Before 0.16 the connector's queries were whole prompts, later only what the local look-up
    left: that meaning is kept. Up to 0.19 the local hits by source include the one token of a
    full hit that is computed again: the rest of the cached tokens is right.
    """
    usage, capacity = fields.get("kv_usage_ratio"), fields.get("kv_capacity_tokens")
    if isinstance(usage, float) and isinstance(capacity, int):
        fields["kv_running_tokens"] = round(usage * capacity)
    if fields.get("awake") is False:
        fields.update(kv_running_tokens=0, kv_cached_tokens=0, kv_free_tokens=capacity)
    looked_up, hit = fields.get("lookup_tokens"), fields.get("lookup_hit_tokens")
    whole_prompts = _BY_SOURCE[0] not in names
    asked = fields.get("external_lookup_tokens")
    if whole_prompts and asked and isinstance(looked_up, int) and isinstance(hit, int):
        fields["external_lookup_tokens"] = max(looked_up - hit, 0)
    cached, device = fields.get("cached_tokens"), fields.get("cached_device")
    if _RECOMPUTED in names and isinstance(cached, int) and isinstance(device, int):
        remote = fields.get("cached_remote")
        rest = cached - (remote if isinstance(remote, int) else 0)
        fields["cached_device"] = min(device, max(rest, 0))


VLLM = Engine(
    name="vllm",
    title="vLLM",
    versions="0.8.0 to 0.33.0",
    recorded="0.32.0",
    rows=ROWS,
    skipped=SKIPPED,
    version_marks=VERSION_MARKS,
    remedy="start without --disable-log-stats",
    rank_label="engine",
    # A production-stack router re-exports engine numbers as gauges under the same names.
    foreign_labels=("server",),
    settle=_settle,
)
