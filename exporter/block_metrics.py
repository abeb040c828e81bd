"""KV memory, evictions, resets and copies on /metrics: by KV-cache events where a cache has them,
else by the engine's own counters. One fact from two sources is never added.

Events may begin (or end) while the exporter runs. A counter then goes on from where it stood.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.blocks.snapshot import BlocksSnapshot, CacheSnapshot, StreamSnapshot
from exporter.engine_totals import EngineCounters, EngineKey
from exporter.metrics import ENGINE, Page
from exporter.metrics_text import label_text

RESET_REASONS = ("restart", "clear", "sleep", "lost_events")
# Who sends events names sources and replicas: bound them like every other label.
MAX_CACHES = 1000
# Buckets of events grow by 8 %: each counts under the first bound at or above its upper end.
AGE_BOUNDS = (
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0,
    86_400.0, 259_200.0,
)  # fmt: skip
_GROWTH = 1.08

Caches = dict[EngineKey, dict[str, CacheSnapshot]]


@dataclass
class _Shown:
    basis: str
    offset: float
    value: float
    read: float


class Continued:
    """Counters that go on when what they are read from changes, or begins again (a replica that
    was forgotten came back). Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[tuple[str, str], _Shown] = {}

    def value(self, name: str, labels: str, basis: str, current: float) -> float:
        """What to show of a series that stands at `current` by `basis`; it never falls."""
        with self._lock:
            shown = self._shown.setdefault((name, labels), _Shown(basis, 0.0, current, current))
            if shown.basis != basis or current < shown.read:
                # Whether what it begins again with is new is not known: only what follows counts.
                shown.basis, shown.offset = basis, shown.value - current
            shown.read = current
            shown.value = max(shown.value, shown.offset + current)
            return shown.value


@dataclass(frozen=True)
class MemorySplit:
    """KV memory of a replica in tokens; None = not known, which has no series."""

    running: int | None
    cached: int | None
    free: int | None


def memory_split(row: EngineCounters, device: CacheSnapshot | None) -> MemorySplit:
    """As in the question memory_split: the engine's own gauges, else its running tokens and what
    events say is resident. Of a running request all blocks but the last are resident too."""
    running = row.running_tokens
    if row.kv_cached_tokens is not None or running is None or device is None:
        return MemorySplit(running, row.kv_cached_tokens, row.free_tokens)
    partial = (row.running_requests or 0) * (row.block_size or device.block_size or 0)
    held = min(device.resident_tokens, max(running - partial, 0))
    cached, free = device.resident_tokens - held, None
    if row.capacity_tokens is not None:
        cached = max(min(cached, row.capacity_tokens - running), 0)
        free = max(row.capacity_tokens - running - cached, 0)
    return MemorySplit(running, cached, free)


def add_blocks(
    page: Page,
    engines: Mapping[EngineKey, EngineCounters],
    blocks: BlocksSnapshot,
    bytes_per_token: Mapping[str, int],
    continued: Continued,
) -> None:
    """All families about blocks."""
    caches = _caches(blocks.caches[:MAX_CACHES], engines)
    for key in sorted({*engines, *caches}):
        labels = label_text(ENGINE, key)
        row, tiers = engines.get(key), caches.get(key, {})
        if row is not None:
            _add_memory(page, labels, row, tiers.get("device"), bytes_per_token.get(key[0]))
            _add_offload(page, labels, row)
        _add_lost(page, labels, row or EngineCounters(), tiers, continued)
        _add_ages(page, labels, tiers.get("device"))
    for model, (unique, resident) in sorted((blocks.copies or {}).items()):
        if unique:
            labels = label_text(("model",), (model,))
            page["prefixcache_replica_copies_ratio"].add(labels, resident / unique)
    _add_streams(page, blocks.streams[:MAX_CACHES], continued)


def _caches(caches: Iterable[CacheSnapshot], engines: Iterable[EngineKey]) -> Caches:
    """By model and replica, then by tier. Events that name no model take the page's, where it
    is one; of a replica heard under two names of a source the first one counts."""
    models: dict[str, set[str]] = {}
    for model, replica in engines:
        models.setdefault(replica, set()).add(model)
    found: Caches = {}
    for cache in caches:
        known = models.get(cache.replica, set())
        model = next(iter(known)) if len(known) == 1 else cache.model or ""
        found.setdefault((model, cache.replica), {}).setdefault(cache.tier, cache)
    return found


