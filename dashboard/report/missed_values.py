"""Why tokens missed, as values of the weekly report. Ratios are of prompt tokens with causes."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class CauseShare:
    """One cause in the week and in the week before it."""

    cause: str
    meaning: str
    tokens: int
    prompt_ratio: float
    prompt_ratio_before: float | None  # None = nothing was explained then
    change_ratio: float | None


@dataclass(frozen=True)
class TemplateMissed:
    """A template with what it missed, and the cause it missed most by ('' = it missed nothing)."""

    template: str
    prompt_tokens: int
    missed_tokens: int
    missed_ratio: float
    cause: str
    cause_ratio: float


@dataclass(frozen=True)
class NotExplained:
    """Requests without causes: chainless, late or unreported."""

    reason: str
    requests: int
    prompt_tokens: int


@dataclass(frozen=True)
class LayoutFinding:
    """What in a template's layout breaks reuse. Its gain is of the requests looked at."""

    template: str
    kind: str
    frequency: str
    from_token: int
    until_token: int
    gain_tokens: int
    gain_ratio: float | None
    advice: str
    command: str


@dataclass(frozen=True)
class CrossedScope:
    """Cached tokens that only another scope had computed."""

    model: str
    replica: str
    tenant: str
    likely_other_tenants: str  # '' = not known
    reused_requests: int
    reused_at_least_tokens: int


@dataclass(frozen=True)
class WhyMissed:
    """The waterfall: prompt tokens = cached tokens + those of all causes. Without explained
    requests prompt tokens are 0, and only `not_explained` tells of them."""

    sentence: str
    caution: str  # what the figures leave out
    prompt_tokens: int
    cached_tokens: int
    explained_ratio: float | None  # of the reported prompt tokens
    missed_change_ratio: float | None  # more missed than in the week before; None = not known
    causes: tuple[CauseShare, ...]  # in the order in which they are told apart
    templates: tuple[TemplateMissed, ...]
    not_explained: tuple[NotExplained, ...]
    layout: tuple[LayoutFinding, ...]
    layout_since: datetime | None  # the time whose prompts were looked at
    layout_until: datetime | None
    crossed: tuple[CrossedScope, ...]
