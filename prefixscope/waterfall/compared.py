"""What a cache that loses blocks for want of memory alone predicts, beside what was observed."""

from dataclasses import dataclass

from replay.lru import agreement
from replay.rules import CacheRule
from replay.traffic import NOT_REPORTED, Flags, Traffic


@dataclass
class Compared:
    """A cache that loses blocks for want of memory alone, beside what was observed.

    `by_answers`: of the differing requests, those where generated tokens decide what was left.
    """

    capacity_blocks: int
    requests: int = 0
    differing_requests: int = 0
    by_answers: int = 0
    predicted_tokens: int = 0
    observed_tokens: int = 0

    def add(self, traffic: Traffic, rule: CacheRule, picked: Flags) -> None:
        """More requests: those of `traffic` that are picked."""
        found = agreement(traffic, rule, self.capacity_blocks)
        known = picked & (found.observed_tokens != NOT_REPORTED)
        differs = picked & found.differs
        self.requests += int(known.sum())
        self.differing_requests += int(differs.sum())
        self.by_answers += int((differs & found.depends_on_answers).sum())
        self.predicted_tokens += int(found.predicted_tokens[known].sum())
        self.observed_tokens += int(found.observed_tokens[known].sum())
