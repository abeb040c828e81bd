"""A Prometheus in place of the engines' own pages, where those cannot be scraped twice.

Every few seconds the samples that came since the last page of each target are read and taken
like pages of our own: all of them, so that after a break nothing is missing that the Prometheus
has. It lags behind by its scrape interval and ours.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb

from exporter.background import Background
from exporter.errors import PrefixscopeError
from exporter.records import EngineSample
from exporter.sources.discovery import Target
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.page_files import RecordedPage
from exporter.sources.pages import PageIntake, PagesSummary
from exporter.sources.prometheus.api import PrometheusApi, TooMuch
from exporter.sources.prometheus.backfill import asked_target, crowded_instances
from exporter.sources.prometheus.names import Naming, labels_key
from exporter.sources.prometheus.pages import DOWN, PastPage, pages_of
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.prometheus.targets import PastTarget, find_targets
from exporter.sources.target_settings import TargetSettings
from exporter.sources.target_state import TargetIdentity, TargetState
from exporter.store import backfills
from exporter.store.samples import (
    TargetRow,
    append_samples,
    load_targets,
    remove_targets,
    upsert_targets,
)
from exporter.store.store import Store

logger = logging.getLogger(__name__)

# How often targets are looked for, and how far back one may have been scraped last.
REFRESH_SECONDS = 60.0
FOUND_WITHIN_SECONDS = 600.0
MISSED_AFTER_SECONDS = 300.0
# A target not scraped for so long is gone; a Prometheus that was down comes back before.
GONE_AFTER_SECONDS = 3_600.0
# A back-fill that ended so recently is continued rather than begun beside.
CONTINUED_WITHIN_SECONDS = 86_400.0
# How much is read at once after a break, and the first time.
CATCH_UP_SECONDS = 1_800.0
FIRST_SECONDS = 300.0
SHORTEST_SECONDS = 30.0


@dataclass
class _Followed:
    """A target between two readings."""

    past: PastTarget
    target: Target
    row: TargetRow
    seen_unix: float | None
    read_until: float
    found_at: float
    replicas: frozenset[str] = frozenset()


class PrometheusSource(Background):
    """Follows the engines of one Prometheus until stopped. `read_once` is for tests."""

    def __init__(
        self,
        store: Store,
        settings: PrometheusSourceSettings,
        targets: TargetSettings,
        on_samples: Callable[[Sequence[EngineSample]], None] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("prometheus")
        self._store = store
        self._settings = settings
        self._targets = targets
        self._on_samples = on_samples
        self._now = now
        self._naming = Naming(targets)
        self._followed: dict[str, _Followed] = {}
        self._polled: set[str] = set()
        self._refresh_due = 0.0
        self._api = PrometheusApi(settings, self._wait)
        self.tried = False
        self.error: str | None = None

    @property
    def rows(self) -> list[TargetRow]:
        """Every followed target as it stands now."""
        return [followed.row for followed in list(self._followed.values())]

    @property
    def targets(self) -> list[Target]:
        """What is followed now."""
        return [followed.target for followed in list(self._followed.values())]

    @property
    def replicas(self) -> set[str]:
        """The replicas of all followed targets."""
        return {name for one in list(self._followed.values()) for name in one.replicas}

    def read_once(self) -> None:
        """Look for targets when due, then take what is new of each. A Prometheus that does not
        answer is said once and asked again at the next reading."""
        try:
            if self._now() >= self._refresh_due:
                self._refresh()
            for followed in list(self._followed.values()):
                self._read(followed)
            self._say(None)
        except PrefixscopeError as error:
            self._say(str(error))
        except duckdb.Error:
            # Nothing is lost: what was not written is read again.
            logger.exception("samples from %s could not be written; trying again", self._api.where)
        self.tried = True

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.read_once()
            self._stopped.wait(self._settings.interval_seconds)

    def _wait(self, seconds: float) -> None:
        """A pause between two tries that a stop ends."""
        self._stopped.wait(seconds)

    def _say(self, error: str | None) -> None:
        if error is not None and error != self.error:
            logger.warning("%s", error)
        if error is not None:
            for followed in self._followed.values():
                followed.row = replace(followed.row, up=False, error=error)
        self.error = error

    # ---------------------------------------------------------------- targets

    def _refresh(self) -> None:
        now, settings = self._now(), self._settings
        found = find_targets(
            self._api, now - FOUND_WITHIN_SECONDS, now, settings.jobs, settings.ha_labels
        )
        crowded = crowded_instances(found)
        cursor = self._store.cursor()
        known = load_targets(cursor)
        for past in found:
            asked = asked_target(past, crowded, settings.role)
            target = self._naming.name(cursor, asked)
            row = known.get(target.name)
            if self._naming.is_polled(asked) or (row is not None and row.url is not None):
                self._leave(target.name)
                continue
            self._follow(past, target, row, now)
        self._forget(now)
        # Whoever has found nothing yet waits for the first scrape.
        self._refresh_due = now + (REFRESH_SECONDS if self._followed else 0)

    def _leave(self, name: str) -> None:
        """Our own scraper polls it: one of the two must not read it."""
        self._followed.pop(name, None)
        if name not in self._polled:
            logger.warning("target %s is scraped: not read from a Prometheus too", name)
            self._polled.add(name)

    def _follow(self, past: PastTarget, target: Target, row: TargetRow | None, now: float) -> None:
        followed = self._followed.get(target.name)
        if followed is None:
            row = row or self._continued(past, target, now)
            seen = TargetState.from_json(row.series).seen_unix
            start = self._start(target, now) if seen is None else seen
            self._followed[target.name] = _Followed(past, target, row, seen, start, now)
            return
        followed.past, followed.target, followed.found_at = past, target, now

    def _continued(self, past: PastTarget, target: Target, now: float) -> TargetRow:
        """A target of which a back-fill has just brought the past goes on from its last page."""
        cursor = self._store.cursor()
        rows = backfills.filled(cursor, target.name, labels_key(past.labels))
        newest = max(rows, key=lambda row: row.until, default=None)
        if newest is None or now - newest.until > CONTINUED_WITHIN_SECONDS:
            return TargetRow(target.name)
        return TargetRow(target.name, series=newest.state)

    def _start(self, target: Target, now: float) -> float:
        """Where to look for the first page: not in what the store has already."""
        spans = backfills.own_spans(self._store.cursor(), target.name, target.replica)
        return max([now - FIRST_SECONDS, *(span.until for span in spans)])

    def _forget(self, now: float) -> None:
        """Targets the Prometheus scrapes no more, and later their state too."""
        gone = {n for n, f in self._followed.items() if now - f.found_at > GONE_AFTER_SECONDS}
        if gone:
            logger.info("no longer scraped by %s: %s", self._api.where, ", ".join(sorted(gone)))
            self._followed = {n: f for n, f in self._followed.items() if n not in gone}
            with self._store.write() as cursor:
                remove_targets(cursor, gone)

    # ---------------------------------------------------------------- samples

    def _read(self, followed: _Followed) -> None:
        """All new pages of one target, a bounded piece at a time."""
        latest = self._now() - self._settings.delay_seconds
        window = CATCH_UP_SECONDS
        while followed.read_until < latest and not self._stopped.is_set():
            end = min(followed.read_until + window, latest)
            try:
                series = self._api.raw(followed.past.selector, followed.read_until, end)
            except TooMuch:
                if window <= SHORTEST_SECONDS:
                    raise
                window /= 2
                continue
            pages = pages_of(series, followed.past.labels)
            self._take(followed, [page for page in pages if page.unix > (followed.seen_unix or 0)])
            followed.read_until = end
        self._miss(followed, latest)

    def _miss(self, followed: _Followed, latest: float) -> None:
        """A target without a sample for long is no longer up, whatever its last page said."""
        if followed.seen_unix is not None and latest - followed.seen_unix > MISSED_AFTER_SECONDS:
            error = f"{self._api.where} has had no sample of it for some minutes"
            followed.row = replace(followed.row, up=False, error=error)

    def _take(self, followed: _Followed, pages: Sequence[PastPage]) -> None:
        if not pages:
            return
        settings, target = self._targets, followed.target
        interval = followed.past.interval_seconds
        who = TargetIdentity(
            target.name, target.replica, target.role, interval, "prometheus", self._api.where
        )
        labels = PageLabels(
            settings.replica_label,
            target.tenant_label or settings.tenant_label,
            target.route_label or settings.route_label,
            self._store.key,
        )
        intake = PageIntake(who, followed.row, PagesSummary(), labels)
        samples = [sample for page in pages for sample in intake.take(_recorded(target, page))]
        if followed.past.copies:
            samples = [sample for sample in samples if sample.exported_by is None]
        rows = intake.rows()
        with self._store.write() as cursor:
            samples = append_samples(cursor, samples)
            upsert_targets(cursor, rows)
        for row in rows:
            followed.row = row
            followed.seen_unix = TargetState.from_json(row.series).seen_unix
        followed.replicas |= {sample.replica for sample in samples}
        if self._on_samples is not None and samples:
            self._on_samples(samples)


def _recorded(target: Target, page: PastPage) -> RecordedPage:
    error = DOWN if page.text is None else None
    return RecordedPage(target.name, page.unix, None, error=error, text=page.text)
