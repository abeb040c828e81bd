"""Which hit ratio leads: the log's where it reports, else the engines', never a mixture."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dashboard.answers import Answers
from dashboard.figures.numbers import percent, points, whole
from dashboard.figures.rows import Row, Rows, number, reported_cached
from dashboard.sources import came_from
from dashboard.words import hover
from replay.counted import counted

Basis = Literal["log", "engine", "none"]
_QUESTION = {"log": "hit_ratio", "engine": "engine_hit_ratio", "none": "hit_ratio"}
_LABEL = {
    "log": "Token hit ratio",
    "engine": "Token hit ratio (engine counters)",
    "none": "Token hit ratio",
}


@dataclass(frozen=True)
class Headline:
    """The leading ratio, what stood in its place before, and the log's coverage. `came_from` says
    of log and engine which sources brought them."""

    basis: Basis
    row: Row
    before: Row
    log: Row
    engine: Row
    came_from: Mapping[str, str] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """Name of the question the ratio comes from."""
        return _QUESTION[self.basis]

    @property
    def label(self) -> str:
        """What to call the ratio: engine counters are always named as such."""
        return _LABEL[self.basis]

    @property
    def ratio(self) -> float | None:
        """Token hit ratio of the window; None where nothing reports."""
        return number(self.row, "token_hit_ratio")

    @property
    def change(self) -> float | None:
        """Difference from the comparison window on the same basis; None if either is unknown."""
        before = number(self.before, "token_hit_ratio")
        return None if self.ratio is None or before is None else self.ratio - before

    @property
    def coverage(self) -> float | None:
        """Share of the log's prompt tokens whose cached count is known."""
        return number(self.log, "coverage_ratio")

    @property
    def source(self) -> str:
        """Which sources the leading figures come from."""
        return self.came_from.get(self.basis, "")

    @property
    def sums(self) -> str:
        """Numerator and denominator, for the hover."""
        return of_tokens(self.row)


def headline(answers: Answers) -> Headline:
    """Ask both sides and choose. Under a filter engines do not know, they cannot lead."""
    log = answers.first("hit_ratio")
    engine = answers.first("engine_hit_ratio")
    basis = _basis(log, engine)
    before = {} if basis == "none" else answers.first_before(_QUESTION[basis])
    named = {kind: came_from(answers, kind) for kind in ("log", "engine")}
    return Headline(basis, engine if basis == "engine" else log, before, log, engine, named)


def _basis(log: Row, engine: Row) -> Basis:
    if number(log, "token_hit_ratio") is not None:
        return "log"
    return "engine" if number(engine, "token_hit_ratio") is not None else "none"


def ratio_over_time(answers: Answers, lead: Headline, *, before: bool = False) -> Rows:
    """The leading ratio in steps, on the headline's own basis."""
    name = "engine_hit_ratio_over_time" if lead.basis == "engine" else "hit_ratio_over_time"
    return answers.over_time_before(name) if before else answers.over_time(name)


def of_tokens(row: Row) -> str:
    """ "29,696 of 43,832 prompt tokens": what a token hit ratio is made of; '' if unknown."""
    cached, reported = reported_cached(row), number(row, "reported_prompt_tokens")
    if cached is None or not reported:
        return ""
    return f"**{whole(cached)} of {whole(reported)} reported prompt tokens.**"


def against_before(answers: Answers, question: str, by: str) -> Rows:
    """A question that compares two windows; no rows where nothing is compared."""
    before = answers.before
    if before is None:
        return []
    return answers.rows(question, by=by, baseline_since=before.since, baseline_until=before.until)


def told(row: Row, all_computed_tokens: float) -> Row:
    """The row with its share of all computed tokens.

    Where nothing was reported, cached and computed are unknown: the sums say 0 there.
    """
    if not number(row, "reported_prompt_tokens"):
        return {**row, "cached_tokens": None, "computed_tokens": None, "computed_share": None}
    computed = number(row, "computed_tokens")
    known = computed is not None and all_computed_tokens > 0
    return {**row, "computed_share": computed / all_computed_tokens if known and computed else None}


def beside(lead: Headline) -> str:
    """What stands beside the headline: the other basis and what is left out; '' if nothing.

    Of how many tokens the engines speak is said, as they may have been watched for less time.
    """
    parts = []
    engine = number(lead.engine, "token_hit_ratio")
    if lead.basis == "log" and engine is not None:
        of = whole(number(lead.engine, "reported_prompt_tokens"))
        parts.append(f"Engine counters say {percent(engine)} of {of} prompt tokens (all routes).")
    if lead.basis == "engine" and lead.log.get("requests"):
        parts.append(
            f"{counted(number(lead.log, 'requests'), 'request row')} without a cached count that "
            f"the ratio could use (coverage {percent(lead.coverage)}): the engines' counters lead."
        )
    ineligible = number(lead.log, "ineligible_prompt_tokens") or 0.0
    if ineligible > 0:
        parts.append(f"{whole(ineligible)} prompt tokens were ineligible and are left out.")
    return " ".join(parts)


def ratio_hover(lead: Headline) -> str:
    """Hover of the leading ratio: sums, change, definition."""
    before = number(lead.before, "token_hit_ratio")
    change = f"Before: {percent(before)} ({points(lead.change)})." if before is not None else ""
    return hover(lead.question, "token_hit_ratio", lead.sums, change, lead.source)
