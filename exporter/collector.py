"""Questions -> Prometheus metrics: every family on /metrics, rebuilt from current state.

Nothing is asked of the store here: counters live in memory, in step with each commit. Because
every series is built anew, those of a target or replica that is gone disappear with it, while
counters of request logs never go down.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from exporter import metrics_text
from exporter.block_metrics import Continued, add_blocks
from exporter.blocks.snapshot import BlocksSnapshot
from exporter.drops import Drop, add_drops
from exporter.engine_totals import EngineCounters, EngineKey
from exporter.metrics import ENGINE, REQUEST, Page
from exporter.metrics_text import Family, label_text
from exporter.records import OUTCOMES, TIERS
from exporter.store.counters import TTFT_BOUNDS, Snapshot
from exporter.store.samples import TargetRow
from exporter.verdicts import NO_VERDICTS, Verdicts, add_verdicts
from queries.times import as_utc
from replay.causes import CAUSES

NO_TIER = "unknown"  # cached tokens whose tier nobody named; keeps the sum over tiers whole
MAX_CROSSED = 1000  # the same of replicas
MAX_SOURCES = 100  # whoever posts names the source: bound it like every other label


@dataclass(frozen=True)
class Inputs:
    """Where the collector reads current state; each is called on every scrape.

    `blocks` is what KV-cache events tell; `bytes_per_token` what KV weighs, by model; `drops` how
    the last window was judged, `verdicts` what is judged more seldom; `crossed` what was reused
    across scopes, by model and replica; `external_url` where people reach this exporter, '' if that
    is not known; `judged` when each was last judged.
    """

    counters: Callable[[], Snapshot]
    engines: Callable[[], Mapping[EngineKey, EngineCounters]]
    targets: Callable[[], Iterable[TargetRow]]
    store_file: Path
    version: str
    blocks: Callable[[], BlocksSnapshot] = BlocksSnapshot
    bytes_per_token: Mapping[str, int] = field(default_factory=dict)
    drops: Callable[[], Iterable[Drop]] = tuple
    verdicts: Callable[[], Verdicts] = lambda: NO_VERDICTS
    crossed: Callable[[], Mapping[EngineKey, int]] = dict
    external_url: str = ""
    judged: Callable[[], Mapping[str, datetime]] = dict


class Collector:
    """Builds the page of one scrape. Safe to use from several threads."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._continued = Continued()

    def render(self, *, openmetrics: bool) -> bytes:
        """The page as bytes in the format asked for."""
        return metrics_text.render(self.families(), openmetrics=openmetrics)

    def families(self) -> list[Family]:
        """Every family, with series or without, in the order of `metrics.DEFINITIONS`."""
        page = Page()
        counters = self._inputs.counters()
        _add_requests(page, counters)
        _add_ttft(page, counters)
        _add_missed(page, counters)
        self._add_engines(page)
        add_drops(page, self._inputs.drops())
        add_verdicts(page, self._inputs.verdicts())
        for key, tokens in sorted(self._inputs.crossed().items())[:MAX_CROSSED]:
            labels = label_text(ENGINE, key)
            page["prefixcache_cross_scope_reused_tokens_total"].add(labels, tokens)
        for target in self._inputs.targets():
            _add_target(page, target)
        _add_ingest(page, counters)
        self._add_self(page)
        families = page.families()
        series = sum(len(family.lines) for family in families) + 1
        page["prefixscope_exposed_series"].add("", series)
        return families

    def _add_engines(self, page: Page) -> None:
        """Counters and gauges from engine pages; what an engine does not say has no series."""
        cached = page["prefixcache_engine_cached_tokens_total"]
        engines = self._inputs.engines()
        for key, row in engines.items():
            labels = label_text(ENGINE, key)
            if row.prompt_known:
                page["prefixcache_engine_prompt_tokens_total"].add(labels, row.prompt_tokens)
            if row.cached_known:
                tiers: dict[str, int] = {tier: row.by_tier.get(tier, 0) for tier in TIERS}
                _add_tiers(cached, labels, row.cached_tokens, tiers)
        blocks, weights = self._inputs.blocks(), self._inputs.bytes_per_token
        add_blocks(page, engines, blocks, weights, self._continued)

    def _add_self(self, page: Page) -> None:
        """Facts about this process and its store."""
        versions = (self._inputs.version, platform.python_version())
        labels = label_text(("version", "python_version"), versions)
        page["prefixscope_build_info"].add(labels, 1)
        for name, moment in self._inputs.judged().items():
            judgement = label_text(("judgement",), (name,))
            page["prefixscope_last_judged_timestamp_seconds"].add(judgement, moment.timestamp())
        if self._inputs.external_url:
            link = label_text(("url",), (self._inputs.external_url.rstrip("/"),))
            page["prefixscope_external_url_info"].add(link, 1)
        page["prefixscope_store_bytes"].add("", _store_bytes(self._inputs.store_file))


