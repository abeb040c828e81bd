"""What a weekly report says, as values: built by `build`, drawn by html, markdown and as_json.

Tokens are counts, ratios 0 to 1, times UTC. None = not known, which is never 0. The three
figures of page one (billed, freed, first token) are of different kinds and are never added.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from dashboard.report.detail_values import (
    EngineTtft,
    EvictionRow,
    HourCell,
    MemoryRow,
    OffloadRow,
    OutcomeRow,
    PriceRow,
    Segments,
)
from dashboard.report.missed_values import WhyMissed
from dashboard.report.quality_values import Quality
from dashboard.report.weeks import Week

Basis = Literal["log", "engine", "none"]


@dataclass(frozen=True)
class Missing:
    """What a section cannot say with this data, and the one step to get it (a command, or '')."""

    section: str
    what: str
    step: str


@dataclass(frozen=True)
class DataState:
    """Which data the report is made of."""

    level: int | None  # as in question store_state; None = no data at all
    demo: bool
    data_from: datetime | None  # earliest fact of the week's basis in the store
    data_until: datetime | None  # latest fact in the store
    partial: str  # why the week is not whole, in words; '' = it is
    hours_with_traffic: int
    hours: float  # length of the week
    rolled_up: bool  # only roll-ups are left of (some of) the week


@dataclass(frozen=True)
class Headline:
    """The leading ratio on its own basis, and what it is compared with."""

    basis: Basis
    token_hit_ratio: float | None
    token_hit_ratio_before: float | None
    coverage_ratio: float | None  # of the log; None where engine counters lead
    coverage_ratio_before: float | None
    requests: int | None  # rows of the log; None where engine counters lead
    prompt_tokens: int | None
    reported_prompt_tokens: int | None
    cached_tokens: int | None
    computed_tokens: int | None
    ineligible_prompt_tokens: int  # left out of the ratio
    compared_since: datetime
    compared_until: datetime
    sentence: str

    @property
    def change_ratio(self) -> float | None:
        """Difference from the week before; None if either is not known."""
        if self.token_hit_ratio is None or self.token_hit_ratio_before is None:
            return None
        return self.token_hit_ratio - self.token_hit_ratio_before


@dataclass(frozen=True)
class Billed:
    """What caching saved on bills, net of what writes cost more. USD at list prices."""

    net_saved_usd: float
    input_usd: float
    write_surcharge_usd: float
    priced_ratio: float  # share of the prompt tokens that have a price
    assumptions: str
    price_sources: str


@dataclass(frozen=True)
class Freed:
    """Prefill that was not done, estimated in GPU-hours; its worth only as "freed"."""

    saved_tokens: int
    gpu_hours: float
    gpus_per_replica: int
    freed_usd: float | None  # None without a GPU price in the settings
    unknown_speed_tokens: int  # saved tokens of replicas without a prefill speed, not in gpu_hours


@dataclass(frozen=True)
class TtftClass:
    """Medians of hits and misses whose prompts are about as long."""

    from_tokens: int
    to_tokens: int
    hit_requests: int
    miss_requests: int
    hit_p50_seconds: float | None
    miss_p50_seconds: float | None


@dataclass(frozen=True)
class TtftPair:
    """Hits against misses at equal prompt length: medians per class, weighted by its hits."""

    ttft_point: str
    hit_seconds: float
    miss_seconds: float
    hit_requests: int
    miss_requests: int


@dataclass(frozen=True)
class Trust:
    """One comparison of the figures with somebody else's count."""

    against: str  # 'engine' | 'provider'
    verdict: str  # 'agrees' | 'differs' | 'cannot be compared'
    sentence: str
    difference_ratio: float | None


@dataclass(frozen=True)
class Incident:
    """Something that may have moved a ratio: kind is drop, reset, no data or coverage."""

    ts: datetime
    kind: str
    subject: str  # model, replica or source; '' = all
    sentence: str
    severity: str  # 'page' | 'ticket' | ''


@dataclass(frozen=True)
class WeekPoint:
    """One of the 13 weeks."""

    week: Week
    token_hit_ratio: float | None  # None = no traffic that reports
    coverage_ratio: float | None
    reported_prompt_tokens: int | None
    partial: bool
    incidents: int
    incident_words: str


@dataclass(frozen=True)
class Mover:
    """A segment whose own ratio moved against the week before, and why as far as is known."""

    by: str  # template, route, tenant, model or replica
    name: str
    within_tokens: int  # tokens cached more (or computed more, negative) by its own ratio
    token_hit_ratio: float | None
    token_hit_ratio_before: float | None
    traffic_share_ratio: float | None
    why: str


@dataclass(frozen=True)
class Change:
    """A change worth making: tokens a day it would save, and how that is known."""

    kind: str
    subject: str
    sentence: str
    tokens_per_day_lower: int | None
    tokens_per_day_upper: int | None
    basis: str  # 'measured' | 'replayed' | 'estimated'
    evidence: str
    next_step: str
    overlaps: str  # with which other change it may share tokens; '' = none


@dataclass(frozen=True)
class Peak:
    """The window that fell furthest, in tokens, below what its hours usually reach."""

    ts: datetime
    until: datetime
    model: str
    token_hit_ratio: float
    usual_ratio: float
    expected_ratio: float
    expected_low_ratio: float | None
    expected_high_ratio: float | None
    pressure_ratio: float | None
    reported_prompt_tokens: int
    was_expected: bool | None  # None = cannot be judged
    drop_class: str
    evidence: str
    contributor: str
    severity: str
    sentence: str


@dataclass(frozen=True)
class DefinedColumn:
    """One column of a question, as its header says it."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Definition:
    """A question behind the report's figures, from its header."""

    name: str
    question: str
    grain: str
    columns: tuple[DefinedColumn, ...]


@dataclass(frozen=True)
class WeekReport:
    """The whole report. Tuples are ordered as they are shown, and bounded."""

    week: Week
    data: DataState
    headline: Headline
    engine_ratio: float | None  # engine counters beside a log that leads
    engine_reported_prompt_tokens: int | None  # what that is of: maybe of a part of the week
    billed: Billed | None
    freed: Freed | None
    ttft: TtftPair | None
    trust: tuple[Trust, ...]
    weeks: tuple[WeekPoint, ...]  # oldest first, the report's week last
    judged_hours: int  # hours judged as alerts do: those that fell furthest below their usual ratio
    incidents: tuple[Incident, ...]  # of the report's week, in order of time
    more_incidents: int
    up: tuple[Mover, ...]
    down: tuple[Mover, ...]
    changes: tuple[Change, ...]
    peak: Peak | None
    hours: tuple[HourCell, ...]
    segments: tuple[Segments, ...]
    ttft_classes: tuple[TtftClass, ...]
    outcomes: tuple[OutcomeRow, ...]
    engine_ttft: tuple[EngineTtft, ...]
    memory: tuple[MemoryRow, ...]
    evictions: tuple[EvictionRow, ...]
    offload: tuple[OffloadRow, ...]
    prices: tuple[PriceRow, ...]
    missed: WhyMissed
    quality: Quality
    definitions: tuple[Definition, ...]
    missing: tuple[Missing, ...]

    def missing_of(self, section: str) -> tuple[Missing, ...]:
        """What is missing from one section."""
        return tuple(gap for gap in self.missing if gap.section == section)
