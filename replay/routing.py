"""What it costs that requests and what they need are on different replicas.

Tokens that another replica had computed say what a router could win at best. What it may cost
stands beside: who sends everything to where it was loads replicas unevenly.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from replay.balance import imbalance_ratio
from replay.causes import Causes
from replay.known_blocks import numbered, within
from replay.traffic import Flags, Numbers, Traffic


@dataclass
class Routing:
    """Sums over requests whose cached tokens are known, and blocks over all of them.

    `routed_tokens`: another live replica had computed them. `different_blocks` and
    `placed_blocks`: different blocks of prompts, and different pairs of block and replica,
    wherever they are lost since. `computed_tokens`: of each replica that served a request.
    """

    prompt_tokens: int = 0
    routed_tokens: int = 0
    different_blocks: int = 0
    placed_blocks: int = 0
    computed_tokens: Counter[str] = field(default_factory=Counter)

    @property
    def routed_ratio(self) -> float | None:
        """The share of the prompt that a router could win at best; None without a prompt."""
        return self.routed_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def copies_ratio(self) -> float | None:
        """Replicas that computed a block, on average; 1 = each on one only; None: no blocks."""
        return self.placed_blocks / self.different_blocks if self.different_blocks else None

    @property
    def imbalance_ratio(self) -> float | None:
        """How uneven the replicas were; None where nothing was computed."""
        return imbalance_ratio(np.array(list(self.computed_tokens.values()), np.int64))

    def add(self, traffic: Traffic, causes: Causes, of: Flags, replicas: Sequence[str]) -> None:
        """More requests: those `of` this traffic, whose causes and replicas (by name) these are."""
        known = causes.reported & of
        different, placed = copies(traffic, of)
        self.prompt_tokens += int(causes.prompt_tokens[known].sum())
        self.routed_tokens += int(causes.tokens["routed"][known].sum())
        self.different_blocks += different
        self.placed_blocks += placed
        computed = (causes.prompt_tokens - causes.cached_tokens)[known]
        serving, place = np.unique(_replicas(traffic)[known], return_inverse=True)
        sums = np.bincount(place, computed, len(serving)).astype(np.int64)
        for replica, tokens in zip(serving.tolist(), sums.tolist(), strict=True):
            self.computed_tokens[replicas[replica]] += tokens


def copies(traffic: Traffic, of: Flags) -> tuple[int, int]:
    """Different blocks of some prompts, and different pairs of block and replica: on how many
    replicas each was computed, whatever was lost since."""
    chains = traffic.chains
    names = chains.names
    if traffic.deployment is not None:
        names = within(names, np.repeat(traffic.deployment, chains.lengths))
    kept = np.repeat(of if traffic.kept is None else of & traffic.kept, chains.lengths)
    replica = np.repeat(_replicas(traffic), chains.lengths)
    names, replica = names[kept], replica[kept]
    return numbered(names)[1], numbered(within(names, replica))[1]


def _replicas(traffic: Traffic) -> Numbers:
    return np.zeros(len(traffic), np.int64) if traffic.replica is None else traffic.replica
