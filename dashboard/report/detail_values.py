"""What a weekly report says behind its first page, as values: parts of `WeekReport`."""

from dataclasses import dataclass
from datetime import datetime

from dashboard.report.weeks import Slot


@dataclass(frozen=True)
class HourCell:
    """One hour of the week as its clocks show it; all measures None without traffic."""

    slot: Slot
    since: datetime
    token_hit_ratio: float | None
    coverage_ratio: float | None
    reported_prompt_tokens: int | None
    prompt_tokens: int | None
    is_drop: bool
    kv_usage_ratio: float | None
    computed_tokens_per_second: float | None


@dataclass(frozen=True)
class Segment:
    """A value of a dimension; the last one may be all others together (`others` > 0)."""

    by: str
    name: str
    others: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    reported_prompt_tokens: int
    token_hit_ratio: float | None
    token_hit_ratio_before: float | None
    coverage_ratio: float | None


@dataclass(frozen=True)
class Segments:
    """The largest values of one dimension."""

    by: str
    rows: tuple[Segment, ...]


@dataclass(frozen=True)
class OutcomeRow:
    """TTFT of one outcome at one point, all lengths together."""

    ttft_point: str
    outcome: str
    requests: int
    p50_seconds: float | None
    p90_seconds: float | None
    p95_seconds: float | None
    p99_seconds: float | None


@dataclass(frozen=True)
class EngineTtft:
    """TTFT by the engines' own histogram, which cannot tell hits from misses."""

    model: str
    requests: int
    p50_seconds: float | None
    p95_seconds: float | None


@dataclass(frozen=True)
class MemoryRow:
    """The latest split of a model's KV memory in the week. `basis`: what tells cached and free."""

    model: str
    replicas: int
    as_of: datetime | None
    capacity_tokens: int | None
    running_tokens: int | None
    cached_tokens: int | None
    free_tokens: int | None
    kv_usage_ratio: float | None
    basis: str


@dataclass(frozen=True)
class EvictionRow:
    """KV that left a tier in the week."""

    basis: str
    observer: str
    tier: str
    evicted_tokens: int | None
    demoted_tokens: int | None
    reset_tokens: int | None
    turnover_ratio: float | None  # share of the capacity per minute
    never_reused_ratio: float | None


@dataclass(frozen=True)
class OffloadRow:
    """Whether keeping KV in a lower tier pays."""

    tier: str
    verdict: str
    sentence: str
    stored_bytes: int | None
    loaded_bytes: int | None


@dataclass(frozen=True)
class PriceRow:
    """What a model's tokens cost in the week and what caching saved."""

    model: str
    others: int
    prompt_tokens: int
    input_usd: float | None
    net_saved_usd: float | None
    write_surcharge_usd: float | None
    priced_ratio: float | None
