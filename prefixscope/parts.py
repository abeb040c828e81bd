"""The parts of an exporter, put together from the settings: what runs, and what is shown of it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb

from exporter.background import Background
from exporter.blocks.tracker import Tracker
from exporter.causes.watch import CauseWatch
from exporter.collector import Collector, Inputs
from exporter.drops import DropWatch
from exporter.engine_totals import EngineTotals
from exporter.geometry import kept_geometry
from exporter.isolation.judge import IsolationWatch
from exporter.layout_found.watch import LayoutWatch
from exporter.prices import ModelPrices
from exporter.records import EngineSample
from exporter.server import Services
from exporter.sources.events.keeper import BlockKeeper
from exporter.sources.events.settings import EventSettings
from exporter.sources.events.worker import EventWorker
from exporter.sources.intake import Intake
from exporter.sources.log_settings import LogSettings
from exporter.sources.names import SourceNames
from exporter.sources.objects.follow import follow_prefix
from exporter.sources.objects.place import is_object_path
from exporter.sources.prometheus.history import History
from exporter.sources.prometheus.live import PrometheusSource
from exporter.sources.scrape import Scraper
from exporter.sources.spend_logs.follow import follow_database
from exporter.sources.spend_logs.place import is_database_path
from exporter.sources.tail import Tailer
from exporter.store.blocks import known_streams
from exporter.store.counters import Snapshot
from exporter.store.store import Store
from exporter.templates_found.watch import TemplateWatch
from exporter.verdicts import VerdictWatch
from prefixscope import __version__
from prefixscope.housekeeping import Housekeeping
from prefixscope.settings import Settings
from prefixscope.weekly.schedule import ReportWorker

_log = logging.getLogger(__name__)

# How long it is remembered what caches held: minutes are sealed two minutes late.
HELD_FOR = timedelta(minutes=6)
# How long a scrape of /metrics waits for the writer before it shows what is counted so far.
FOLD_PATIENCE_SECONDS = 0.1


@dataclass(frozen=True)
class Judges:
    """What judges in the background for alerts."""

    drops: DropWatch
    verdicts: VerdictWatch
    causes: CauseWatch

    def judged(self) -> dict[str, datetime]:
        """When each last judged."""
        return {
            "drops": self.drops.judged_at,
            "verdicts": self.verdicts.judged_at,
            "causes": self.causes.judged_at,
        }


class Parts:
    """Everything that works on a store. `workers` stand still until they are started."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        live_window = timedelta(seconds=settings.store.live_window_seconds)
        self._totals = EngineTotals(live_window)
        self._totals.restore(store.cursor())
        self._tracker = Tracker(store.key, live_window=live_window, remember=HELD_FOR)
        self._tracker.restore(known_streams(store))
        self._sources = [
            PrometheusSource(store, source, settings.scrape.targets, self._sampled)
            for source in settings.scrape.prometheus_source
        ]
        self._scraper = Scraper(store, settings.scrape, self._sampled, self._keep_only)
        self._judges = Judges(
            DropWatch(store, settings.drops),
            VerdictWatch(store),
            CauseWatch(store, settings.causes, self._tracker.held_since),
        )
        self._reports = [ReportWorker(store, settings.report)] if settings.report.folder else []
        self.workers = self._all_workers()

    def services(self, external_url: str) -> Services:
        """What the server serves from; links lead to `external_url`."""
        return Services(
            store=self._store,
            intake=Intake(self._store, names=self._settings.names),
            collector=Collector(self._inputs(external_url)),
            version=__version__,
            not_ready=self._not_ready,
            problems=self._problems,
            history=History(self._store, self._settings.scrape.targets),
        )

    def _all_workers(self) -> list[Background]:
        """In the order they start; they stop the other way round."""
        store, settings, judges = self._store, self._settings, self._judges
        followers = [_follower(store, log, settings.names.get(log.source)) for log in settings.logs]
        finders = [TemplateWatch(store)] if settings.templates.find else []
        audits = [IsolationWatch(store, settings.isolation)] if settings.isolation.audit else []
        return [
            Housekeeping(store, ModelPrices(store, settings.prices)),
            judges.drops,
            judges.verdicts,
            LayoutWatch(store),
            self._scraper,
            judges.causes,
            *self._sources,
            *followers,
            *self._hearing(settings.events),
            *finders,
            *audits,
            *self._reports,
        ]

    def _hearing(self, entries: Sequence[EventSettings]) -> list[Background]:
        """What hears KV-cache events and keeps what they tell. The last to start is the first to
        stop: what was heard then still reaches the store."""
        if not entries:
            return []
        watched: list[Scraper | PrometheusSource] = [self._scraper, *self._sources]
        hearing = EventWorker(
            self._tracker, entries, lambda: [target for one in watched for target in one.targets]
        )
        return [BlockKeeper(self._store, self._tracker), hearing]

    def _sampled(self, samples: Sequence[EngineSample]) -> None:
        self._totals.add(samples)
        self._tracker.sampled(samples)

    def _keep_only(self, polled: set[str]) -> None:
        self._totals.keep_only(polled.union(*(source.replicas for source in self._sources)))

    def _inputs(self, external_url: str) -> Inputs:
        """What /metrics is made of."""
        return Inputs(
            counters=self._counters,
            engines=self._totals.snapshot,
            targets=lambda: [
                *self._scraper.rows, *(row for source in self._sources for row in source.rows)
            ],
            store_file=self._store.path,
            version=__version__,
            blocks=self._tracker.snapshot,
            bytes_per_token=kept_geometry(self._store),
            drops=self._judges.drops.current,
            verdicts=self._judges.verdicts.current,
            crossed=self._judges.causes.crossed,
            external_url=external_url,
            judged=self._judges.judged,
        )  # fmt: skip

    def _counters(self) -> Snapshot:
        """With the rows of this moment, unless the writer is busy or cannot write."""
        try:
            self._store.fold_settled(FOLD_PATIENCE_SECONDS)
        except duckdb.Error:
            _log.exception("/metrics shows what was counted before")
        return self._store.counters.snapshot()

    def _not_ready(self) -> str | None:
        if not all(worker.alive for worker in self.workers):
            return "a worker has stopped; see the log"
        if not all(source.tried for source in self._sources):
            return "waiting for the first answer of every Prometheus"
        return None if self._scraper.tried_all else "waiting for the first scrape of every target"

    def _problems(self) -> list[str]:
        """What does not work and stops nothing."""
        trouble = self._store.trouble.now
        reports = [problem for report in self._reports for problem in report.problems]
        return [trouble, *reports] if trouble else reports


def _follower(store: Store, log: LogSettings, names: SourceNames | None) -> Background:
    """What follows an entry under `logs`: files, a prefix of an object store, or a database."""
    if is_object_path(log.path):
        return follow_prefix(store, log, names)
    if is_database_path(log.path):
        return follow_database(store, log, names)
    return Tailer(store, log, names=names)
