"""SGLang's evictions and its hierarchical cache (HiCache): host memory and a storage backend.

Read against releases 0.5.2 to 0.5.23. Token counters repeat on every tensor rank, so one is
read; before 0.5.21 they carry no rank label and the page's registry has already summed the
ranks, so that they are a multiple by an unknown number and are not read. Bytes and seconds
are each rank's own share, and are summed.

`evicted_tokens` are device slots given up, whether or not a lower tier keeps a copy. With a
host pool, what was dropped without a copy is the loss, and the rest moved down.
"""

from exporter.sources.engines.mapping import Fields, Row, counts_aside

_DROPPED = "sglang:hicache_dropped_tokens_total"
_EVICTED = "sglang:evicted_tokens_total"
_HOST_POOL = "sglang:hicache_host_total_tokens"
_FILES = {"storage_backend": frozenset({"file"})}
_RANKED = "the engine counts each rank's copy up to 0.5.20: upgrade to 0.5.21"

ROWS = (
    Row(
        "evicted/device/tokens", "counter", "tokens", (_DROPPED,),
        "evicted from the device without a copy below",
        needs="tp_rank", since="0.5.21", expected=False,
    ),
    Row(
        "evicted/device/tokens", "counter", "tokens", (_EVICTED,),
        "device slots given up", needs="tp_rank", since="0.5.21", expected=False, remedy=_RANKED,
    ),
    Row(
        "aside/given_up_tokens", "counter", "tokens", (_EVICTED,),
        "device slots given up: less what was lost, they moved down",
        needs="tp_rank", since="0.5.21", expected=False,
    ),
    Row(
        "offload_tokens/load/host", "counter", "tokens", ("sglang:load_back_tokens_total",),
        "host memory to device", needs="tp_rank", since="0.5.21", expected=False,
    ),
    Row(
        "offload_tokens/store/host", "counter", "tokens", ("sglang:hicache_backup_tokens_total",),
        "device to host memory", needs="tp_rank", since="0.5.21", expected=False,
    ),
    Row(
        "offload_bytes/load/host", "counter", "bytes", ("sglang:load_back_bytes_total",),
        "host memory to device, all ranks", every_rank=True, since="0.5.18", expected=False,
    ),
    Row(
        "offload_bytes/store/host", "counter", "bytes", ("sglang:hicache_backup_bytes_total",),
        "device to host memory, all ranks", every_rank=True, since="0.5.18", expected=False,
    ),
    Row(
        "offload_seconds/load/host", "counter", "seconds",
        ("sglang:load_back_duration_seconds_sum",),
        "time of these loads, summed over ranks that work side by side",
        every_rank=True, since="0.5.6", expected=False,
    ),
    Row(
        "offload_seconds/store/host", "counter", "seconds",
        ("sglang:hicache_backup_duration_seconds_sum",),
        "time of these stores, summed over ranks that work side by side",
        every_rank=True, since="0.5.18", expected=False,
    ),
    Row(
        "offload_tokens/load/disk", "counter", "tokens", ("sglang:prefetched_tokens_total",),
        "files to host memory", where=_FILES, needs="tp_rank", since="0.5.2", expected=False,
    ),
    Row(
        "offload_tokens/load/remote", "counter", "tokens", ("sglang:prefetched_tokens_total",),
        "any other storage backend to host memory",
        other_than=_FILES, needs="tp_rank", since="0.5.2", expected=False,
    ),
    Row(
        "offload_tokens/store/disk", "counter", "tokens", ("sglang:backuped_tokens_total",),
        "host memory to files", where=_FILES, needs="tp_rank", since="0.5.2", expected=False,
    ),
    Row(
        "offload_tokens/store/remote", "counter", "tokens", ("sglang:backuped_tokens_total",),
        "host memory to any other storage backend",
        other_than=_FILES, needs="tp_rank", since="0.5.2", expected=False,
    ),
    Row(
        "offload_dropped/host", "counter", "tokens", (_DROPPED,),
        "evicted from the device before host memory had a copy",
        needs="tp_rank", since="0.5.21", expected=False,
    ),
    Row(
        "offload_dropped/disk", "counter", "tokens",
        ("sglang:hicache_backup_dropped_tokens_total",), "writes to files given up",
        where=_FILES, needs="tp_rank", since="0.5.21", expected=False,
    ),
    Row(
        "offload_dropped/remote", "counter", "tokens",
        ("sglang:hicache_backup_dropped_tokens_total",),
        "writes to any other storage backend given up",
        other_than=_FILES, needs="tp_rank", since="0.5.21", expected=False,
    ),
    Row(
        "tier_used/host/tokens", "gauge", "tokens", ("sglang:hicache_host_used_tokens",),
        "tokens in the host pool", since="0.5.10", expected=False,
    ),
    Row(
        "tier_capacity/host/tokens", "gauge", "tokens", (_HOST_POOL,),
        "tokens that fit there", since="0.5.10", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "sglang:eviction_duration_seconds": "time of eviction passes",
    "sglang:prefetch_": "bandwidth and pages of single operations",
    "sglang:backup_": "bandwidth and pages of single operations",
    "sglang:storage_prefetch_": "outcomes of storage queries; hits count in cached_tokens",
}


def settle(fields: Fields, names: frozenset[str]) -> None:
    """Tell what was lost from what moved to host memory.

    Without a host pool everything given up is lost. With one, releases that do not count what
    was dropped cannot tell: then it is neither.
    """
    given_up, lost = counts_aside(fields).get("given_up_tokens"), fields.get("evicted")
    if given_up is None or not isinstance(lost, dict):
        return
    if _HOST_POOL not in names:
        fields["evicted"] = {"device/tokens": given_up}
    elif _DROPPED in names:
        fields["demoted"] = {"host/tokens": max(given_up - lost["device/tokens"], 0)}
    else:
        del fields["evicted"]
