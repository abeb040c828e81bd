"""Polls the engines' metric pages and puts what they say into the store.

Pages are fetched side by side by a small pool of threads; one thread alone takes the answers
in and writes them, a few times a second in one transaction. A target that does not answer
costs its own place in the pool until its deadline and nobody else anything.
"""

import logging
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
from pydantic import BaseModel, ConfigDict, Field

from exporter.background import Background
from exporter.errors import PrefixscopeError
from exporter.records import EngineSample
from exporter.sources.discovery import Discovery, Target
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.engines.page import EnginePage
from exporter.sources.engines.reading import read_page
from exporter.sources.fetch import FetchLimits, fetch
from exporter.sources.frozen import served_meanwhile
from exporter.sources.increase import advance
from exporter.sources.polled import Answer, Polled, copies, twin
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.target_settings import TargetSettings
from exporter.sources.target_state import TargetIdentity
from exporter.store.samples import (
    TargetRow,
    append_samples,
    load_targets,
    recent_replicas,
    remove_targets,
    upsert_targets,
)
from exporter.store.store import Store

logger = logging.getLogger(__name__)

# Classic text, so that engines answer with the names their documentation has.
ACCEPT = "text/plain;version=0.0.4"
# How often the writing thread looks for due targets and finished answers.
TICK_SECONDS = 0.2
# The first poll of all targets is spread over this much: somebody waits for the first page.
FIRST_SPREAD_SECONDS = 1.0
# Unwritten samples (the disk is full) beyond which polling waits: counters keep counting.
MAX_WAITING_SAMPLES = 50_000


class ScrapeSettings(BaseModel):
    """How often and how patiently metric pages are polled, and where they are."""

    model_config = ConfigDict(extra="forbid")

    targets: TargetSettings = Field(
        default_factory=TargetSettings, description="where the metric pages are"
    )
    prometheus_source: list[PrometheusSourceSettings] = Field(
        default_factory=list, description="read from a Prometheus what it scraped, poll nothing"
    )
    interval_seconds: float = Field(default=15, gt=0, description="between polls of a target")
    deadline_seconds: float = Field(default=10, gt=0, description="for one whole answer")
    connect_timeout_seconds: float = Field(default=3, gt=0, description="to connect")
    max_body_bytes: int = Field(default=16 * 1024 * 1024, gt=0, description="largest page read")
    concurrency: int = Field(default=16, ge=1, description="pages fetched at the same time")

    def limits(self) -> FetchLimits:
        """No answer may take longer than until the next poll."""
        deadline = min(self.deadline_seconds, self.interval_seconds)
        return FetchLimits(self.connect_timeout_seconds, deadline, self.max_body_bytes)


