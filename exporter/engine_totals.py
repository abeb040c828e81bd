"""What the engines' counters rose by since this exporter started, and their latest gauges.

Kept in memory, so that a scrape of /metrics asks the store nothing. Totals begin at 0 when the
exporter starts, which Prometheus sees as an ordinary counter reset; replicas known from the
store begin there too, so that their first increase is not lost. They are not summed up from
stored samples: retention removes samples, and a counter must not start below where it was.
Samples older than the live window (back-fill, captured pages) stay out, as request rows do.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import duckdb

from exporter.records import TIERS, EngineSample

EngineKey = tuple[str, str]  # model ('' = not given), replica

KNOWN_REPLICAS = """
    SELECT DISTINCT coalesce(model, ''), replica
    FROM engine_samples JOIN targets USING (target)
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
    # gauges of the newest sample; None = the page did not say
    sampled: datetime | None = None
    running_tokens: int | None = None
    kv_cached_tokens: int | None = None
    free_tokens: int | None = None
    capacity_tokens: int | None = None


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
        since = (self._now() - timedelta(days=1)).astimezone(UTC).replace(tzinfo=None)
        known = cursor.execute(KNOWN_REPLICAS, [since]).fetchall()
        with self._lock:
            for model, replica in known:
                self._rows.setdefault((model, replica), EngineCounters())

    def add(self, samples: Iterable[EngineSample]) -> None:
        """Take the samples of one scrape. Decode replicas enter no hit ratio, so no counter."""
        oldest = self._now() - self._live_window
        with self._lock:
            for sample in samples:
                if sample.role != "decode" and sample.ts >= oldest:
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
            return {key: replace(row, by_tier=dict(row.by_tier)) for key, row in self._rows.items()}


def _add(row: EngineCounters, sample: EngineSample) -> None:
    """Add one interval's increases; None (a baseline, a metric not there) adds nothing."""
    if sample.since is not None:
        row.prompt_known = sample.prompt_tokens is not None
        row.cached_known = sample.cached_tokens is not None
    row.prompt_tokens += sample.prompt_tokens or 0
    row.cached_tokens += sample.cached_tokens or 0
    row.resets += sample.reset
    for tier in TIERS:
        increase = getattr(sample, f"cached_{tier}")
        if increase:
            row.by_tier[tier] = row.by_tier.get(tier, 0) + increase
    if row.sampled is None or sample.ts >= row.sampled:
        row.sampled = sample.ts
        row.running_tokens = sample.kv_running_tokens
        row.kv_cached_tokens = sample.kv_cached_tokens
        row.free_tokens = sample.kv_free_tokens
        row.capacity_tokens = sample.kv_capacity_tokens
