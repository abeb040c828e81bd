"""vLLM's KV connectors that keep blocks outside the device: what they wrote and brought back.

Read against 0.16.0 to 0.33.0. Present only while such a connector runs. OffloadingConnector
renamed its transfer counters in 0.24 and still serves the old ones beside them: they are
alternatives, never a sum. Its usage gauges are shares pinned by transfers in flight, not how
full the host pool is. Secondary tiers are named "1:fs": position and kind.
"""

from exporter.sources.engines.mapping import Row, Unit

# Positions a secondary tier may have in the configured list.
_POSITIONS = range(32)
# Local file system; every other kind (object store, peers, another cache) is remote.
_DISK = {"tier": frozenset(f"{position}:fs" for position in _POSITIONS)}
_OLD_BYTES = ("vllm:kv_offload_total_bytes_total",)
_OLD_SECONDS = ("vllm:kv_offload_total_time_total",)
_LOADED = {"transfer_type": frozenset({"CPU_to_GPU"})}
_STORED = {"transfer_type": frozenset({"GPU_to_CPU"})}

HOST_ROWS = (
    Row(
        "offload_bytes/load/host", "counter", "bytes", ("vllm:kv_offload_load_bytes_total",),
        "host memory to device", since="0.24.0", expected=False,
    ),
    Row(
        "offload_bytes/load/host", "counter", "bytes", _OLD_BYTES, "the name before 0.24",
        where=_LOADED, since="0.16.0", expected=False,
    ),
    Row(
        "offload_bytes/store/host", "counter", "bytes", ("vllm:kv_offload_store_bytes_total",),
        "device to host memory", since="0.24.0", expected=False,
    ),
    Row(
        "offload_bytes/store/host", "counter", "bytes", _OLD_BYTES, "the name before 0.24",
        where=_STORED, since="0.16.0", expected=False,
    ),
    Row(
        "offload_seconds/load/host", "counter", "seconds", ("vllm:kv_offload_load_time_total",),
        "time these loads took", since="0.24.0", expected=False,
    ),
    Row(
        "offload_seconds/load/host", "counter", "seconds", _OLD_SECONDS, "the name before 0.24",
        where=_LOADED, since="0.16.0", expected=False,
    ),
    Row(
        "offload_seconds/store/host", "counter", "seconds",
        ("vllm:kv_offload_store_time_total",), "time these stores took",
        since="0.24.0", expected=False,
    ),
    Row(
        "offload_seconds/store/host", "counter", "seconds", _OLD_SECONDS, "the name before 0.24",
        where=_STORED, since="0.16.0", expected=False,
    ),
    Row(
        "offload_tokens/load/host", "counter", "blocks",
        ("vllm:simple_kv_offload_load_blocks_total",),
        "blocks SimpleCPUOffloadConnector brought back",
        where={"phase": frozenset({"completed"})}, since="0.31.0", expected=False,
    ),
    Row(
        "offload_tokens/store/host", "counter", "blocks",
        ("vllm:simple_kv_offload_save_outcomes_total",),
        "blocks it stored (in its lazy mode it does not say)",
        where={"outcome": frozenset({"stored"})}, since="0.31.0", expected=False,
    ),
    Row(
        "offload_dropped/host", "counter", "blocks",
        ("vllm:simple_kv_offload_save_outcomes_total",),
        "blocks it could not store: no room in host memory, or the request was over",
        where={"outcome": frozenset({"dropped_cpu_full", "dropped_request_gone"})},
        since="0.31.0", expected=False,
    ),
    Row(
        "tier_capacity/host/tokens", "info", "tokens", ("vllm:kv_offload_config_info",),
        "tokens that fit in host memory", label="cpu_kv_cache_size_tokens",
        since="0.33.0", expected=False,
    ),
    Row(
        "tier_capacity/host/bytes", "info", "bytes", ("vllm:kv_offload_config_info",),
        "bytes of it", label="cpu_kv_cache_size_bytes", since="0.33.0", expected=False,
    ),
    Row(
        "tier_capacity/host/blocks", "info", "blocks", ("vllm:simple_kv_offload_info",),
        "blocks of SimpleCPUOffloadConnector's pool", label="capacity_blocks",
        since="0.31.0", expected=False,
    ),
)  # fmt: skip


def _tiering(direction: str, word: str) -> tuple[Row, ...]:
    """Bytes and seconds of one direction between host memory and the secondary tiers."""

    def row(unit: Unit, part: str, tier: str) -> Row:
        return Row(
            f"offload_{unit}/{direction}/{tier}", "counter", unit,
            (f"vllm:kv_offload_tiering_{word}_{part}_total",),
            f"{unit} of {word}s, secondary tiers on {tier}",
            where=_DISK if tier == "disk" else {},
            other_than=_DISK if tier == "remote" else {},
            since="0.28.0", expected=False,
        )  # fmt: skip

    parts: tuple[tuple[Unit, str], ...] = (("bytes", "bytes"), ("seconds", "time"))
    return tuple(row(unit, part, tier) for unit, part in parts for tier in ("disk", "remote"))


ROWS = (*HOST_ROWS, *_tiering("load", "read"), *_tiering("store", "write"))

SKIPPED = {
    "vllm:kv_offload_load_size": "sizes of transfers; their sum is read as bytes",
    "vllm:kv_offload_store_size": "sizes of transfers; their sum is read as bytes",
    "vllm:kv_offload_size": "sizes of transfers; their sum is read as bytes",
    "vllm:kv_offload_cpu_": "shares pinned by transfers in flight, not how full the pool is",
    "vllm:kv_offload_stores_skipped": "blocks not worth storing yet; nothing was lost",
    "vllm:kv_offload_allocation_failure": "attempts that found no room; blocks are not counted",
    "vllm:kv_offload_lookup_": "delays of look-ups, part of the queue time",
    "vllm:kv_offload_tiering_chunk_": "chunks of a size the page does not tell",
    "vllm:kv_offload_tiering_": "jobs in flight, delays and failures of secondary tiers",
    "vllm:simple_kv_offload_": "pinned and pending blocks, not how full the pool is",
    "vllm:nixl_": "transfers between prefill and decode engines, not reuse",
    "vllm:mooncake_": "transfers; Mooncake's own page tells what it holds",
    "vllm:hisparse_cache_": "look-ups of a sparse attention cache inside one request",
    "vllm:hf3fs_": "durations of single file operations",
}
