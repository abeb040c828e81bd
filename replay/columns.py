"""Traffic in the order of look-ups, seen through one rule: the columns every step works on."""

from dataclasses import dataclass, field

import numpy as np

from replay.contents import sorted_pieces
from replay.rules import BlockSizesDisagree, CacheRule
from replay.timeline import Timeline
from replay.traffic import (
    NOT_REPORTED,
    Chains,
    Flags,
    Moments,
    Numbers,
    Pieces,
    Stays,
    Traffic,
)


@dataclass(frozen=True)
class Fleet:
    """What is known of caches beside the requests.

    `resets`: all a replica held was lost (restart, clear, sleep); `gone`: a replica was stopped
    for good; `stays`: what KV-cache events told of held blocks.
    """

    resets: Moments = field(default_factory=Moments)
    gone: Moments = field(default_factory=Moments)
    stays: Stays | None = None

    @property
    def told_replicas(self) -> int:
        """How many replicas events tell of, whether or not a request names them."""
        return 0 if self.stays is None else int(self.stays.replica.max(initial=-1)) + 1


@dataclass(frozen=True)
class Columns:
    """One entry a request, in the order of look-ups.

    `asked`: its cached tokens are known and a cache could have served it, so its misses have
    causes. `eligible_tokens`: as much of its prompt as a cache may hold; `ceiling_tokens`: the
    most that could be served, never below what was; `covered_tokens`: as far as blocks are named,
    and `fully_named`: only less than a block is not. `space`: where the same content is the same
    block. `unit_tokens`: the larger of the rule's block and the chain's.
    """

    rule: CacheRule
    fleet: Fleet
    timeline: Timeline
    chains: Chains
    unit_tokens: int
    prompt_tokens: Numbers
    cached_tokens: Numbers
    eligible_tokens: Numbers
    ceiling_tokens: Numbers
    covered_tokens: Numbers
    fully_named: Flags
    asked: Flags
    kept: Flags
    deployment: Numbers
    scope: Numbers
    output_tokens: Numbers | None
    pieces: Pieces | None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def space(self) -> Numbers:
        """A number for each pair of deployment and scope."""
        scopes = int(self.scope.max()) + 1 if len(self) else 1
        return self.deployment * scopes + self.scope

    @classmethod
    def of(cls, traffic: Traffic, rule: CacheRule, fleet: Fleet) -> "Columns":
        """Raises BlockSizesDisagree where they do not go into each other."""
        rule = rule.of_blocks(traffic.chains.grain_tokens)
        unit_tokens = unit_tokens_of(rule, traffic.chains.grain_tokens)
        timeline = Timeline.of(traffic, fleet.resets, fleet.gone, fleet.told_replicas)
        order = timeline.order
        prompt, cached = traffic.prompt_tokens[order], traffic.cached_tokens[order]
        chains = _in_order(traffic.chains, order).cut(_named_blocks(rule, prompt, traffic.chains))
        unable = rule.too_short(prompt)
        eligible = prompt if traffic.eligible_tokens is None else traffic.eligible_tokens[order]
        eligible = np.clip(eligible, cached, prompt)
        grain = chains.grain_tokens
        return cls(
            rule=rule,
            fleet=fleet,
            timeline=timeline,
            chains=chains,
            unit_tokens=unit_tokens,
            prompt_tokens=prompt,
            cached_tokens=cached,
            eligible_tokens=eligible,
            ceiling_tokens=np.maximum(np.minimum(rule.ceiling_tokens(prompt), eligible), cached),
            covered_tokens=np.minimum(chains.lengths * grain, prompt),
            fully_named=chains.lengths >= prompt // grain,
            asked=(cached != NOT_REPORTED) & ~_flags(traffic.ineligible, order, False) & ~unable,
            kept=_flags(traffic.kept, order, True) & ~unable,
            deployment=_numbers(traffic.deployment, order),
            scope=_numbers(traffic.scope, order),
            output_tokens=None if traffic.output_tokens is None else traffic.output_tokens[order],
            pieces=_pieces(traffic.pieces, order),
        )


def unit_tokens_of(rule: CacheRule, grain_tokens: int) -> int:
    """What chains tell of a cache at once: the larger of its block and theirs.

    Raises BlockSizesDisagree where neither is a multiple of the other.
    """
    small, large = sorted((rule.block_tokens or grain_tokens, grain_tokens))
    if large % small:
        raise BlockSizesDisagree(
            f"a cache of blocks of {rule.block_tokens} tokens cannot be told from a chain of blocks"
            f" of {grain_tokens}: one must be a multiple of the other"
        )
    return large


def _named_blocks(rule: CacheRule, prompt_tokens: Numbers, chains: Chains) -> Numbers:
    """How many blocks of a chain a cache of this rule keeps: only partial ones keep the last."""
    if rule.ceiling == "partial":
        return -(-prompt_tokens // chains.grain_tokens)
    return prompt_tokens // chains.grain_tokens


def _in_order(chains: Chains, order: Numbers) -> Chains:
    return chains if _is_sorted(order) else chains.sorted(order)


def _is_sorted(order: Numbers) -> bool:
    return bool((np.diff(order) > 0).all())


def _pieces(pieces: Pieces | None, order: Numbers) -> Pieces | None:
    return pieces if pieces is None or _is_sorted(order) else sorted_pieces(pieces, order)


def _flags(column: Flags | None, order: Numbers, otherwise: bool) -> Flags:
    return np.full(len(order), otherwise) if column is None else column[order]


def _numbers(column: Numbers | None, order: Numbers) -> Numbers:
    return np.zeros(len(order), np.int64) if column is None else column[order]
