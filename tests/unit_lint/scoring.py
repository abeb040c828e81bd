"""Findings held against the defects put in: kind, place and frequency must all be right."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from prefixscope.lint.bodies import prompt_of
from replay.layout.findings import Finding, Report
from replay.layout.prompt import Prompt
from replay.layout.search import search
from tests.unit_lint.inject_defects import Defect, Log, Row

_NEAR_CHARACTERS = 16


@dataclass
class Score:
    """Counts over logs; `misses` and `false_findings` say which."""

    right: int = 0
    misses: list[str] = field(default_factory=list)
    false_findings: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Right findings of all; 1 where there are none."""
        found = self.right + len(self.false_findings)
        return self.right / found if found else 1.0

    @property
    def recall(self) -> float:
        """Found defects of all; 1 where there are none."""
        there = self.right + len(self.misses)
        return self.right / there if there else 1.0

    def add(self, name: str, log: Log, report: Report) -> None:
        """One more log."""
        found = list(report.findings)
        for defect in log.defects:
            match = next((each for each in found if is_right(each, defect)), None)
            if match is None:
                self.misses.append(f"{name} ({log.form}): {defect.kind} {defect.frequency}")
            else:
                found.remove(match)
                self.right += 1
        self.false_findings += [
            f"{name} ({log.form}): {each.kind} {each.frequency} at {each.segment}" for each in found
        ]


def is_right(finding: Finding, defect: Defect) -> bool:
    """Is it this one, where it is and as often as it changes?"""
    if (finding.kind, finding.frequency) != (defect.kind, defect.frequency):
        return False
    if finding.segment not in defect.segments:
        return False
    if finding.kind == "tool_order" or finding.segment.endswith(".parameters"):
        return True
    if finding.kind == "tokenizer_join":
        return abs(finding.token_index - defect.tokens.get(finding.request, -9)) <= 1
    there = defect.offsets.get(finding.request)
    return there is not None and abs(there - finding.offset) <= _NEAR_CHARACTERS


def prompts_of(rows: Sequence[Row]) -> list[Prompt]:
    """Rows as lint reads them."""
    return [prompt_of(row)[0] for row in rows]


def searched(log: Log) -> Report:
    """What lint finds in a log."""
    return search(prompts_of(log.rows))
