"""Why every missed prompt token missed: exactly one cause each, in whole tokens.

For every request whose cached tokens are known: prompt = cached + the sum of its causes. The
causes are the differences of nested depths (`depths.py`), so they add up by construction; a cause
says where a token was lost, not what undoing it would win.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from replay.columns import Columns, Fleet
from replay.contents import seen_block_tokens, seen_tokens
from replay.depths import Depths, Sources
from replay.rules import CacheRule
from replay.traffic import NOT_REPORTED, Flags, Numbers, Traffic
from replay.ways import Way

# In the order in which they are told: from the request's own cache to the prompt itself.
CAUSES = (
    "unserved",
    "evicted",
    "expired",
    "reset",
    "routed",
    "concurrent",
    "isolated",
    "redeployed",
    "layout",
    "new",
    "rounding",
    "ineligible",
    "unexplained",
)
# Parts of a cause that are shown apart: resets of a replica that is gone, and tokens shared inside
# the first block that differs.
DETAILS = ("reset_replica_gone", "rounding_split")

# The cause of what is known in one way and in none nearer.
_OF_WAY = {
    Way.HELD: "unserved",
    Way.SINCE: "evicted",
    Way.BEFORE: "reset",
    Way.FLEET: "routed",
    Way.GONE: "reset_replica_gone",
    Way.IN_FLIGHT: "concurrent",
    Way.ANY_SCOPE: "isolated",
    Way.ANY_MODEL: "redeployed",
}


@dataclass(frozen=True)
class Causes:
    """What became of every prompt token, in the order of the traffic.

    `tokens`: cause or detail → tokens of each request, 0 where no cached count is known.
    `warm_before_log_tokens`: cached tokens that nothing in the traffic had brought there.
    `no_cache`: of no token of the prompt could a cache have been asked; what such a request was
    served all the same came from elsewhere.
    """

    prompt_tokens: Numbers
    cached_tokens: Numbers
    tokens: Mapping[str, Numbers]
    warm_before_log_tokens: Numbers
    no_cache: Flags
    reported: Flags = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reported", self.cached_tokens != NOT_REPORTED)

    def totals(self, of: Flags | None = None) -> dict[str, int]:
        """Tokens by cause, of all requests or of some; requests without a cached count have
        none."""
        picked = slice(None) if of is None else of
        return {name: int(self.tokens[name][picked].sum()) for name in (*CAUSES, *DETAILS)}


def attribute(traffic: Traffic, rule: CacheRule, fleet: Fleet | None = None) -> Causes:
    """Name the cause of every missed token of every request.

    `fleet`: what is known of the caches beside the requests. Raises BlockSizesDisagree where
    the block of the rule and that of the chains do not go into each other.
    """
    return named(Sources(Columns.of(traffic, rule, fleet or Fleet())))


def named(sources: Sources) -> Causes:
    """The same from all that is told of the blocks of some traffic; the answer is in the order of
    that traffic."""
    columns, known = sources.columns, Depths.by(sources)
    parts = _differences(columns, known)
    parts |= _behind(columns, known)
    asked = columns.asked
    tokens = {name: np.where(asked, parts[name], 0) for name in (*CAUSES, *DETAILS)}
    reported = columns.cached_tokens != NOT_REPORTED
    tokens["ineligible"] = np.where(
        reported & ~asked, columns.prompt_tokens - columns.cached_tokens, tokens["ineligible"]
    )
    back = np.argsort(columns.timeline.order)
    return Causes(
        columns.prompt_tokens[back],
        columns.cached_tokens[back],
        {name: column[back] for name, column in tokens.items()},
        np.where(asked, known.warm_tokens, 0)[back],
        (reported & (~asked | (columns.eligible_tokens == 0)))[back],
    )


def _differences(columns: Columns, known: Depths) -> dict[str, Numbers]:
    """The causes between one nested depth and the next."""
    parts = {name: np.zeros(len(columns), np.int64) for name in (*CAUSES, *DETAILS)}
    before = columns.cached_tokens
    for way, name in _OF_WAY.items():
        parts[name] = known.tokens[:, way] - before
        before = known.tokens[:, way]
    if columns.rule.lifetime_seconds is not None:
        parts["expired"], parts["evicted"] = parts["evicted"], parts["expired"]
    parts["reset"] = parts["reset"] + parts["reset_replica_gone"]
    return parts


def _behind(columns: Columns, known: Depths) -> dict[str, Numbers]:
    """What lies behind the last known block: content known elsewhere, content never seen, and
    what no block could have held."""
    deepest, shared = known.deepest, known.shared
    end = np.minimum(columns.ceiling_tokens, np.maximum(columns.covered_tokens, shared))
    layout = _seen_elsewhere(columns, known, shared, end)
    beyond = columns.ceiling_tokens - end
    # Less than a block of the chain has no name: nobody can say more of it.
    nameless = np.where(columns.fully_named, beyond, 0)
    split = shared - deepest
    return {
        "layout": layout,
        "new": end - shared - layout,
        "rounding": columns.eligible_tokens - columns.ceiling_tokens + split + nameless,
        "rounding_split": split - known.given_up,
        "ineligible": columns.prompt_tokens - columns.eligible_tokens,
        "unexplained": beyond - nameless,
    }


def _seen_elsewhere(columns: Columns, known: Depths, begins: Numbers, ends: Numbers) -> Numbers:
    """Tokens between two places of each prompt whose content stood in another place before."""
    before = known.contents_before
    if columns.pieces is not None:
        return seen_tokens(columns.pieces, columns.space, columns.kept, begins, ends, before)
    if known.contents is None:
        return np.zeros(len(columns), np.int64)
    contents, grain_tokens = known.contents.apart(columns.space), columns.chains.grain_tokens
    return seen_block_tokens(contents, grain_tokens, columns.kept, begins, ends, before)
