"""The metric page of a Mooncake store's master, at /metrics on --metrics_port (9003).

Read against v0.3.12 and its successor of 245 commits. Names are written literally, several with
an underscore at the end. Everything is counted in *objects*, one per key: how many tokens an
object holds, and how many of a prompt's objects were asked for, the master does not know. Its
ratio is therefore shown in objects and enters no sum of tokens. Engines that ask for existence
first fetch only what is there, and then it is near 100 % whatever the prompts do.

The store's memory pool is the tier `remote` for an engine, its files are `disk`.
"""

from exporter.sources.engines.mapping import Engine, Row

_ONCE = "lookup/once/objects"

ROWS = (
    Row(
        "lookup_count", "counter", "objects", ("total_get_nums__total",),
        "objects asked for", provenance=_ONCE,
    ),
    Row(
        "hit_count", "counter", "objects", ("valid_get_nums__total",),
        "of these found complete, in memory or in a file", provenance=_ONCE,
    ),
    Row(
        "offload_bytes/load/remote", "counter", "bytes", ("mem_cache_hit_bytes_total",),
        "bytes of objects served from the memory pool", expected=False,
    ),
    Row(
        "offload_bytes/load/disk", "counter", "bytes", ("file_cache_hit_bytes_total",),
        "bytes of objects served from files", expected=False,
    ),
    Row(
        "evicted/remote/objects", "counter", "objects", ("master_evicted_key_count_total",),
        "keys evicted", expected=False,
    ),
    Row(
        "evicted/remote/bytes", "counter", "bytes", ("master_evicted_size_bytes_total",),
        "bytes evicted", expected=False,
    ),
    Row(
        "tier_used/remote/bytes", "gauge", "bytes", ("master_allocated_bytes",),
        "memory in use in all segments", expected=False,
    ),
    Row(
        "tier_capacity/remote/bytes", "gauge", "bytes", ("master_total_capacity_bytes",),
        "memory of all mounted segments", expected=False,
    ),
    Row(
        "tier_used/disk/bytes", "gauge", "bytes", ("master_allocated_file_size_bytes",),
        "bytes in files", expected=False,
    ),
    Row(
        "tier_capacity/disk/bytes", "gauge", "bytes", ("master_total_file_capacity_bytes",),
        "room for files", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "mem_cache_hit_nums_": "the part of the hits served from memory; valid_get_nums_ has all",
    "file_cache_hit_nums_": "the part of the hits served from files",
    "mem_cache_nums_": "objects held; memory in use is read as bytes",
    "file_cache_nums_": "objects held; files in use are read as bytes",
    "segment_": "memory by segment, parts of the whole",
    "mooncake_tenant_": "parts of the evictions and refusals, by tenant; no reads by tenant exist",
    "master_exist_key_": "questions for existence, without their answers",
    "master_": "requests to the master by kind, not reuse",
    "mooncake_transfer_": "of a client, not of the master",
}

MOONCAKE = Engine(
    name="mooncake",
    title="Mooncake store master",
    versions="0.3.12",
    observer="kv_store",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("total_get_nums_", "valid_get_nums_"),
    remedy="is this the page of the master (--metrics_port, 9003) and not of a client?",
)
