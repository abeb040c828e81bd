"""What a weekly report says of its own data, as values: parts of `WeekReport`."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class SourceRow:
    """A source of the figures, in words."""

    name: str
    details: str


@dataclass(frozen=True)
class Reject:
    """Rows that could not be read, of those that arrived in the week."""

    source: str
    reason: str
    rows: int


@dataclass(frozen=True)
class Ineligible:
    """Requests no prefix cache could serve, in no ratio."""

    reason: str
    requests: int
    prompt_tokens: int


@dataclass(frozen=True)
class Quality:
    """What was left out, came late or never came."""

    sources: tuple[SourceRow, ...]
    rejects: tuple[Reject, ...]
    rejected_rows: int  # arrived in the week, like duplicates and conflicts
    duplicates: int
    conflicts: int
    counted_twice: tuple[str, ...]
    response_cache_requests: int
    response_cache_prompt_tokens: int
    ineligible: tuple[Ineligible, ...]  # without those a response cache answered
    late_requests: int  # rows of the week that came more than a day after its end
    late_prompt_tokens: int
    late_last_arrived: datetime | None
    ratio_before_late: float | None  # what a report made a day after the week would have said
    revised: str  # the same in words; '' = nothing came late, or all did
    loaded_afterwards: str  # in words, where all rows came so late; '' = not
    engine_resets: int | None
    engine_gaps: int | None
    cautions: tuple[str, ...]
