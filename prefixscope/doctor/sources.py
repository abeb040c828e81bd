"""Where figures come from, and what two sources say of the same thing."""

from collections.abc import Iterator

from prefixscope.doctor.asked import Asked
from prefixscope.doctor.facts import SourceFacts
from prefixscope.doctor.findings import Finding, Severity
from queries import source_words
from queries.source_words import Row

WHERE = "sources"
# Two readings of one counter differ by what was counted at the edges alone.
SAME_COUNTS_RATIO = 0.02
_MOST_COMPARED = 20


def asked_sources(asked: Asked) -> SourceFacts:
    """What the store was told lately, by whom, and where two told the same."""
    return SourceFacts(tuple(asked.lately("figure_sources")), tuple(asked.lately("source_pairs")))


def check_sources(facts: SourceFacts) -> Iterator[Finding]:
    """Every source with its basis; then every pair with both values and their difference."""
    for row in facts.sources:
        known = source_words.details(row)
        told = source_words.counted(row)
        yield Finding("sources", Severity.OK, WHERE, f"{told}: {known}" if known else told)
    for pair in facts.pairs[:_MOST_COMPARED]:
        yield _compared(pair)


def _compared(pair: Row) -> Finding:
    told = source_words.compared(pair)
    if pair["added"]:
        shared = f" ({pair['shared']:,} calls)" if pair["shared"] else ""
        return Finding(
            "counted-twice", Severity.WARNING, WHERE, f"counted twice{shared}: {told}",
            source_words.remedy(pair),
        )  # fmt: skip
    apart = abs(pair["difference_ratio"] or 0)
    if pair["kind"] == "two_readings" and apart > SAME_COUNTS_RATIO:
        return Finding(
            "sources", Severity.NOTE, WHERE, f"compared, not added: {told}",
            "see whether both reach the same process, and whether one of them missed scrapes",
        )  # fmt: skip
    return Finding("sources", Severity.OK, WHERE, f"compared, not added: {told}")
