"""What the engines' counters rose by since this exporter started, and their latest gauges.

Kept in memory, so that a scrape of /metrics asks the store nothing. Totals begin at 0 when the
exporter starts, which Prometheus sees as an ordinary counter reset; replicas known from the
store begin there too, so that their first increase is not lost. They are not summed up from
stored samples: retention removes samples, and a counter must not start below where it was.
Samples older than the live window (back-fill, captured pages) stay out, as request rows do.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import duckdb

from exporter.records import TIERS, EngineSample
from queries.times import utc_without_zone

EngineKey = tuple[str, str]  # model ('' = not given), replica
# Gauge of EngineCounters -> field of a sample.
GAUGES = {
    "running_tokens": "kv_running_tokens",
    "kv_cached_tokens": "kv_cached_tokens",
    "free_tokens": "kv_free_tokens",
    "capacity_tokens": "kv_capacity_tokens",
    "running_requests": "running_requests",
    "block_size": "block_size",
}

KNOWN_REPLICAS = """
    SELECT DISTINCT coalesce(model, ''), replica
    FROM engine_own JOIN targets USING (target)
    WHERE ts >= ? AND role <> 'decode' AND url IS NOT NULL ORDER BY ALL
"""


@dataclass
class EngineCounters:
    """Totals of one replica; the tiers need not sum to `cached_tokens` where none was named.

    A count is known unless an interval's sample lacked it: then its series is not shown,
    because 0 would say "none" where the engine says nothing.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_known: bool = True
    cached_known: bool = True
    by_tier: dict[str, int] = field(default_factory=dict)
    resets: int = 0
    # by tier left, {store|load}/{tier}; a key is there once a page has told of it
    evicted_blocks: dict[str, float] = field(default_factory=dict)
    demoted_blocks: dict[str, float] = field(default_factory=dict)
    offload_bytes: dict[str, float] = field(default_factory=dict)
    offload_seconds: dict[str, float] = field(default_factory=dict)
    # gauges of the newest sample; None = the page did not say
    sampled: datetime | None = None
    running_tokens: int | None = None
    kv_cached_tokens: int | None = None
    free_tokens: int | None = None
    capacity_tokens: int | None = None
    running_requests: int | None = None
    block_size: int | None = None

    def copy(self) -> "EngineCounters":
        """A copy that shares nothing with this one."""
        return replace(
            self,
            by_tier=dict(self.by_tier),
            evicted_blocks=dict(self.evicted_blocks),
            demoted_blocks=dict(self.demoted_blocks),
            offload_bytes=dict(self.offload_bytes),
            offload_seconds=dict(self.offload_seconds),
        )


def _utc_now() -> datetime:
    return datetime.now(UTC)


class EngineTotals:
    """Adds up samples as the scraper takes them. Safe to use from several threads."""

    def __init__(
        self,
        live_window: timedelta = timedelta(minutes=10),
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._live_window = live_window
        self._now = now
        self._lock = threading.Lock()
        self._rows: dict[EngineKey, EngineCounters] = {}

    def restore(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Start the replicas of polled targets that were seen in the last day at 0."""
        since = utc_without_zone(self._now() - timedelta(days=1))
        known = cursor.execute(KNOWN_REPLICAS, [since]).fetchall()
        with self._lock:
            for model, replica in known:
                self._rows.setdefault((model, replica), EngineCounters())

    def add(self, samples: Iterable[EngineSample]) -> None:
        """Take the samples of one scrape."""
        oldest = self._now() - self._live_window
        with self._lock:
            for sample in samples:
                if _counts(sample) and sample.ts >= oldest:
                    key = (sample.model or "", sample.replica)
                    _add(self._rows.setdefault(key, EngineCounters()), sample)

    def keep_only(self, replicas: Iterable[str]) -> None:
        """Forget replicas that are no target any more: a series must not outlive its target."""
        kept = set(replicas)
        with self._lock:
            self._rows = {key: row for key, row in self._rows.items() if key[1] in kept}

    def snapshot(self) -> dict[EngineKey, EngineCounters]:
        """A copy no other thread writes to."""
        with self._lock:
            return {key: row.copy() for key, row in self._rows.items()}


def _counts(sample: EngineSample) -> bool:
    """Decode replicas enter no hit ratio, so no counter; other observers count the same prompts
    once more."""
    return sample.observer == "engine" and sample.role != "decode"


def _pair(sample: EngineSample) -> tuple[int | None, int | None]:
    """Prompt and cached tokens of one family, as in engine_hit_ratio: look-ups and their hits
    where an engine counts nothing else."""
    looked_up, hits = sample.lookup_tokens, sample.lookup_hit_tokens
    by_lookup = (sample.provenance or "").startswith("lookup/")
    if by_lookup and looked_up is not None and hits is not None:
        return looked_up, hits + (sample.external_hit_tokens or 0)
    return sample.prompt_tokens, sample.cached_tokens


def _add(row: EngineCounters, sample: EngineSample) -> None:
    """Add one interval's increases; None (a baseline, a metric not there) adds nothing."""
    # One page gives several samples of a replica where it tells tenants apart.
    same_page = row.sampled == sample.ts
    prompt_tokens, cached_tokens = _pair(sample)
    if sample.since is not None:
        row.prompt_known = (same_page and row.prompt_known) or prompt_tokens is not None
        row.cached_known = (same_page and row.cached_known) or cached_tokens is not None
    row.prompt_tokens += prompt_tokens or 0
    row.cached_tokens += cached_tokens or 0
    row.resets += sample.reset
    tiers = {tier: getattr(sample, f"cached_{tier}") or 0 for tier in TIERS}
    # Tiers counted at another moment than the whole may exceed it: then no tier is named.
    if sum(tiers.values()) <= (cached_tokens or 0):
        for tier, increase in tiers.items():
            if increase:
                row.by_tier[tier] = row.by_tier.get(tier, 0) + increase
    _add_blocks(row, sample)
    if row.sampled is None or sample.ts >= row.sampled:
        row.sampled = sample.ts
        for gauge, source in GAUGES.items():
            value = getattr(sample, source)
            if value is not None or not same_page:
                setattr(row, gauge, value)


def _add_blocks(row: EngineCounters, sample: EngineSample) -> None:
    """Add what was lost and moved. Units that are neither blocks nor tokens have no figure here."""
    for tier, blocks in _in_blocks(sample.evicted, sample.block_size):
        row.evicted_blocks[tier] = row.evicted_blocks.get(tier, 0) + blocks
    for tier, blocks in _in_blocks(sample.demoted, sample.block_size):
        row.demoted_blocks[tier] = row.demoted_blocks.get(tier, 0) + blocks
    for way, count in (sample.offload_bytes or {}).items():
        row.offload_bytes[way] = row.offload_bytes.get(way, 0) + count
    for way, seconds in (sample.offload_seconds or {}).items():
        row.offload_seconds[way] = row.offload_seconds.get(way, 0) + seconds


def _in_blocks(
    counts: dict[str, int] | None, block_size: int | None
) -> Iterator[tuple[str, float]]:
    """Tier and blocks of a map of {tier}/{unit}."""
    for key, count in (counts or {}).items():
        tier, _, unit = key.partition("/")
        if unit == "blocks":
            yield tier, count
        elif unit == "tokens" and block_size:
            yield tier, count / block_size
