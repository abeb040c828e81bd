"""Prompts whose layout is not to blame: what else keeps an equal beginning from being reused.

These answers go by equal beginnings that were there before and were not served. They are said of a
whole template, and only where next to all of its misses fit.
"""

from dataclasses import dataclass

import numpy as np

from replay.layout_chains.prompts import NOT_GIVEN, Codes, Prompts, reused_tokens
from replay.rules import CacheRule
from replay.traffic import NOT_REPORTED, Flags, Numbers

_NEARLY_ALL_RATIO = 0.8
_MIN_MISSES = 2
# The shortest lifetime that hosted caches state: within it nothing may be said to have expired.
_SHORTEST_LIFETIME_SECONDS = 300.0


@dataclass(frozen=True)
class Verdict:
    """`kind`: below_minimum, short_prefix, key_lineage, routing_key or no_local_cause; `rows`: the
    requests it is said of, `shared_tokens`: the equal beginning, `lost_tokens` what was not
    served of it."""

    kind: str
    rows: Numbers
    shared_tokens: int
    lost_tokens: int
    changes: int = 0  # of the key


@dataclass(frozen=True)
class _Seen:
    """`known`: requests whose cached count is known; `any_scope` and `own`: tokens of the longest
    equal beginning before, in whole blocks, in any scope and in the request's own; `misses`: of
    those with one that is long enough for the cache, those that were served none of it."""

    known: Flags
    any_scope: Numbers
    own: Numbers
    could: Flags
    misses: Flags


def verdict_of(prompts: Prompts, rule: CacheRule, is_hosted: bool) -> Verdict | None:
    """Why equal beginnings were not reused, where it is not for what prompts hold; None where they
    were, or where that is for the causes of an own engine (evicted, reset …) to say.

    `rule`: of the cache that served them; `is_hosted`: nobody but its provider knows its memory.
    """
    seen = _seen(prompts, rule)
    short = rule.too_short(prompts.prompt_tokens) & seen.known
    if short.sum() >= _MIN_MISSES and short.mean() >= _NEARLY_ALL_RATIO:
        return _verdict(prompts, "below_minimum", short, seen.any_scope)
    return _too_short_for_a_block(prompts, rule, seen) or _by_misses(prompts, seen, is_hosted)


def _seen(prompts: Prompts, rule: CacheRule) -> _Seen:
    whole = np.zeros(len(prompts), np.int64)
    grain = prompts.grain_tokens
    any_scope = reused_tokens(prompts.contents, whole, grain)
    own = np.minimum(any_scope, reused_tokens(prompts.chains, whole, grain))
    known = prompts.cached_tokens != NOT_REPORTED
    least = max(rule.minimum_tokens, rule.block_tokens or grain)
    could = known & (any_scope >= least)
    served = prompts.cached_tokens >= np.minimum(least, any_scope)
    return _Seen(known, any_scope, own, could, could & ~served)


def _too_short_for_a_block(prompts: Prompts, rule: CacheRule, seen: _Seen) -> Verdict | None:
    """Shared, but by less than a block of the cache: another thing than nothing shared."""
    block = rule.block_tokens or prompts.grain_tokens
    shared = (seen.any_scope > 0) & (seen.any_scope < block) & (prompts.prompt_tokens > block)
    later = np.arange(len(prompts)) > 0
    if shared.sum() < 1 or shared[later].mean() < _NEARLY_ALL_RATIO:
        return None
    return _verdict(prompts, "short_prefix", shared, seen.any_scope)


def _by_misses(prompts: Prompts, seen: _Seen, is_hosted: bool) -> Verdict | None:
    misses, lost = seen.misses, seen.any_scope
    if misses.sum() < 1:
        return None
    scopes = _first_of(prompts.scope)
    # Every new key misses once; that one follows the other tells it from tenants.
    if _explain(scopes & misses, misses) and _in_turn(prompts.scope):
        return _verdict(prompts, "key_lineage", misses, lost, int((scopes & misses).sum()))
    lately = _lately_computed(prompts, seen)
    first = _first_of(prompts.session) & lately
    if _explain(first & misses, misses) and _later_hits(prompts, seen):
        return _verdict(prompts, "routing_key", misses, lost)
    warm = misses & lately
    if is_hosted and warm.sum() >= _MIN_MISSES and _explain(warm, seen.could):
        return _verdict(prompts, "no_local_cause", warm, lost)
    return None


def _explain(these: Flags, all_of: Flags) -> bool:
    return bool(these.sum() >= max(1, _NEARLY_ALL_RATIO * all_of.sum()))


def _first_of(labels: Codes) -> Flags:
    """The first request of every label; none of requests without one."""
    _, first = np.unique(labels, return_index=True)
    flags = np.zeros(len(labels), np.bool_)
    flags[first] = True
    flags &= labels != NOT_GIVEN
    return flags


def _in_turn(labels: Codes) -> bool:
    """Does each label come up, stay and never return?"""
    changes = int((np.diff(labels) != 0).sum())
    return len(np.unique(labels)) > 2 and changes == len(np.unique(labels)) - 1


def _lately_computed(prompts: Prompts, seen: _Seen) -> Flags:
    """Did the request before that has an equal beginning of at least that length come to its first
    token before, and not longer ago than any cache keeps it?"""
    lately = np.zeros(len(prompts), np.bool_)
    deep = seen.any_scope // prompts.grain_tokens
    for row in np.flatnonzero(seen.could).tolist():
        length = int(deep[row])
        head = prompts.contents[row][:length]
        for other in range(row - 1, -1, -1):
            if prompts.started[row] - prompts.started[other] > _SHORTEST_LIFETIME_SECONDS:
                break
            same = len(prompts.contents[other]) >= length and bool(
                (prompts.contents[other][:length] == head).all()
            )
            if same and prompts.ready[other] <= prompts.started[row]:
                lately[row] = True
                break
    return lately


def _later_hits(prompts: Prompts, seen: _Seen) -> bool:
    """Do later requests of sessions find what their first did not?"""
    later = seen.could & ~_first_of(prompts.session) & (prompts.session != NOT_GIVEN)
    return bool(later.any() and (~seen.misses)[later].mean() >= _NEARLY_ALL_RATIO)


def _verdict(
    prompts: Prompts, kind: str, which: Flags, seen_tokens: Numbers, changes: int = 0
) -> Verdict:
    rows = np.flatnonzero(which)
    shared = seen_tokens[rows]
    lost = np.maximum(shared - np.maximum(prompts.cached_tokens[rows], 0), 0)
    usual = int(np.median(shared[shared > 0])) if (shared > 0).any() else 0
    return Verdict(kind, rows, usual, int(lost.sum()), changes)
