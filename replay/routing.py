"""What it costs that requests and what they need are on different replicas.

Tokens that another replica had computed say what a router could win at best. What it may cost
stands beside: who sends everything to where it was loads replicas unevenly.
"""

from dataclasses import dataclass

import numpy as np

from replay.balance import imbalance_ratio
from replay.causes import Causes
from replay.known_blocks import numbered, within
from replay.traffic import Flags, Numbers, Traffic


@dataclass(frozen=True)
class Routing:
    """Sums over requests whose cached tokens are known, and blocks over all of them.

    `routed_tokens`: another live replica had computed them. `different_blocks` and
    `placed_blocks`: different blocks of prompts, and different pairs of block and replica.
    `replicas`: those that served a request, and `computed_tokens` of each.
    """

    prompt_tokens: int
    routed_tokens: int
    different_blocks: int
    placed_blocks: int
    replicas: Numbers
    computed_tokens: Numbers

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
        return imbalance_ratio(self.computed_tokens)


def routing(traffic: Traffic, causes: Causes, of: Flags | None = None) -> Routing:
    """The figures of one fleet. `causes` are those of this traffic; `of`: of these requests only,
    say of one model, and of the replicas that served any of them."""
    picked = np.ones(len(traffic), np.bool_) if of is None else of
    known = causes.reported & picked
    computed = (causes.prompt_tokens - causes.cached_tokens)[known]
    replicas, replica = np.unique(_replicas(traffic)[known], return_inverse=True)
    different, placed = copies(traffic, picked)
    return Routing(
        prompt_tokens=int(causes.prompt_tokens[known].sum()),
        routed_tokens=int(causes.tokens["routed"][known].sum()),
        different_blocks=different,
        placed_blocks=placed,
        replicas=replicas,
        computed_tokens=np.bincount(replica, computed, len(replicas)).astype(np.int64),
    )


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
