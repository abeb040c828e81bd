"""The store's side of history: what of a target's past is missing, and taking it in.

Pages go through the same intake as recorded ones, so that resets, baselines, ranks and missing
metrics are what they are live. How far a span is filled is written in the transaction of its
samples: after a crash the next run goes on from there.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from exporter.records import EngineSample, ReplicaRole
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.page_files import RecordedPage
from exporter.sources.pages import PageIntake, PagesSummary
from exporter.sources.prometheus.names import AskedTarget, Naming, labels_key
from exporter.sources.prometheus.pages import DOWN
from exporter.sources.target_settings import TargetSettings
from exporter.sources.target_state import TargetIdentity, TargetState
from exporter.store import backfills
from exporter.store.backfills import Filled, Span, free_spans
from exporter.store.samples import TargetRow, append_samples, load_targets
from exporter.store.store import Store

# Until 2100, as far as times of pages go.
_LATEST_UNIX = 4_102_444_800.0
Moment = Annotated[float, Field(ge=0, le=_LATEST_UNIX)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OpenSpan(_Message):
    """A span to fill. `key` is where it was meant to begin when it was begun; `seen` the last
    page taken of it; `shared_end`: the page at its end is the first of a span already filled."""

    key: Moment
    since: Moment
    until: Moment
    seen: Moment | None = None
    shared_end: bool = False


class Plan(_Message):
    """What a target is called and which spans of its past are missing.

    `covered` are the spans that stay as they are: `own` were scraped (or are still), `filled`
    came from a Prometheus before.
    """

    target: str
    replica: str
    role: ReplicaRole | None = None
    interval_seconds: float | None = None
    replica_label: str | None = None
    tenant_label: str | None = None
    route_label: str | None = None
    copies: bool = False
    labels: str
    spans: tuple[OpenSpan, ...] = ()
    covered: tuple[tuple[Literal["own", "filled"], Moment, Moment | None], ...] = ()


class Piece(_Message):
    """Pages of one span in order: (Unix seconds, text; None = the scrape failed)."""

    source: str = Field(max_length=500)
    plan: Plan
    key: Moment
    pages: tuple[tuple[Moment, str | None], ...]


class Taken(_Message):
    """What became of a piece. `seen` is the last page taken of the span."""

    pages: int = 0
    samples: int = 0
    resets: int = 0
    gaps: int = 0
    down: int = 0
    foreign: int = 0
    unreadable: int = 0
    replicas: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    seen: Moment | None = None


class History:
    """Plans and takes history. `targets` are the settings that name what we scrape ourselves."""

    def __init__(self, store: Store, targets: TargetSettings) -> None:
        self._store = store
        self._settings = targets
        self._naming = Naming(targets)

    def plan(self, asked: AskedTarget, since: Moment, until: Moment) -> Plan:
        """The spans of [since, until] that neither our scraper nor an earlier run covered."""
        # As exact as the store keeps them, so that a span is known again by where it begins.
        since, until = round(since, 3), round(until, 3)
        cursor = self._store.cursor()
        target = self._naming.name(cursor, asked)
        labels = labels_key(asked.labels)
        rows = backfills.filled(cursor, target.name, labels)
        own = backfills.own_spans(cursor, target.name, target.replica)
        own += _still_followed(load_targets(cursor).get(target.name))
        covered = [*own, *(Span(row.since, row.until) for row in rows)]
        free = free_spans(Span(since, until), covered)
        settings = self._settings
        return Plan(
            target=target.name,
            replica=target.replica,
            role=target.role,
            interval_seconds=asked.interval_seconds,
            replica_label=settings.replica_label,
            tenant_label=target.tenant_label or settings.tenant_label,
            route_label=target.route_label or settings.route_label,
            copies=asked.copies,
            labels=labels,
            spans=tuple(_open(span, rows) for span in free),
            covered=(
                *(("own", s.since, s.until if s.until < _LATEST_UNIX else None) for s in own),
                *(("filled", row.first, row.until) for row in rows),
            ),
        )

    def take(self, piece: Piece) -> Taken:
        """Take pages in; pages taken before change nothing."""
        plan = piece.plan
        row = self._row(plan, piece.key)
        before = TargetState.from_json(row.state if row else None)
        known = TargetRow(plan.target, series=row.state if row else None)
        who = TargetIdentity(
            plan.target, plan.replica, plan.role, plan.interval_seconds, "backfill", piece.source
        )
        labels = PageLabels(
            plan.replica_label, plan.tenant_label, plan.route_label, self._store.key
        )
        summary = PagesSummary()
        intake = PageIntake(who, known, summary, labels)
        samples = _take_pages(intake, piece)
        stored: list[EngineSample] = []
        for told in intake.rows():
            state = TargetState.from_json(told.series)
            until = piece.key if state.seen_unix is None else state.seen_unix
            first = row.first if row and before.seen_unix is not None else summary.first_unix
            filled = Filled(
                plan.target, plan.labels, plan.replica, piece.source,
                piece.key, piece.key if first is None else first, until, told.series or "",
            )  # fmt: skip
            with self._store.write() as cursor:
                stored = append_samples(cursor, samples)
                backfills.put(cursor, filled)
        seen = next((TargetState.from_json(r.series).seen_unix for r in intake.rows()), None)
        return _taken(summary, stored, seen)

    def _row(self, plan: Plan, key: Moment) -> Filled | None:
        rows = backfills.filled(self._store.cursor(), plan.target, plan.labels)
        return next((row for row in rows if row.since == key), None)


def _still_followed(row: TargetRow | None) -> list[Span]:
    """From where somebody's own state of a target goes on by itself, with its next page."""
    state = TargetState.from_json(row.series if row else None)
    began = state.known_unix if state.seen_unix is None else state.seen_unix
    return [] if began is None else [Span(began, _LATEST_UNIX)]


def _open(span: Span, rows: Sequence[Filled]) -> OpenSpan:
    """A free span as the next piece of a filled one, or as a new one up to the next."""
    before = next((row for row in rows if row.until == span.since), None)
    after = next((row for row in rows if row.since == span.until), None)
    seen = None
    if before is not None:
        seen = TargetState.from_json(before.state).seen_unix
    return OpenSpan(
        key=before.since if before else span.since,
        since=span.since,
        until=after.first if after else span.until,
        seen=seen,
        shared_end=after is not None,
    )


def _take_pages(intake: PageIntake, piece: Piece) -> list[EngineSample]:
    target = piece.plan.target
    samples: list[EngineSample] = []
    for unix, text in piece.pages:
        error = None if text is not None else DOWN
        page = RecordedPage(target, unix, None, error=error, text=text)
        samples += intake.take(page)
    if piece.plan.copies:
        samples = [sample for sample in samples if sample.exported_by is None]
    return samples


def _taken(summary: PagesSummary, samples: Sequence[EngineSample], seen: float | None) -> Taken:
    return Taken(
        pages=summary.pages,
        samples=len(samples),
        resets=sum(sample.reset for sample in samples),
        gaps=sum(sample.gap for sample in samples),
        down=summary.down,
        foreign=summary.foreign,
        unreadable=summary.unreadable,
        replicas=tuple(sorted(summary.replicas)),
        missing=next(iter(summary.missing_metrics.values()), ()),
        messages=tuple(summary.messages),
        seen=seen,
    )