def _add_requests(page: Page, counters: Snapshot) -> None:
    """Counters from request logs; label text is written once per label set."""
    requests = page["prefixcache_requests_total"]
    prompt = page["prefixcache_prompt_tokens_total"]
    reported = page["prefixcache_reported_prompt_tokens_total"]
    ineligible = page["prefixcache_ineligible_prompt_tokens_total"]
    cached = page["prefixcache_cached_tokens_total"]
    for key, row in counters.requests.items():
        labels = label_text(REQUEST, key)
        for outcome in OUTCOMES:
            requests.add(f'{labels},outcome="{outcome}"', getattr(row, f"{outcome}_requests"))
        prompt.add(labels, row.prompt_tokens)
        reported.add(labels, row.reported_prompt_tokens)
        ineligible.add(labels, row.ineligible_prompt_tokens)
        tiers: dict[str, int] = {tier: getattr(row, f"cached_{tier}") for tier in TIERS}
        _add_tiers(cached, labels, row.cached_tokens, tiers)


def _add_tiers(family: Family, labels: str, cached_tokens: int, tiers: Mapping[str, int]) -> None:
    """One series a tier, 0 included; what no tier claims is `unknown`."""
    for tier, tokens in tiers.items():
        family.add(f'{labels},tier="{tier}"', tokens)
    rest = max(cached_tokens - sum(tiers.values()), 0)
    family.add(f'{labels},tier="{NO_TIER}"', rest)


def _add_ttft(page: Page, counters: Snapshot) -> None:
    """Time to first token by outcome."""
    family = page["prefixcache_ttft_seconds"]
    for key, row in counters.ttft.items():
        labels = label_text(("model", "route", "outcome"), key)
        family.add_histogram(labels, TTFT_BOUNDS, row.buckets, row.seconds)


def _add_missed(page: Page, counters: Snapshot) -> None:
    """Missed tokens by cause; one that never was has no series."""
    family = page["prefixcache_missed_tokens_total"]
    for key, tokens in counters.missed.items():
        labels = label_text(REQUEST, key)
        for cause in CAUSES:
            if cause in tokens:
                family.add(f'{labels},cause="{cause}"', tokens[cause])


def _add_target(page: Page, target: TargetRow) -> None:
    """How scraping one target goes."""
    labels = label_text(("target",), (target.target,))
    if target.up is not None:  # None = not tried yet
        page["prefixscope_target_up"].add(labels, target.up)
    for metric in target.missing_metrics:
        both = label_text(("target", "metric"), (target.target, metric))
        page["prefixscope_target_metric_missing"].add(both, 1)
    if target.duration_seconds is not None:
        page["prefixscope_scrape_duration_seconds"].add(labels, target.duration_seconds)
    if target.last_success is not None:
        seconds = as_utc(target.last_success).timestamp()
        page["prefixscope_target_last_success_timestamp_seconds"].add(labels, seconds)


def _add_ingest(page: Page, counters: Snapshot) -> None:
    """How taking in request rows goes."""
    ingested = page["prefixscope_ingested_records_total"]
    _add_bounded(ingested, ("source", "format"), counters.ingested)
    rejected = page["prefixscope_rejected_records_total"]
    _add_bounded(rejected, ("source", "reason"), counters.rejected)
    page["prefixscope_late_tokens_total"].add("", counters.late_tokens)
    for label in REQUEST:
        labels = label_text(("label",), (label,))
        page["prefixscope_folded_label_values"].add(labels, counters.folded.get(label, 0))
    if counters.last_arrived is not None:
        lag = (datetime.now(UTC) - as_utc(counters.last_arrived)).total_seconds()
        page["prefixscope_ingest_lag_seconds"].add("", max(0.0, lag))


def _add_bounded(
    family: Family, names: tuple[str, str], rows: Mapping[tuple[str, str], int]
) -> None:
    """Series of the first sources seen; later ones are summed as `other`."""
    named = set(list(dict.fromkeys(source for source, _ in rows))[:MAX_SOURCES])
    sums: dict[tuple[str, str], int] = {}
    for (source, detail), count in rows.items():
        key = (source if source in named else "other", detail)
        sums[key] = sums.get(key, 0) + count
    for key, count in sums.items():
        family.add(label_text(names, key), count)


def _store_bytes(store_file: Path) -> int:
    """Bytes on disk; a file that is not there (yet) counts 0."""
    files = (store_file, store_file.with_name(store_file.name + ".wal"))
    return sum(file.stat().st_size for file in files if file.exists())
