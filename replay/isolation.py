"""What scopes keep apart, and whether they do.

A scope is a declared trust boundary of reuse. Two questions, each answered without the other: what
would be shared if there were no scopes, and what was shared although there are.
"""

from dataclasses import dataclass

import numpy as np

from replay.columns import Columns, Fleet
from replay.known_blocks import Blocks
from replay.rules import CacheRule
from replay.suppliers import (
    OpenEnds,
    Suppliers,
    depths,
    first_owners,
    rooted,
    scope_free_names,
    without_scope,
)
from replay.traffic import Flags, Numbers, Seconds, Small, Traffic

NO_SCOPE = -1
# How far something had come into each prompt before, in tokens: at least and at most.
Depth = tuple[Numbers, Numbers]


@dataclass(frozen=True)
class Crossed:
    """Reuse across scopes, of every request in the order of the traffic, in tokens.

    `at_least`: cached tokens that another scope had computed before and that the request's own
    cannot have supplied; `at_most`: those its own is not known to have supplied. The two differ
    only where a cache reuses less than a block of the chain, by less than such a block.
    `cannot_tell`: cached tokens beyond all that its own scope is known to have had of which more
    cannot be said: the log is too young, leaves out who had them, or has no names for them.
    `other_scope`: who had them first, NO_SCOPE where nothing was found.
    """

    at_least: Numbers
    at_most: Numbers
    cannot_tell: Numbers
    other_scope: Numbers

    @classmethod
    def none(cls, requests: int) -> "Crossed":
        """Of requests that reused nothing but their own."""
        nothing = np.zeros(requests, np.int64)
        return cls(nothing, nothing, nothing, np.full(requests, NO_SCOPE, np.int64))

    @property
    def found(self) -> Flags:
        """Requests that reused what another scope had computed, beyond doubt."""
        return self.at_least > 0


@dataclass(frozen=True)
class Pairs:
    """Tokens by pair of scopes: `scope` would have reused, or did, what `other_scope` was the
    first to compute."""

    scope: Numbers
    other_scope: Numbers
    tokens: Numbers
    requests: Numbers


def cross_scope_tokens(
    cached: Numbers, own: Depth, known: Depth
) -> tuple[Numbers, Numbers, Numbers]:
    """Cached tokens that came from another scope (at least, at most), and those that came from
    nowhere known.

    `own`: how far the request's own scope had come before; `known`: how far all scopes had, at
    least by names of whole blocks.
    """
    by_others = known[0] > own[0]
    end = np.where(by_others, np.minimum(cached, known[1]), 0)
    at_least, at_most = (np.maximum(end - depth, 0) for depth in own[::-1])
    at_most = np.where(at_least > 0, at_most, 0)
    return at_least, at_most, np.maximum(cached - np.maximum(own[1], end), 0)


@dataclass(frozen=True)
class Before:
    """What is known from before some traffic, of each block of its chains (`own`: its scope had it,
    `any_scope`: any had) and of each request (`begun`: its scope had sent anything, `reach_tokens`:
    how far what had no names may have come; `warm`: all that its replica held is known;
    `served_parts`: that replica ever served a part of a block). All in the order of look-ups.
    `own_ends`: of prompts of its own scope."""

    own: Flags
    any_scope: Flags
    begun: Flags
    reach_tokens: Numbers
    own_ends: OpenEnds
    warm: Flags
    served_parts: Flags


