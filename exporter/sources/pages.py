"""Recorded metric pages as input: taken in like our own scrapes. `page_files` finds them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from exporter.records import EngineSample
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.engines.reading import UnknownPage, read_page
from exporter.sources.exposition import NotAMetricsPage
from exporter.sources.increase import advance
from exporter.sources.page_files import RecordedPage, read_pages
from exporter.sources.target_state import TargetIdentity, TargetState
from exporter.store.samples import TargetRow, append_samples, load_targets, upsert_targets
from exporter.store.store import Store

# Pages per transaction: large enough that writing costs little, small enough for memory.
BATCH_PAGES = 2000
# Exemplary messages a summary keeps; the rest is counted.
KEPT_MESSAGES = 20


@dataclass
class PagesSummary:
    """What `ingest_pages` did. Nothing is left out silently: every page is in one count.

    `pages` were taken; `skipped` are not newer than what the store already has of their
    target; `down` are recorded failures; `unreadable` could not be parsed; `foreign` are
    metric pages of no engine we know. `missing_metrics` is what each target's last page lacked,
    with what to do about it.
    """

    pages: int = 0
    samples: int = 0
    skipped: int = 0
    down: int = 0
    unreadable: int = 0
    foreign: int = 0
    resets: int = 0
    replicas: set[str] = field(default_factory=set)
    missing_metrics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    first_unix: float | None = None
    last_unix: float | None = None
    messages: list[str] = field(default_factory=list)

    def say(self, message: str) -> None:
        """Keep the first few messages, each once."""
        if message not in self.messages and len(self.messages) < KEPT_MESSAGES:
            self.messages.append(message)


def ingest_pages(
    store: Store, paths: Iterable[Path], labels: PageLabels | None = None
) -> PagesSummary:
    """Take recorded pages into the store; reading them again adds nothing.

    A target is named after its folder. `labels` are custom labels of the series with a meaning of
    their own.
    """
    pages = list(read_pages(paths))
    summary = PagesSummary()
    known = load_targets(store.cursor())
    labels = replace(labels or PageLabels(), hash_key=store.key)
    for target, own in groupby(pages, key=lambda page: page.target):
        who = TargetIdentity(target, target, origin="file")
        intake = PageIntake(who, known.get(target), summary, labels)
        for batch in _batches(list(own)):
            samples = [sample for page in batch for sample in intake.take(page)]
            with store.write() as cursor:
                append_samples(cursor, samples)
                upsert_targets(cursor, intake.rows())
    return summary


class PageIntake:
    """Takes one target's recorded pages, one after the other."""

    def __init__(
        self,
        who: TargetIdentity,
        row: TargetRow | None,
        summary: PagesSummary,
        labels: PageLabels | None = None,
    ) -> None:
        self._who = who
        self._labels = labels
        self._summary = summary
        self._row = row or TargetRow(target=who.target)
        self._state = TargetState.from_json(self._row.series)

    def rows(self) -> list[TargetRow]:
        """The target's row, state included, as it stands now; none if it is no engine."""
        if self._state.known_unix is None:
            return []
        return [replace(self._row, series=self._state.to_json())]

    def take(self, page: RecordedPage) -> list[EngineSample]:
        """The samples of one page; none for a page seen before, down or not readable."""
        if self._state.seen_unix is not None and page.scraped_unix <= self._state.seen_unix:
            self._summary.skipped += 1
            return []
        if page.down:
            self._summary.down += 1
            self._fail(page, page.error or f"HTTP status {page.status}")
            return []
        try:
            return self._read(page)
        except UnknownPage as error:
            self._summary.foreign += 1
            self._summary.say(f"{page.path or page.target}: {error}")
        except NotAMetricsPage as error:
            self._summary.unreadable += 1
            self._summary.say(f"{page.path or page.target}: {error}")
            self._fail(page, str(error))
        return []

    def _read(self, page: RecordedPage) -> list[EngineSample]:
        body = page.body()
        content_type = page.content_type or _content_type(body)
        engine_page = read_page(body, content_type, self._labels, self._state.ranked)
        unix = engine_page.time_of(page.scraped_unix)
        seen = self._state.seen_unix
        samples = advance(self._state, engine_page, unix, self._who)
        if self._state.seen_unix == seen:
            self._summary.skipped += 1
            return []
        moment = datetime.fromtimestamp(unix, UTC)
        self._row = replace(
            self._row,
            engine=engine_page.engine.name,
            up=True,
            last_attempt=moment,
            last_success=moment,
            error=None,
            missing_metrics=engine_page.missing,
            missing_advice=engine_page.advice,
        )
        self._count(engine_page.advice, engine_page.warnings, samples, unix)
        return samples

    def _count(
        self,
        advice: tuple[str, ...],
        warnings: tuple[str, ...],
        samples: list[EngineSample],
        unix: float,
    ) -> None:
        summary = self._summary
        summary.pages += 1
        summary.samples += len(samples)
        summary.resets += any(sample.reset for sample in samples)
        summary.replicas.update(sample.replica for sample in samples)
        summary.missing_metrics[self._who.target] = advice
        summary.first_unix = min(summary.first_unix or unix, unix)
        summary.last_unix = max(summary.last_unix or unix, unix)
        for warning in warnings:
            summary.say(f"{self._who.target}: {warning}")

    def _fail(self, page: RecordedPage, error: str) -> None:
        self._state.fail(page.scraped_unix)
        moment = datetime.fromtimestamp(page.scraped_unix, UTC)
        self._row = replace(self._row, up=False, last_attempt=moment, error=error)


def _content_type(body: bytes) -> str:
    """A file does not tell; only OpenMetrics ends with an end mark."""
    openmetrics = body.rstrip().endswith(b"# EOF")
    return "application/openmetrics-text" if openmetrics else "text/plain"


def _batches(pages: Sequence[RecordedPage]) -> Iterator[Sequence[RecordedPage]]:
    for start in range(0, len(pages), BATCH_PAGES):
        yield pages[start : start + BATCH_PAGES]
