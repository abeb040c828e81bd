"""SGLang's metric page, served at /metrics when started with --enable-metrics.

Read against releases 0.4.6 to 0.5.23. Request counters (prompt, cached) come from the
tokenizer process and count at a request's end; memory, queues and look-up counters come from
the schedulers, one per rank. Tensor and pipeline ranks repeat the same token counts, so one
of them is read. Request counters carry no data-parallel rank: with several ranks they belong
to the whole server, and memory to each rank.

Tenants and routes: SGLang adds custom labels to its request counters (header x-custom-labels,
option --tokenizer-metrics-allowed-custom-labels); a target's `tenant_label` and `route_label`
say which of them mean what.

The `cache_hit_rate` gauge is the last batch's (and 0 after every decode step up to 0.5.19):
it is never read.
"""

from exporter.sources.engines import sglang_hicache
from exporter.sources.engines.mapping import Engine, Fields, Row

_CACHED = ("sglang:cached_tokens_total",)
_EFFECTIVE = ("sglang:prefill_effective_tokens_total",)
_REALTIME = ("sglang:realtime_tokens_total",)


def _only(label: str, *values: str) -> dict[str, frozenset[str]]:
    return {label: frozenset(values)}


ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("sglang:prompt_tokens_total",),
        "prompt length, when the request finishes", from_zero=True,
        provenance="finish/once/tokens",
    ),
    Row(
        "cached_tokens", "counter", "tokens", _CACHED,
        "prompt tokens served from any tier, first pass only, when the request finishes",
        from_zero=True, since="0.4.6", provenance="finish/once/tokens",
    ),
    Row(
        "cached_device", "counter", "tokens", _CACHED, "served from device memory",
        where=_only("cache_source", "device"), since="0.5.9", expected=False,
        provenance="finish/once/tokens",
    ),
    Row(
        "cached_host", "counter", "tokens", _CACHED, "served from host memory",
        where=_only("cache_source", "host"), since="0.5.9", expected=False,
        provenance="finish/once/tokens",
    ),
    Row(
        "cached_remote", "counter", "tokens", _CACHED, "served from the storage backend",
        where=_only("cache_source", "storage"), since="0.5.9", expected=False,
        provenance="finish/once/tokens",
    ),
    Row(
        "lookup_tokens", "counter", "tokens", _EFFECTIVE,
        "tokens of prefill batches, computed or hit, retracted ones once",
        where=_only("mode", "input", "device_hit", "host_hit", "storage_hit"),
        since="0.5.18", expected=False, provenance="lookup/once/tokens",
    ),
    Row(
        "lookup_tokens", "counter", "tokens", _REALTIME,
        "the same, with the second prefill of retracted requests",
        where=_only("mode", "prefill_compute", "prefill_cache"), since="0.5.7", expected=False,
        provenance="lookup/attempt/tokens",
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", _EFFECTIVE,
        "of these the ones not computed",
        where=_only("mode", "device_hit", "host_hit", "storage_hit"),
        since="0.5.18", expected=False, provenance="lookup/once/tokens",
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", _REALTIME,
        "the same, with the second prefill of retracted requests",
        where=_only("mode", "prefill_cache"), since="0.5.7", expected=False,
        provenance="lookup/attempt/tokens",
    ),
    Row(
        "output_tokens", "counter", "tokens", ("sglang:generation_tokens_total",),
        "generated tokens, when the request finishes", from_zero=True,
    ),
    Row(
        "finished_requests", "counter", "requests",
        ("sglang:e2e_request_latency_seconds_count",), "requests finished",
        expected=False,
    ),
    Row(
        "preemptions", "counter", "events", ("sglang:num_retracted_requests_total",),
        "requests thrown back for lack of KV memory", since="0.5.7", expected=False,
    ),
    Row(
        "ttft_buckets", "histogram", "seconds", ("sglang:time_to_first_token_seconds",),
        "arrival at the server to first token; by default nothing below 100 ms is told apart",
        from_zero=True,
    ),
    Row(
        "queue_seconds", "counter", "seconds", ("sglang:queue_time_seconds_sum",),
        "time in the queue", since="0.5.3", expected=False,
    ),
    Row(
        "queue_seconds", "counter", "seconds", ("sglang:queue_time_s_sum",),
        "the name in 0.5.2", until="0.5.2", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("sglang:num_running_reqs",), "being served",
    ),
    Row(
        "waiting_requests", "gauge", "requests", ("sglang:num_queue_reqs",), "queued",
    ),
    Row(
        "kv_usage_ratio", "gauge", "ratio", ("sglang:full_token_usage",),
        "share of the full-attention pool that running requests hold",
        since="0.5.10", expected=False,
    ),
    Row(
        "kv_usage_ratio", "gauge", "ratio", ("sglang:token_usage",),
        "share of the fullest pool that running requests hold",
    ),
    Row(
        "kv_running_tokens", "gauge", "tokens", ("sglang:kv_used_tokens",),
        "KV tokens running requests hold", since="0.5.11",
    ),
    Row(
        "kv_running_tokens", "gauge", "tokens", ("sglang:num_used_tokens",),
        "the same of the fullest pool",
    ),
    Row(
        "kv_cached_tokens", "gauge", "tokens", ("sglang:kv_evictable_tokens",),
        "reusable KV tokens nobody holds", since="0.5.11", expected=False,
    ),
    Row(
        "kv_free_tokens", "gauge", "tokens", ("sglang:kv_available_tokens",),
        "free slots", since="0.5.11", expected=False,
    ),
    Row(
        "kv_capacity_tokens", "gauge", "tokens", ("sglang:max_total_num_tokens",),
        "tokens that fit",
    ),
    Row(
        "block_size", "gauge", "tokens", ("sglang:page_size",),
        "tokens per page", since="0.5.11", expected=False,
    ),
    Row(
        "block_size", "info", "tokens", ("sglang:cache_config_info",),
        "tokens per page", label="page_size", since="0.5.9", until="0.5.10", expected=False,
    ),
    *sglang_hicache.ROWS,
)  # fmt: skip

