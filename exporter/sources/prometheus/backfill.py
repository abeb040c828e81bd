"""Brings the past of engines out of a Prometheus, piece by piece.

The size of a piece follows what the answers hold, so that neither side needs much memory, and
halves where a server says it is too much. The state of every span is kept with its samples:
a run that ends at any point is continued by the next one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from exporter.records import ReplicaRole
from exporter.sources.discovery import POD_LABELS
from exporter.sources.prometheus.api import PrometheusApi, RawSeries, TooMuch
from exporter.sources.prometheus.history import OpenSpan, Piece, Plan, Taken
from exporter.sources.prometheus.names import AskedTarget
from exporter.sources.prometheus.pages import NAME, UP, PastPage, pages_of, thinned
from exporter.sources.prometheus.targets import PastTarget, find_targets, target_name

# One answer should hold about this many samples (some 6 MB of JSON).
SAMPLES_PER_ANSWER = 200_000
FIRST_WINDOW_SECONDS = 1_800.0
LONGEST_WINDOW_SECONDS = 86_400.0
# A server that cannot answer for so little has another trouble than the amount.
SHORTEST_WINDOW_SECONDS = 60.0
# Pages written in one transaction.
PAGES_PER_PIECE = 500
_PART = re.compile(r"_(total|bucket|sum|count|created)$")


class HistorySide(Protocol):
    """Whoever holds the store: this process, or an exporter over HTTP."""

    def plan(self, asked: AskedTarget, since: float, until: float) -> Plan:
        """Which spans are missing."""

    def take(self, piece: Piece) -> Taken:
        """Take pages in."""


@dataclass(frozen=True)
class BackfillSettings:
    """What to bring: one page per `every_seconds` (0 = each scrape) of these jobs (none = all)."""

    every_seconds: float = 60.0
    jobs: tuple[str, ...] = ()
    ha_labels: tuple[str, ...] = ()
    role: ReplicaRole | None = None


@dataclass
class TargetHistory:
    """What was found of one target and what became of it.

    `first_unix` and `last_unix` bound the scrapes read, `scrapes` of which `down` failed; `pages`
    of them were taken. `families` tells since when each metric has samples. `covered` are spans
    that were left as they are (end None = still growing).
    """

    name: str
    target: str
    replica: str
    also: tuple[str, ...] = ()
    covered: tuple[tuple[str, float, float | None], ...] = ()
    first_unix: float | None = None
    last_unix: float | None = None
    pages: int = 0
    samples: int = 0
    resets: int = 0
    gaps: int = 0
    down: int = 0
    foreign: int = 0
    unreadable: int = 0
    replicas: set[str] = field(default_factory=set)
    families: dict[str, float] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    messages: list[str] = field(default_factory=list)

    def read(self, series: Iterable[RawSeries], pages: Sequence[PastPage], seen: float) -> None:
        """Note what an answer holds behind the last page taken."""
        for one in series:
            first = next((ms / 1000 for ms in one.times if ms / 1000 > seen), None)
            if first is not None and one.labels.get(NAME) != UP:
                family = _PART.sub("", one.labels.get(NAME, ""))
                self.families[family] = min(self.families.get(family, first), first)
        scraped = [page.unix for page in pages if page.text is not None and page.unix > seen]
        if scraped:
            self.first_unix = min(self.first_unix or scraped[0], scraped[0])
            self.last_unix = max(self.last_unix or scraped[-1], scraped[-1])

    def take(self, taken: Taken) -> None:
        """Add what became of a piece."""
        self.pages += taken.pages
        self.samples += taken.samples
        self.resets += taken.resets
        self.gaps += taken.gaps
        self.down += taken.down
        self.foreign += taken.foreign
        self.unreadable += taken.unreadable
        self.replicas.update(taken.replicas)
        self.missing = taken.missing if taken.pages else self.missing
        self.messages += [text for text in taken.messages if text not in self.messages]


@dataclass
class BackfillSummary:
    """What a run found, in [since, until] (Unix seconds). `retention` is in the server's words."""

    where: str
    since: float
    until: float
    targets: list[TargetHistory] = field(default_factory=list)
    retention: str | None = None

    @property
    def first_unix(self) -> float | None:
        """The oldest sample read or already there."""
        firsts = [t.first_unix for t in self.targets if t.first_unix is not None]
        firsts += [since for target in self.targets for _, since, _ in target.covered]
        return min(firsts, default=None)


Progress = Callable[[str, float], None]


def backfill(
    api: PrometheusApi,
    history: HistorySide,
    settings: BackfillSettings,
    since: float,
    until: float,
    progress: Progress = lambda _name, _seconds: None,
) -> BackfillSummary:
    """Fill what is missing of [since, until]. `progress` is told of each target's seconds done;
    the total is (until - since) for each target, of which covered spans are done at once."""
    summary = BackfillSummary(api.where, since, until, retention=api.retention())
    found = find_targets(api, since, until, settings.jobs, settings.ha_labels)
    progress("", (until - since) * len(found))
    crowded = crowded_instances(found)
    for past in found:
        asked = asked_target(_apart(past, settings.every_seconds), crowded, settings.role)
        plan = history.plan(asked, since, until)
        told = TargetHistory(
            target_name(past.labels), plan.target, plan.replica, past.also, plan.covered
        )
        summary.targets.append(told)
        missing = sum(span.until - span.since for span in plan.spans)
        progress(plan.target, max(until - since - missing, 0.0))
        for span in plan.spans:
            _Filling(api, history, settings, past, plan, span, told).run(progress)
    return summary