@dataclass(frozen=True)
class Scopes:
    """Traffic seen by its scopes. `free`: the blocks of prompts, named whatever the scope; None
    where contents are not known, so that scopes cannot be compared. `before`: what was known before
    it; None: nothing was."""

    columns: Columns
    free: Blocks | None
    before: Before | None = None

    @classmethod
    def of(cls, traffic: Traffic, rule: CacheRule, fleet: Fleet | None = None) -> "Scopes":
        """Raises BlockSizesDisagree."""
        columns = Columns.of(traffic, rule, fleet or Fleet())
        return cls(columns, without_scope(columns, scope_free_names(columns)))

    @classmethod
    def by(cls, columns: Columns, before: Before) -> "Scopes":
        """Of a part of traffic."""
        return cls(columns, without_scope(columns, scope_free_names(columns)), before)

    def crossed(self, horizon_seconds: float = np.inf, comparable: Flags | None = None) -> Crossed:
        """Find reuse across scopes.

        `horizon_seconds`: how long the log must have told of a replica before what is not in it
        counts as never there; a known reset is as good. `comparable`: requests whose scope's
        others are all in this traffic, with names that mean the same (None: all).
        """
        columns = self.columns
        order = columns.timeline.order
        ready = columns.asked & self._warm(horizon_seconds)
        if comparable is not None:
            ready &= comparable[order]
        own, known = self._depths()
        cached = np.where(columns.asked, columns.cached_tokens, 0)
        at_least, at_most, unknown = cross_scope_tokens(cached, own, known)
        other = self._holders(np.minimum(cached, known[0]))
        found = (
            np.where(ready, at_least, 0),
            np.where(ready, at_most, 0),
            np.where(ready, unknown, np.maximum(cached - own[1], 0)),
            np.where(ready & (at_least > 0), other, NO_SCOPE),
        )
        return Crossed(*(self._as_given(column) for column in found))

    def merged(self, whose: Numbers | None = None, of: Flags | None = None) -> Pairs | None:
        """Tokens that scopes keep from being shared: what a prompt has in common with earlier ones
        of other scopes beyond what it has with those of its own, in a cache that loses nothing.

        By own scope and the one that had a block first, so that the sum over all pairs is what one
        scope for all would share. Whether the engine kept the scopes apart makes no difference.
        `whose`: a number for each request to sum by instead of its scope; `of`: of these requests
        only; both in the order of the traffic. None where contents are not known.
        """
        columns, free, order = self.columns, self.free, self.columns.timeline.order
        if free is None:
            return None
        first = first_owners(free, columns.kept)
        # Of blocks that an earlier request had: those that none of its own scope had.
        had = (first[free.block] >= 0) & (first[free.block] < free.owner)
        apart = free.apart(columns.scope)
        own_first = first_owners(apart, columns.kept)
        had &= (own_first[apart.block] < 0) | (own_first[apart.block] >= apart.owner)
        if of is not None:
            had &= of[order][free.owner]
        places = np.flatnonzero(had)
        owner = free.owner[places]
        own = columns.scope if whose is None else whose[order]
        tokens = self._unit_tokens(free, places, owner)
        return paired(own[owner], columns.scope[first[free.block[places]]], tokens, owner)

    def holders(self) -> Numbers:
        """Of each request in the order of the traffic, the scope that was the first to have the
        last block which an earlier prompt had too; NO_SCOPE where none had any, or it is its own.
        """
        if self.free is None:
            return np.full(len(self.columns), NO_SCOPE, np.int64)
        grain = self.columns.chains.grain_tokens
        shared = depths(Suppliers.of(self.columns).supplied(self.free), self.free) * grain
        return self._as_given(self._holders(shared))

    def _as_given(self, column: Numbers) -> Numbers:
        given: Numbers = column[np.argsort(self.columns.timeline.order)]
        return given

    def _warm(self, horizon_seconds: float) -> Flags:
        return _warm(self.columns, horizon_seconds) if self.before is None else self.before.warm

    def _depths(self) -> tuple[Depth, Depth]:
        """How far its own scope, and all scopes, had come into each prompt before."""
        columns, free, before = self.columns, self.free, self.before
        suppliers, chains = Suppliers.of(columns), columns.chains
        own = Blocks.of(chains.names, chains.starts).apart(columns.space)
        supplied = suppliers.supplied(own)
        reach = suppliers.reaches(own, None if before is None else before.own_ends)
        root = rooted(own, columns.space)
        begun = suppliers.supplied(root)[root.starts[:-1]]
        reach = np.maximum(reach, suppliers.reaches(root))
        if before is not None:
            supplied |= before.own
            begun |= before.begun
            reach = np.maximum(reach, before.reach_tokens)
        if free is not None:
            # Where some rows have contents and others none, either name may be the one they share.
            apart = free.apart(columns.scope)
            supplied |= suppliers.supplied(apart)
            reach = np.maximum(reach, suppliers.reaches(apart))
        units, nothing = _units(columns), np.zeros(len(columns), np.int64)
        if before is not None:
            units = np.where(before.served_parts, 1, units)
        depth = _bounds(columns, units, depths(supplied, own), reach, begun)
        if free is None:
            return depth, (nothing, nothing)
        known = suppliers.supplied(free)
        if before is not None:
            known |= before.any_scope
        every = depths(known, free)
        named, most = _bounds(columns, units, every, nothing, every > 0)
        _, furthest = _bounds(columns, units, every, suppliers.reaches(free), every > 0)
        return depth, (named, np.maximum(most, furthest))

    def _holders(self, tokens: Numbers) -> Numbers:
        """The scope that was the first to have the last of so many tokens of each prompt."""
        columns, free = self.columns, self.free
        holders = np.full(len(columns), NO_SCOPE, np.int64)
        if free is None:
            return holders
        blocks = np.minimum(-(-tokens // columns.chains.grain_tokens), np.diff(free.starts))
        some = np.flatnonzero(blocks > 0)
        first = first_owners(free, columns.kept)
        owner = first[free.block[free.starts[some] + blocks[some] - 1]]
        holders[some] = np.where(owner >= 0, columns.scope[owner], NO_SCOPE)
        # Of requests beside each other the first need not be the one that had it first.
        holders[holders == columns.scope] = NO_SCOPE
        return holders

    def _unit_tokens(self, free: Blocks, places: Numbers, owner: Small) -> Numbers:
        """What each block adds to what a cache can serve: whole blocks of its own size, below the
        ceiling of the prompt."""
        columns, unit = self.columns, self.columns.rule.block_tokens or 1
        grain = columns.chains.grain_tokens
        end = (places - free.starts[owner] + 1) * grain
        best = columns.rule.ceiling_tokens(columns.prompt_tokens)
        ceiling = np.minimum(best, columns.eligible_tokens)[owner]
        before, after = (np.minimum(each // unit * unit, ceiling) for each in (end - grain, end))
        added: Numbers = after - before
        return added


def _units(columns: Columns) -> Numbers:
    """Of each request, the tokens its cache reuses at once: those of the rule, and single ones
    where the replica served some part of a block."""
    unit = columns.rule.block_tokens or 1
    replica = columns.timeline.replica
    fine = np.zeros(len(columns.timeline.replicas.gone), np.bool_)
    fine[replica[columns.cached_tokens.clip(0) % unit > 0]] = True
    return np.where(fine[replica], 1, unit)


def _bounds(
    columns: Columns, units: Numbers, blocks: Numbers, reach_tokens: Numbers, any_before: Flags
) -> Depth:
    """Tokens that so many blocks of the chain and such a reach let a cache serve: at least, and
    with what of the next block may be shared without having a name."""
    grain, prompt = columns.chains.grain_tokens, columns.prompt_tokens
    whole = blocks * grain // units * units
    reach = np.minimum(reach_tokens, prompt) // units * units
    nameless = np.where(any_before, np.maximum(grain - units, 0), 0)
    least = np.maximum(np.minimum(whole, prompt), reach)
    return least, np.maximum(np.minimum(whole + nameless, prompt), reach)


def _warm(columns: Columns, horizon_seconds: float) -> Flags:
    """Look-ups before which all that their replica held is in the log: it had told of the replica
    for so long, or of a reset of it since."""
    timeline = columns.timeline
    begins = np.full(len(timeline.replicas.gone), np.inf)
    np.minimum.at(begins, timeline.replica, timeline.looked_up)
    seconds: Seconds = timeline.looked_up
    long_enough: Flags = seconds - begins[timeline.replica] >= horizon_seconds
    every = np.arange(len(begins))
    began = np.where(np.isfinite(begins), begins, 0.0)
    stays = timeline.replicas.stay_at(every, began, including=True)
    return long_enough | (timeline.stay > stays[timeline.replica])


def paired(scope: Numbers, other: Numbers, tokens: Numbers, owner: Numbers | Small) -> Pairs:
    """Sums by pair, the most tokens first; a request (`owner`) counts once for each pair."""
    some = (tokens > 0) & (other != NO_SCOPE)
    scope, other, tokens, owner = scope[some], other[some], tokens[some], owner[some]
    width = int(max(scope.max(initial=0), other.max(initial=0))) + 1
    keys, pair = np.unique(scope * width + other, return_inverse=True)
    sums = np.bincount(pair, tokens, len(keys)).astype(np.int64)
    owners = int(owner.max(initial=0)) + 1
    seen = np.unique(pair.astype(np.int64) * owners + owner)
    requests = np.bincount(seen // owners, minlength=len(keys))
    order = np.argsort(-sums, kind="stable")
    return Pairs(keys[order] // width, keys[order] % width, sums[order], requests[order])