SKIPPED = {
    "sglang:cache_hit_rate": "the last batch's ratio, not a rate over time",
    "sglang:swa_": "another pool than full attention",
    "sglang:mamba_": "another pool than full attention",
    "sglang:prompt_tokens_histogram": "per-request distribution; its sum is prompt_tokens",
    "sglang:uncached_prompt_tokens_histogram": "prompt less cached, per finished request",
    "sglang:generation_tokens_histogram": "output lengths",
    "sglang:num_retracted_": "tokens and requests since the last report, or of retraction",
    "sglang:num_pages": "capacity in pages; max_total_num_tokens says it in tokens",
    "sglang:context_len": "a limit of the model",
    "sglang:kv_cache_memory_usage_gb": "capacity in bytes, rounded",
    "sglang:weight_memory_usage_gb": "weights, not KV",
    "sglang:streaming_session_held_tokens": "held by open sessions, part of neither share",
    "sglang:num_prefill_": "queues between prefill and decode",
    "sglang:num_decode_": "queues between prefill and decode",
    "sglang:num_grammar_queue_reqs": "not about caching",
    "sglang:per_stage_req_latency_seconds": "stages of the request's way, not prefill",
    "sglang:inter_token_latency_seconds": "decoding, not prefill",
    "sglang:time_per_output_token_seconds": "decoding, not prefill",
    "sglang:gen_throughput": "a gauge of the last report",
    "sglang:spec_accept_": "speculative decoding, not caching",
    "sglang:num_requests_total": "requests received; finished ones are read",
    "sglang:num_aborted_requests": "not about caching",
    **sglang_hicache.SKIPPED,
}

# Series that tell the version and nothing else.
VERSION_MARKS: dict[str, tuple[str | None, str | None]] = {
    "sglang:prompt_tokens_histogram_count": ("0.4.10", None),
    "sglang:evicted_tokens_total": ("0.5.6", None),
    _REALTIME[0]: ("0.5.7", None),
    "sglang:cache_config_info": ("0.5.9", "0.5.10"),
    "sglang:uncached_prompt_tokens_histogram_count": ("0.5.12", None),
    "sglang:kv_cache_memory_usage_gb": ("0.5.17", None),
    _EFFECTIVE[0]: ("0.5.18", None),
}


def _settle(fields: Fields, names: frozenset[str]) -> None:
    """Tiers only where they tell the whole: without a breakdown the engine says "total"."""
    tiers = ("cached_device", "cached_host", "cached_remote")
    amounts = [fields.get(tier) for tier in tiers]
    cached = fields.get("cached_tokens")
    if sum(a for a in amounts if isinstance(a, int)) != (cached or 0):
        fields.update(dict.fromkeys(tiers))
    sglang_hicache.settle(fields, names)


SGLANG = Engine(
    name="sglang",
    title="SGLang",
    versions="0.4.6.post1 to 0.5.23",
    rows=ROWS,
    skipped=SKIPPED,
    rank_label="dp_rank",
    role_label="engine_type",
    copied_labels=("tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank"),
    total_labels={"priority": ""},
    version_marks=VERSION_MARKS,
    remedy="start with --enable-metrics",
    settle=_settle,
)
