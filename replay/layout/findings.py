"""What is found: places, with their kind, how often they change, and what mending them wins."""

from dataclasses import dataclass
from typing import Literal

from replay.layout.frequency import Frequency
from replay.layout.kinds import Kind

SUGGESTIONS: dict[Kind, str] = {
    "clock": "Put the time at the end of the prompt, or round it to what the answer needs.",
    "uuid": "Put the id at the end of the prompt, or into a header the model never sees.",
    "counter": "Put the number at the end of the prompt, or leave it out.",
    "name": "Put what is known of the user behind what all users share.",
    "tool_order": "Sort the tools by name before they are rendered.",
    "key_order": "Write JSON with sorted keys.",
    "white_space": "Render the template in one place, with one kind of line end.",
    "retrieved": "Put retrieved passages behind the instructions, just before the question.",
    "thinking_removed": "Keep the thinking in the history, or switch to a template that keeps it.",
    "template_version": "Nothing to mend: the new version has to be computed once.",
    "tokenizer_join": "Send generated token ids back instead of their text.",
    "unknown": "Put what changes behind what stays.",
}


_MOVED: frozenset[Kind] = frozenset({"clock", "uuid", "counter", "name", "retrieved", "unknown"})


@dataclass(frozen=True)
class Quote:
    """What one request has at a place, with a little of what stands around it; `source` is the file
    and line of the request. It is the user's own text: for their own terminal only."""

    before: str
    value: str
    behind: str
    source: str = ""


@dataclass(frozen=True)
class Proof:
    """Cached and prompt tokens of a template's requests in a replay, as they are and mended."""

    prompt_tokens: int
    cached_tokens: int
    mended_prompt_tokens: int
    mended_cached_tokens: int

    @property
    def before_ratio(self) -> float:
        """The token hit ratio as it is; 0 where there is nothing."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def after_ratio(self) -> float:
        """The token hit ratio once mended."""
        whole = self.mended_prompt_tokens
        return self.mended_cached_tokens / whole if whole else 0.0

    @property
    def won_tokens(self) -> int:
        """Cached tokens more."""
        return self.mended_cached_tokens - self.cached_tokens


@dataclass(frozen=True)
class Finding:
    """One place where the requests of a template part.

    `request`: number of the request the place is given in, `offset`: characters before it in its
    segment. `parted_ratio`: share of the template's requests that part here from the one before.
    `won_tokens`: cached tokens that mending wins where the others are mended too. `alone`: this one
    mended by itself. For `once`: `lost_tokens` were computed again, and the cache was warm again by
    `warm_at` (seconds since the epoch, None where no time is known).
    """

    kind: Kind
    frequency: Frequency
    segment: str
    token_index: int
    request: int
    offset: int
    parted_ratio: float
    won_tokens: int
    alone: Proof
    quotes: tuple[Quote, ...] = ()
    more_places: int = 0
    lost_tokens: int = 0
    warm_at: float | None = None

    @property
    def suggestion(self) -> str:
        """What to do about it."""
        if self.frequency in ("session", "user", "day") and self.kind in _MOVED:
            return "Put it behind what all requests share, in front of the conversation."
        return SUGGESTIONS[self.kind]


@dataclass(frozen=True)
class TemplateReport:
    """The findings of one template, what wins most first, and all of them mended together."""

    name: str
    requests: int
    prompt_tokens: int
    findings: tuple[Finding, ...]
    together: Proof


@dataclass(frozen=True)
class Report:
    """`tokens`: ids from the log, of a tokenizer, or approximate. `scale`: reported ÷ approximate
    tokens, None where no row reports any. `ordered`: all rows have times. `unknown_joins`: answers
    that come back as equal text, of which nobody can tell whether as equal tokens."""

    templates: tuple[TemplateReport, ...]
    requests: int
    compared_requests: int
    block_tokens: int
    capacity_blocks: int | None
    tokens: Literal["ids", "tokenizer", "approximate"]
    scale: float | None
    ordered: bool
    unknown_joins: int
    together: Proof

    @property
    def findings(self) -> list[Finding]:
        """All of them."""
        return [finding for template in self.templates for finding in template.findings]
