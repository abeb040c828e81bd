"""LMCache's metrics, of both ways it runs.

- `lmcache_mp`, the multiprocess server (`lmcache_mp_*`, OpenTelemetry names): served at /metrics
  of its HTTP port, 8080 by default. Read against 0.5.6 and 0.4.4; before 0.5 there were no
  look-up counters in tokens. Series carry `model_name` and `cache_salt`: reuse by trust boundary.
  A salt is a secret, so its keyed hash stands in its place everywhere.
- `lmcache`, in-process (`lmcache:*`): on vLLM's own /metrics where both share
  PROMETHEUS_MULTIPROC_DIR. Read against 0.3.0 to 0.5.6. Every tensor-parallel worker repeats the
  same look-ups, so one worker is read; bytes are each worker's own share and are summed.

The hit ratio is look-up hits by looked-up tokens, and GPU hits are not in it. `num_hit_tokens` by
`num_requested_tokens` is another thing: only tokens known to be there are requested, so that
it says how many loads worked, about all of them. `retrieve_hit_rate` is 1 when idle.
"""

from exporter.sources.engines.mapping import Engine, Row

_LOOKUPS = "look-up counters exist from 0.3.7 on"
_FIRST = "the series exists from the first look-up on"

MP_ROWS = (
    Row(
        "lookup_tokens", "counter", "tokens", ("lmcache_mp_lookup_requested_tokens_total",),
        "tokens looked up, whole chunks only, once per request",
        since="0.5", provenance="lookup/once/tokens",
        remedy=_FIRST,
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", ("lmcache_mp_lookup_hit_tokens_total",),
        "of these found in host memory or behind it, as a prefix without a hole",
        since="0.5", provenance="lookup/once/tokens",
        remedy=_FIRST,
    ),
    Row(
        "cached_host", "counter", "tokens", ("lmcache_mp_lookup_hit_l1_tokens_total",),
        "look-up hits that host memory (L1) serves", since="0.5",
        expected=False, provenance="lookup/once/tokens",
    ),
    Row(
        "cached_remote", "counter", "tokens", ("lmcache_mp_lookup_hit_l2_tokens_total",),
        "look-up hits that a backend behind it (L2) adds; which one is not told", since="0.5",
        expected=False, provenance="lookup/once/tokens",
    ),
    Row(
        "evicted/host/chunks", "counter", "chunks", ("lmcache_mp_l1_evicted_chunks_total",),
        "chunks (256 tokens by default) that left host memory", since="0.5", expected=False,
    ),
    Row(
        "evicted/host/objects", "counter", "objects", ("lmcache_mp_l1_evicted_keys_total",),
        "the name until 0.4: one key per chunk and tensor rank",
        until="0.4.4", expected=False,
    ),
    Row(
        "evicted/remote/chunks", "counter", "chunks",
        ("lmcache_mp_l2_evicted_objects_chunks_total",), "chunks that left the backend behind it",
        since="0.5", expected=False,
    ),
    Row(
        "block_lifetime_buckets", "histogram", "seconds", ("lmcache_mp_l1_chunk_lifetime_seconds",),
        "from allocation to eviction from host memory, a 1 % sample", expected=False,
    ),
    Row(
        "block_idle_buckets", "histogram", "seconds",
        ("lmcache_mp_l1_chunk_idle_before_evict_seconds",),
        "from last use to eviction from host memory, a 1 % sample", expected=False,
    ),
    Row(
        "block_reuse_gap_buckets", "histogram", "seconds",
        ("lmcache_mp_l1_chunk_reuse_gap_seconds",),
        "between two uses of a chunk in host memory, a 1 % sample", expected=False,
    ),
    Row(
        "tier_used/host/bytes", "gauge", "bytes", ("lmcache_mp_l1_memory_usage_bytes",),
        "host memory in use", expected=False,
    ),
    Row(
        "tier_used/remote/bytes", "gauge", "bytes", ("lmcache_mp_l2_usage_bytes",),
        "in use in the backends behind host memory", expected=False,
    ),
)  # fmt: skip

MP_SKIPPED = {
    "lmcache_mp_l0_block_": "blocks of the engine's device memory, seen from outside",
    "lmcache_mp_l1_write_chunks": "chunks of a size the page does not tell",
    "lmcache_mp_l1_read_chunks": "chunks of a size the page does not tell",
    "lmcache_mp_l1_usage_ratio": "memory in use is read as bytes",
    "lmcache_mp_l2_prefetch_": "parts of the look-up, in requests and chunks",
    "lmcache_mp_lookups_requests": "look-ups in requests; their tokens are read",
    "lmcache_mp_lookup_hit_l1_keys": "hits in keys of each rank; their tokens are read",
    "lmcache_mp_lookup_hit_l2_keys": "hits in keys of each rank; their tokens are read",
    "lmcache_mp_l1_read_keys": "until 0.4: keys of a size the page does not tell",
    "lmcache_mp_event_bus_": "the health of its own event bus",
    "lmcache_mp_sm_": "until 0.4: keys of loads, not of look-ups",
}

