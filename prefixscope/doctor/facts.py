"""The facts findings are made from, whoever gathered them. None always means: not known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.sources.spend_logs.look import SpendLogFacts


@dataclass(frozen=True)
class TargetFacts:
    """One metric page, read directly, by the exporter, or both.

    Token counts are since the engine's start where the page was read directly, of the window
    where only the exporter was asked. `error` says why there is no page, `instead` what answers
    there and `fix` how to get the page. `up_for_exporter` is what a running exporter saw last, and
    `exporter_says` its error.
    """

    name: str
    url: str | None = None
    error: str | None = None
    instead: str | None = None
    fix: str | None = None
    up_for_exporter: bool | None = None
    exporter_says: str | None = None
    engine: str | None = None
    title: str = ""
    version: str | None = None
    observer: str = "engine"
    role: str | None = None
    models: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    caching_enabled: bool | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    looked_up_requests: int | None = None
    skipped_requests: int | None = None
    tells_cached_memory: bool = False
    frozen: bool = False
    stood_still_seconds: float | None = None
    running_requests: int | None = None
    ahead_seconds: float | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    names_cached_tokens: bool | None = None
    renders_prompts: bool | None = None
    probe_error: str | None = None

    @property
    def is_engine(self) -> bool:
        """Whether an engine counts here, and no router, store or gateway."""
        return self.observer == "engine" and self.engine is not None

    @property
    def has_page(self) -> bool:
        """Whether its page was read by anybody."""
        return self.error is None and self.engine is not None


@dataclass(frozen=True)
class RowFacts:
    """The newest rows of one model in one log; see the question row_evidence."""

    model: str = ""
    rows: int = 0
    eligible_rows: int = 0
    reported_rows: int = 0
    cached_rows: int = 0
    without_usage_rows: int = 0
    inclusive_rows: int = 0
    exclusive_rows: int = 0
    assumed_rows: int = 0
    unknown_basis_rows: int = 0
    median_prompt_tokens: float | None = None
    median_ttft_seconds: float | None = None
    ahead_rows: int = 0
    max_ahead_seconds: float | None = None
    chained_rows: int = 0
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True)
class RejectFacts:
    """Rows set aside for one reason, with where the latest stands."""

    reason: str
    rows: int
    detail: str | None = None
    position: int | None = None


@dataclass(frozen=True)
class LogFacts:
    """One source of rows. `error` says why it cannot be read at all.

    `can_report` is whether its format has a cached count. `sampled`: read here for the moment,
    because nobody has its rows yet.
    """

    source: str
    source_format: str = ""
    path: str | None = None
    error: str | None = None
    fix: str | None = None
    sampled: bool = False
    can_report: bool = True
    silent_seconds: float | None = None
    accepted: int = 0
    duplicate: int = 0
    conflicting: int = 0
    rejected: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)
    rejects: tuple[RejectFacts, ...] = ()
    newest: tuple[RowFacts, ...] = ()


@dataclass(frozen=True)
class JoinFacts:
    """How many rows of one side of a source found their other half."""

    source: str
    side: str
    rows: int
    unmatched: int


@dataclass(frozen=True)
class Window:
    """Prompt tokens that log and engines counted over the time both were watched, and how many
    requests the log has of it."""

    log_prompt_tokens: int
    engine_prompt_tokens: int
    log_requests: int


@dataclass(frozen=True)
class ReportFacts:
    """How our rows of one model compare with a usage report; days of each verdict.

    `latest` is the last day that differs (else the last), and what follows is of that day.
    """

    reporter: str
    provider: str
    model: str
    agreeing_days: int = 0
    differing_days: int = 0
    uncompared_days: int = 0
    last_day: str = ""
    latest: str = ""
    difference_ratio: float | None = None
    reasons: tuple[str, ...] = ()
    evidence: str = ""


@dataclass(frozen=True)
class EventFacts:
    """An entry under `events`. `derived`: it stands for every scraped engine. `leak` says who
    could listen too, None = nobody on another machine."""

    endpoint: str
    source: str
    replays: bool
    derived: bool = False
    leak: str | None = None


@dataclass(frozen=True)
class StreamFacts:
    """One stream of KV-cache events as the exporter or the store knows it.

    `uncertain` says why its state may be wrong; `scraped`: a metric page has its replica.
    """

    source: str
    replica: str
    connected: bool = False
    scraped: bool = True
    batches: int = 0
    missed_batches: int = 0
    unreadable_batches: int = 0
    uncertain: str | None = None


@dataclass(frozen=True)
class SourceFacts:
    """Rows of the questions figure_sources and source_pairs."""

    sources: tuple[Mapping[str, Any], ...] = ()
    pairs: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything gathered. `exporter_error` says why a configured exporter or store was not
    asked; `list_errors` name lists of targets that could not be read. `sources` are Prometheus
    read in place of pages: how many engines each has lately scraped, or why it does not answer.
    `spend_logs` are databases among the logs; `told_by` says whose figures the store has."""

    targets: tuple[TargetFacts, ...] = ()
    logs: tuple[LogFacts, ...] = ()
    joins: tuple[JoinFacts, ...] = ()
    window: Window | None = None
    reports: tuple[ReportFacts, ...] = ()
    asked: str | None = None
    exporter_error: str | None = None
    list_errors: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, int | str] = field(default_factory=dict)
    events: tuple[EventFacts, ...] = ()
    streams: tuple[StreamFacts, ...] = ()
    spend_logs: tuple[SpendLogFacts, ...] = ()
    told_by: SourceFacts = SourceFacts()

    @property
    def engines(self) -> tuple[TargetFacts, ...]:
        """Targets that are engines and answer."""
        return tuple(t for t in self.targets if t.is_engine and t.has_page)