class Scraper(Background):
    """Polls targets until stopped. `scrape_once` polls each once, for tests and one-shot use.

    `on_samples` gets every written batch, `on_replicas` the replicas left after targets went.
    """

    def __init__(
        self,
        store: Store,
        settings: ScrapeSettings,
        on_samples: Callable[[Sequence[EngineSample]], None] | None = None,
        on_replicas: Callable[[set[str]], None] | None = None,
    ) -> None:
        super().__init__("scraper")
        self._store = store
        self._settings = settings
        self._on_samples = on_samples
        self._on_replicas = on_replicas
        self._discovery = Discovery(settings.targets, settings.limits())
        self._polled: dict[str, Polled] = {}
        self._refresh_due = 0.0
        self._samples: list[EngineSample] = []
        self._reexported: list[tuple[Target, EngineSample]] = []
        self._touched: set[str] = set()
        self._pool = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="scrape")

    # ---------------------------------------------------------------- running

    def stop(self) -> None:
        """End polling; what has been fetched is written before this returns."""
        super().stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._take_finished()
        self._write()

    @property
    def rows(self) -> list[TargetRow]:
        """Every polled target as it stands now; what is configured no more is not among them."""
        return [polled.row for polled in list(self._polled.values())]

    @property
    def targets(self) -> list[Target]:
        """What is polled now."""
        return [polled.target for polled in list(self._polled.values())]

    @property
    def tried_all(self) -> bool:
        """Whether the lists were read and every target was polled since the start."""
        polled = list(self._polled.values())
        return self._refresh_due > 0 and all(one.tried for one in polled)

    def scrape_once(self) -> list[Answer]:
        """Read the lists, poll every target once, write, and return what came."""
        self._refresh()
        futures = [self._pool.submit(self._poll, polled.target, polled.state.ranked)
                   for polled in self._polled.values()]  # fmt: skip
        answers = [future.result() for future in futures]
        for answer in answers:
            self._take(self._polled[answer.target.name], answer)
        self._write()
        return answers

    def _run(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            now = time.monotonic()
            if now >= self._refresh_due:
                self._refresh()
            self._ask_due(now)
            self._take_finished()
            self._write()

    # ---------------------------------------------------------------- targets

    def _refresh(self) -> None:
        """Read the lists of targets; forget targets that are on none of them any more."""
        now = time.monotonic()
        self._refresh_due = now + self._settings.targets.refresh_seconds
        targets = {target.name: target for target in self._discovery.refresh()}
        new = {name: target for name, target in targets.items() if name not in self._polled}
        if new:
            known = load_targets(self._store.cursor())
            yesterday = datetime.now(UTC) - timedelta(days=1)
            replicas = recent_replicas(self._store.cursor(), yesterday)
            for name, target in new.items():
                first = now + _share(name) * FIRST_SPREAD_SECONDS
                self._polled[name] = Polled(target, known.get(name), first)
                self._polled[name].replicas = replicas.get(name, set())
        for name in targets.keys() & self._polled.keys():
            self._polled[name].target = targets[name]
        self._forget_others(set(targets))

    def _forget_others(self, names: set[str]) -> None:
        """Current state shows no target that is configured no more (recorded pages stay).

        A list that was never read cannot have named what is polled since this start; it may
        name what was polled before.
        """
        gone = {name for name in self._polled if name not in names}
        if self._discovery.complete:
            stored = load_targets(self._store.cursor())
            gone |= {n for n, row in stored.items() if row.url is not None and n not in names}
        if not gone:
            return
        for name in gone:
            self._polled.pop(name, None)
        self._touched -= gone
        with self._store.write() as cursor:
            remove_targets(cursor, gone)
        logger.info("no longer polled: %s", ", ".join(sorted(gone)))
        if self._on_replicas is not None:
            self._on_replicas({r for p in self._polled.values() for r in p.replicas})

    # ---------------------------------------------------------------- polling

    def _ask_due(self, now: float) -> None:
        if len(self._samples) > MAX_WAITING_SAMPLES:
            return
        for polled in self._polled.values():
            if polled.asked is None and now >= polled.due:
                polled.due = self._next_due(polled.target.name, now)
                polled.asked = self._pool.submit(self._poll, polled.target, polled.state.ranked)

    def _next_due(self, name: str, now: float) -> float:
        """Each target has its own moment within the interval, so that polls never bunch up."""
        interval = self._settings.interval_seconds
        earliest = now + interval / 2
        turns = -((_share(name) * interval - earliest) // interval)
        return _share(name) * interval + turns * interval

    def _poll(self, target: Target, ranked: bool) -> Answer:
        """Fetch and read one page, in a thread of the pool. Never raises for a bad target."""
        began = time.monotonic()
        page, error = None, None
        try:
            fetched = fetch(target.url, ACCEPT, self._discovery.limits)
            page = read_page(fetched.body, fetched.content_type, self._labels(target), ranked)
        except PrefixscopeError as failure:
            error = str(failure)
        return Answer(target, time.time(), time.monotonic() - began, page, error)

    def _labels(self, target: Target) -> PageLabels:
        settings = self._settings.targets
        return PageLabels(
            settings.replica_label,
            target.tenant_label or settings.tenant_label,
            target.route_label or settings.route_label,
            self._store.key,
        )

    def _take_finished(self) -> None:
        for polled in list(self._polled.values()):
            if polled.asked is not None and polled.asked.done():
                asked, polled.asked = polled.asked, None
                if not asked.cancelled():
                    self._take(polled, asked.result())

    # ---------------------------------------------------------------- results

    def _take(self, polled: Polled, answer: Answer) -> None:
        """Bring one answer into the target's state; it is written with the next batch."""
        moment = datetime.fromtimestamp(answer.unix, UTC)
        was_up, polled.tried = polled.row.up, True
        row = replace(
            polled.row, last_attempt=moment, duration_seconds=answer.duration_seconds,
            up=answer.page is not None, error=answer.error,
        )  # fmt: skip
        if answer.page is None:
            polled.state.fail(answer.unix)
        else:
            row = self._take_page(polled, row, answer.page, answer.unix)
        if was_up is not row.up:
            logger.info("target %s is %s", row.target, "up" if row.up else f"down: {row.error}")
        polled.row = row
        self._touched.add(row.target)

    def _take_page(
        self, polled: Polled, row: TargetRow, page: EnginePage, unix: float
    ) -> TargetRow:
        target = polled.target
        interval = self._settings.interval_seconds
        who = TargetIdentity(target.name, target.replica, target.role, interval)
        samples = advance(polled.state, page, page.time_of(unix), who)
        if samples:
            polled.replicas = {sample.replica for sample in samples}
            polled.models = {sample.model for sample in samples if sample.model}
            polled.shows = {(s.engine, s.model) for s in samples if s.exported_by is None}
        self._samples += [s for s in samples if s.exported_by is None]
        self._reexported += [(target, s) for s in samples if s.exported_by is not None]
        told = copies(self._polled.values(), target, samples)
        return replace(
            row,
            engine=page.engine.name,
            last_success=row.last_attempt,
            missing_metrics=page.missing,
            missing_advice=page.advice,
            # Up, but worth a word: what was odd about the page.
            error="; ".join((*page.warnings, *told)) or None,
            frozen=self._frozen(polled),
        )

    def _sort_out_copies(self) -> None:
        """Take what programs re-export, unless a target shows it itself. That is known once
        every target was polled; until then such samples wait."""
        if self._reexported and self.tried_all:
            self._samples += [
                s for target, s in self._reexported if not twin(self._polled.values(), target, s)
            ]
            self._reexported.clear()

    def _frozen(self, polled: Polled) -> bool:
        """Counters that stand still while requests are served."""
        state = polled.state
        if not state.looks_frozen:
            return False
        if state.busy_meanwhile:
            return True
        alone = len(self._polled) == 1
        return served_meanwhile(
            self._store.cursor(), state, polled.replicas, polled.models, alone,
            self._settings.interval_seconds,
        )  # fmt: skip

    def _write(self) -> None:
        """Everything taken since the last time, in one transaction. A store that cannot be
        written to is tried again with the next batch: nothing is dropped."""
        if not self._touched:
            return
        self._sort_out_copies()
        samples = list(self._samples)
        rows = [
            replace(self._polled[name].row, series=self._polled[name].state.to_json())
            for name in sorted(self._touched)
        ]
        try:
            with self._store.write() as cursor:
                samples = append_samples(cursor, samples)
                upsert_targets(cursor, rows)
        except duckdb.Error:
            logger.exception("scraped samples could not be written; trying again")
            return
        self._samples.clear()
        self._touched.clear()
        if self._on_samples is not None and samples:
            self._on_samples(samples)


def _share(name: str) -> float:
    """A number in [0, 1) that is the target's own, the same after every restart."""
    return (zlib.crc32(name.encode()) % 1000) / 1000