LMCACHE_MP = Engine(
    name="lmcache_mp",
    title="LMCache, multiprocess server",
    versions="0.4.4 to 0.5.6",
    recorded="0.5.6 (its metric classes alone)",
    observer="kv_store",
    rows=MP_ROWS,
    skipped=MP_SKIPPED,
    tenant_labels=("cache_salt",),
    secret_labels=("cache_salt",),
)

ROWS = (
    Row(
        "lookup_tokens", "counter", "tokens", ("lmcache:num_lookup_tokens_total",),
        "tokens looked up, once per scheduling attempt",
        provenance="lookup/attempt/tokens", remedy=_LOOKUPS,
    ),
    Row(
        "lookup_hit_tokens", "counter", "tokens", ("lmcache:num_lookup_hits_total",),
        "of these found, wherever LMCache keeps them", provenance="lookup/attempt/tokens",
        remedy=_LOOKUPS,
    ),
    Row(
        "offload_tokens/store/host", "counter", "tokens", ("lmcache:num_stored_tokens_total",),
        "tokens written, wherever LMCache keeps them", expected=False,
    ),
    Row(
        "offload_tokens/load/host", "counter", "tokens", ("lmcache:num_hit_tokens_total",),
        "tokens brought back to the GPU", expected=False,
    ),
    Row(
        "offload_seconds/store/host", "counter", "seconds", ("lmcache:time_to_store_sum",),
        "time these writes took, of one worker", expected=False,
    ),
    Row(
        "offload_seconds/load/host", "counter", "seconds", ("lmcache:time_to_retrieve_sum",),
        "time these loads took, of one worker", expected=False,
    ),
    Row(
        "offload_bytes/store/remote", "counter", "bytes", ("lmcache:num_remote_write_bytes_total",),
        "bytes written to the remote backend", every_rank=True, expected=False,
    ),
    Row(
        "offload_bytes/load/remote", "counter", "bytes", ("lmcache:num_remote_read_bytes_total",),
        "bytes read from the remote backend", every_rank=True, expected=False,
    ),
    Row(
        "evicted/host/chunks", "counter", "chunks", ("lmcache:local_cpu_evict_keys_count_total",),
        "chunks (256 tokens by default) that left host memory", expected=False,
    ),
    Row(
        "tier_used/host/bytes", "gauge", "bytes", ("lmcache:local_cache_usage",),
        "host memory in use", every_rank=True, expected=False,
    ),
    Row(
        "tier_used/disk/bytes", "gauge", "bytes", ("lmcache:local_storage_usage",),
        "local disk in use", every_rank=True, expected=False,
    ),
    Row(
        "tier_used/remote/bytes", "gauge", "bytes", ("lmcache:remote_cache_usage",),
        "in use in the remote backend", every_rank=True, expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "lmcache:retrieve_hit_rate": "success of loads since the last log line; 1 when idle",
    "lmcache:lookup_hit_rate": "a ratio since the last log line; its counters are read",
    "lmcache:cache_hit_rate": "a ratio since the last log line, in 0.3.0 only",
    "lmcache:num_requested_tokens": "loads asked for, all of them known to be there: no look-up",
    "lmcache:num_retrieve_requests": "loads in calls; their tokens are read",
    "lmcache:num_store_requests": "writes in calls; their tokens are read",
    "lmcache:num_lookup_requests": "look-ups in calls; their tokens are read",
    "lmcache:lookup_0_hit_requests": "look-ups in calls; their tokens are read",
    "lmcache:num_prompt_tokens": "only of requests that had something to load",
    "lmcache:num_vllm_hit_tokens": "the engine's own hits, which its table has",
    "lmcache:local_cpu_evict_count": "eviction passes, not chunks",
    "lmcache:request_cache_hit_rate": "a distribution of ratios that leaves out zero hits",
}

LMCACHE = Engine(
    name="lmcache",
    title="LMCache, in-process",
    versions="0.3.0 to 0.5.6",
    recorded="0.5.6 (its metric classes alone)",
    observer="kv_store",
    rows=ROWS,
    skipped=SKIPPED,
    copied_labels=("worker_id",),
)