def _add_memory(
    page: Page,
    labels: str,
    row: EngineCounters,
    device: CacheSnapshot | None,
    bytes_per_token: int | None,
) -> None:
    """Gauges of one replica; unknown is absent, never 0."""
    split = memory_split(row, device)
    states = {"running": split.running, "cached": split.cached, "free": split.free}
    for state, tokens in states.items():
        if tokens is None:
            continue
        named = f'{labels},state="{state}"'
        page["prefixcache_kv_tokens"].add(named, tokens)
        if bytes_per_token is not None:
            page["prefixcache_kv_bytes"].add(named, tokens * bytes_per_token)
    if row.capacity_tokens is not None:
        page["prefixcache_kv_capacity_tokens"].add(labels, row.capacity_tokens)


def _add_offload(page: Page, labels: str, row: EngineCounters) -> None:
    for name, amounts in (
        ("prefixcache_offload_bytes_total", row.offload_bytes),
        ("prefixcache_offload_seconds_total", row.offload_seconds),
    ):
        for way, amount in sorted(amounts.items()):
            direction, _, tier = way.partition("/")
            both = label_text(("direction", "tier"), (direction, tier))
            page[name].add(f"{labels},{both}", amount)


def _add_lost(
    page: Page,
    labels: str,
    row: EngineCounters,
    tiers: Mapping[str, CacheSnapshot],
    continued: Continued,
) -> None:
    """Evictions, demotions and resets. By events, tiers they do not tell of stay counted."""

    def add(name: str, named: str, basis: str, current: float) -> None:
        page[name].add(named, continued.value(name, named, basis, current))

    for tier in sorted({*tiers, *row.evicted_blocks}):
        basis = "events" if tier in tiers else "counters"
        lost = tiers[tier].evicted_blocks if tier in tiers else row.evicted_blocks[tier]
        add("prefixcache_evicted_blocks_total", f'{labels},tier="{tier}"', basis, lost)
    if tiers:
        moved = sum(cache.demoted_blocks for cache in tiers.values())
        add("prefixcache_demoted_blocks_total", labels, "events", moved)
    elif row.demoted_blocks:
        moved_by_page = sum(row.demoted_blocks.values())
        add("prefixcache_demoted_blocks_total", labels, "counters", moved_by_page)
    name = "prefixcache_resets_total"
    device = tiers.get("device")
    if device is None:
        add(name, f'{labels},reason="restart"', "counters", row.resets)
        return
    for reason in RESET_REASONS:
        add(name, f'{labels},reason="{reason}"', "events", device.resets.get(reason, 0))


def _add_ages(page: Page, labels: str, device: CacheSnapshot | None) -> None:
    if device is None:
        return
    for name, buckets, seconds in (
        ("prefixcache_block_lifetime_seconds", device.lifetime, device.lifetime_seconds),
        (
            "prefixcache_evicted_reuse_gap_seconds",
            device.evicted_reuse_gap,
            device.evicted_reuse_gap_seconds,
        ),
    ):
        page[name].add_histogram(labels, AGE_BOUNDS, _counts(buckets), seconds)


def _counts(buckets: Mapping[int, int]) -> list[int]:
    """Blocks per bound of AGE_BOUNDS, the last above all of them."""
    counts = [0] * (len(AGE_BOUNDS) + 1)
    for bucket, blocks in buckets.items():
        # A bucket that ends on a bound belongs below it; the power may miss it by a rounding.
        upper = _GROWTH ** (bucket + 1) * (1 - 1e-12)
        place = sum(bound < upper for bound in AGE_BOUNDS)
        counts[place] += blocks
    return counts


def _add_streams(page: Page, streams: Sequence[StreamSnapshot], continued: Continued) -> None:
    name = "prefixscope_event_batches_missed_total"  # a replay may bring some after all
    for stream in streams:
        labels = label_text(("source", "replica"), (stream.source, stream.replica))
        page["prefixscope_event_stream_up"].add(labels, stream.connected)
        missed = continued.value(name, labels, "events", stream.missed_batches)
        page[name].add(labels, missed)
        uncertain = stream.uncertain is not None
        page["prefixscope_event_state_uncertain"].add(labels, uncertain)
