"""Beginnings of prompts that so many callers have in common that they are nobody's own.

Such a prefix tells nothing of whoever sends it, so its KV could be kept once for all scopes.
"""

from dataclasses import dataclass, replace

import numpy as np

from replay.columns import Columns, Fleet
from replay.known_blocks import Blocks
from replay.lru import modelled_cached_tokens
from replay.rules import CacheRule
from replay.suppliers import scope_free_names, without_scope
from replay.traffic import Flags, Names, Numbers, Traffic

# As many callers as must send a prefix before it counts as nobody's own.
CALLERS = 5


@dataclass(frozen=True)
class PublicPrefix:
    """The longest common beginning of some requests that enough callers send.

    `name`: of all its blocks, the same as long as the key of their hashes is. `tokens`: its
    length. `won_tokens`: what these requests would have cached more if it were kept once for all
    scopes, in a modelled cache. `first`, `last`: places of the first and the last of them.
    """

    name: int
    tokens: int
    callers: int
    scopes: int
    requests: int
    won_tokens: int
    first: int
    last: int


def public_prefixes(
    traffic: Traffic,
    rule: CacheRule,
    callers: Numbers,
    *,
    least_callers: int = CALLERS,
    capacity_blocks: int | None = None,
    of: Flags | None = None,
) -> list[PublicPrefix]:
    """Those of more than one scope, the most tokens won first; none where contents are not known.

    `callers`: a number for each request, of the tenant or whoever is to be told from others.
    `capacity_blocks`: of each modelled cache; None: it never loses anything, so that `won_tokens`
    is the most there is to win. `of`: requests to count and sum; the others are only met by them.
    Raises ValueError for `least_callers` below 2, as a prefix of one caller is that caller's own,
    and for a rule with a lifetime, which is not modelled.
    """
    if least_callers < 2:
        raise ValueError(f"least_callers must be at least 2, got {least_callers}")
    columns = Columns.of(traffic, rule, Fleet())
    names = scope_free_names(columns)
    free = without_scope(columns, names)
    if names is None or free is None or not columns.scope.any():
        return []
    order = columns.timeline.order
    by_callers = _different(free, callers[order])
    by_scopes = _different(free, columns.scope)
    public = (by_callers >= least_callers) & (by_scopes > 1)
    ends, blocks = _ends(free, public)
    if of is not None:
        ends[~of[order]] = -1
    # Of names that are public in one scope and not in another there are none: they are prefixes.
    shared = np.where(public[free.block], names, columns.chains.names)
    won = _won(traffic, columns, shared, rule, capacity_blocks)
    found = [
        PublicPrefix(
            name=int(names[free.starts[rows[0]] + blocks[rows[0]] - 1]),
            tokens=int(blocks[rows[0]]) * columns.chains.grain_tokens,
            callers=int(by_callers[ends[rows[0]]]),
            scopes=int(by_scopes[ends[rows[0]]]),
            requests=len(rows),
            won_tokens=int(won[order[rows]].sum()),
            first=int(order[rows[0]]),
            last=int(order[rows[-1]]),
        )
        for rows in _alike(ends)
    ]
    return sorted(found, key=lambda prefix: (-prefix.won_tokens, -prefix.tokens, prefix.name))


def _alike(ends: Numbers) -> list[Numbers]:
    """The requests of each last block, in the order of look-ups."""
    rows = np.argsort(ends, kind="stable")
    rows = rows[np.searchsorted(ends[rows], 0) :]
    starts = np.flatnonzero(np.diff(ends[rows])) + 1
    return np.split(rows, starts) if len(rows) else []


def _different(blocks: Blocks, whose: Numbers) -> Numbers:
    """How many different callers, or scopes, had each block."""
    width = int(whose.max(initial=0)) + 1
    pairs = np.unique(blocks.block.astype(np.int64) * width + whose[blocks.owner])
    return np.bincount(pairs // width, minlength=blocks.count)


def _ends(free: Blocks, public: Flags) -> tuple[Numbers, Numbers]:
    """Of each request, the last block of its public beginning (-1: it has none), and how many
    blocks that has."""
    blocks = np.bincount(free.owner[public[free.block]], minlength=len(free.starts) - 1)
    ends = np.full(len(blocks), -1, np.int64)
    some = np.flatnonzero(blocks > 0)
    ends[some] = free.block[free.starts[some] + blocks[some] - 1]
    return ends, blocks


def _won(
    traffic: Traffic, columns: Columns, shared: Names, rule: CacheRule, capacity_blocks: int | None
) -> Numbers:
    """Of each request in the order of the traffic, what a modelled cache serves more of it with
    other names of blocks. Less than 0 where others take its room."""
    back = np.argsort(columns.timeline.order)
    chains = columns.chains
    after, before = (
        modelled_cached_tokens(replace(traffic, chains=named.sorted(back)), rule, capacity_blocks)
        for named in (replace(chains, names=shared), chains)
    )
    won: Numbers = after - before
    return won