def _apart(past: PastTarget, every_seconds: float) -> PastTarget:
    """With pages as far apart as they are taken: what is left out is no gap."""
    interval = past.interval_seconds
    usual = None if interval is None else max(interval, every_seconds)
    return replace(past, interval_seconds=usual)


def asked_target(
    past: PastTarget, crowded: frozenset[str], role: ReplicaRole | None
) -> AskedTarget:
    """A target as the store's side is asked about it."""
    return AskedTarget(
        labels=dict(past.labels),
        url=past.url,
        discovered=dict(past.discovered),
        interval_seconds=past.interval_seconds,
        copies=past.copies,
        crowded=past.instance in crowded,
        role=role,
    )


def crowded_instances(found: Sequence[PastTarget]) -> frozenset[str]:
    """Addresses of engines that share a pod with another one on another port."""

    def place(past: PastTarget) -> tuple[str, str]:
        pod = next((past.labels[name] for name in POD_LABELS if past.labels.get(name)), "")
        return past.instance.rpartition(":")[0], pod

    instances = {(place(past), past.instance) for past in found if place(past)[1]}
    shared = Counter(where for where, _ in instances)
    return frozenset(instance for where, instance in instances if shared[where] > 1)


class _Filling:
    """Fills one span of one target."""

    def __init__(
        self, api: PrometheusApi, history: HistorySide, settings: BackfillSettings,
        past: PastTarget, plan: Plan, span: OpenSpan, told: TargetHistory,
    ) -> None:  # fmt: skip
        self._api = api
        self._history = history
        self._every = settings.every_seconds
        self._past = past
        self._plan = plan
        self._span = span
        self._told = told
        self._window = FIRST_WINDOW_SECONDS
        self._seen = span.seen
        self._failed = 0.0
        # What is asked for next begins with the last page taken: the rest is compared with it.
        self._start = span.since if span.seen is None else span.seen

    def run(self, progress: Progress) -> None:
        """Piece after piece, oldest first, up to the end of the span."""
        done = self._start
        while done < self._span.until:
            end, series = self._ask(done)
            self._take(series, end)
            progress(self._plan.target, end - done)
            done = end

    def _ask(self, done: float) -> tuple[float, list[RawSeries]]:
        """The samples behind `done`, for as long a window as one answer can hold."""
        while True:
            end = min(done + self._window, self._span.until)
            try:
                series = self._api.raw(self._past.selector, self._start, end)
            except TooMuch:
                if self._window <= SHORTEST_WINDOW_SECONDS:
                    raise
                self._window /= 2
                continue
            self._fit(sum(len(one.times) for one in series))
            return end, series

    def _fit(self, samples: int) -> None:
        """A longer or shorter next window, by what this one held."""
        fitting = self._window * (SAMPLES_PER_ANSWER / samples if samples else 2.0)
        longest = min(self._window * 2, LONGEST_WINDOW_SECONDS)
        self._window = max(min(fitting, longest), SHORTEST_WINDOW_SECONDS)

    def _take(self, series: list[RawSeries], end: float) -> None:
        pages = pages_of(series, self._past.labels)
        self._told.read(series, pages, self._seen or 0.0)
        final = end >= self._span.until
        kept = thinned(series, pages, self._seen, self._every, end, final)
        if self._seen is None and self._span.shared_end:
            # The first page of the next span alone is no history.
            kept = [] if all(page.unix >= self._span.until for page in kept) else kept
        # A failure read again is told again; the state knows it already.
        kept = [page for page in kept if page.text is not None or page.unix > self._failed]
        self._failed = max((p.unix for p in kept if p.text is None), default=self._failed)
        for batch in _batches(kept):
            taken = self._history.take(Piece(
                source=self._api.where, plan=self._plan, key=self._span.key,
                pages=tuple((page.unix, page.text) for page in batch),
            ))  # fmt: skip
            self._told.take(taken)
            self._seen = taken.seen if taken.seen is not None else self._seen
        self._start = self._next_start(pages, end)

    def _next_start(self, pages: Sequence[PastPage], end: float) -> float:
        """Pages that were read and not taken are read again, with what follows them."""
        waiting = [p for p in pages if p.text is not None and p.unix > (self._seen or 0.0)]
        if self._seen is not None and (waiting or self._seen >= end - self._every):
            return self._seen
        return end


def _batches(pages: Sequence[PastPage]) -> Iterator[Sequence[PastPage]]:
    for start in range(0, len(pages), PAGES_PER_PIECE):
        yield pages[start : start + PAGES_PER_PIECE]
