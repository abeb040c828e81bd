"""What doctor can say: one finding, how much it matters, and every kind there is."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How much a finding matters, least first."""

    OK = 0
    NOTE = 1
    """Worth knowing; nothing is wrong."""
    WARNING = 2
    """Figures are incomplete, doubtful or leak something."""
    FAULT = 3
    """A source brings nothing, or what it brings is wrong."""

    @property
    def word(self) -> str:
        """`ok`, `note`, `warning` or `fault`."""
        return self.name.lower()


# Every kind of finding, in the order of docs/doctor.md, which explains each.
CHECKS = {
    "target-reachable": "does the metric page answer?",
    "metrics-missing": "does the page have what it should?",
    "page-notice": "what the page cannot tell, or what is odd about it",
    "caching-off": "is prefix caching on?",
    "counters-frozen": "do the counters move while requests are served?",
    "clock-skew": "do the clocks agree?",
    "usage-details": "do answers name their cached tokens?",
    "scale-out": "can the router see prompts?",
    "kv-events": "are the engine's KV-cache events taken in?",
    "events-heard": "is every stream of events connected, and does it speak?",
    "events-whole": "did every batch of events come, and can a lost one be had again?",
    "events-open": "who else could read the prompts in the events?",
    "prompts-leak": "does the engine or LiteLLM write prompts to its logs?",
    "metrics-open": "who can read a page that names teams and keys?",
    "log-readable": "is the log there, and of a known format?",
    "log-silent": "do rows still arrive?",
    "rows-rejected": "can every row be read?",
    "coverage": "do the rows report cached tokens?",
    "prompt-basis": "do prompt counts include cached tokens?",
    "counts-odd": "are the counts possible?",
    "units": "are seconds seconds and tokens tokens?",
    "log-clock": "are the times of the rows plausible?",
    "duplicates": "does every row arrive once?",
    "spend-logs": "does LiteLLM write spend logs, and keep them long enough?",
    "joins": "do the two logs of one call find each other?",
    "log-and-engine": "do log and engines count the same requests?",
    "usage-reports": "do rows agree with what providers say was used?",
    "exporter": "does the exporter run, and is its store there?",
    "lists": "can the lists of targets be read?",
    "prometheus": "does the Prometheus that is read in place of pages answer?",
    "sources": "where do the figures come from, and do two sources of one thing agree?",
    "counted-twice": "is anything in the sums twice?",
    "level": "what can be seen, and what is the next step?",
}


@dataclass(frozen=True)
class Finding:
    """One thing found. `where` names target, log or model; `fix` is empty where none is needed."""

    check: str
    severity: Severity
    where: str
    says: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise ValueError(f"{self.check!r} is not among CHECKS")


def worst(findings: Iterable[Finding]) -> Severity:
    """The highest severity; OK for none."""
    return max((finding.severity for finding in findings), default=Severity.OK)


def exit_status(findings: Iterable[Finding], strict: bool) -> int:
    """0 fine, 1 for a fault; with `strict` for a warning too."""
    limit = Severity.WARNING if strict else Severity.FAULT
    return int(worst(findings) >= limit)
