"""Reuse across scopes as traffic goes by: the audit of `isolation.py` over one span, with what the
memory of the causes knows from before it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from replay.columns import Columns
from replay.history import History
from replay.isolation import Before, Crossed, Scopes
from replay.known_blocks import Blocks
from replay.memory import Memory
from replay.seen import OPEN
from replay.spans import SpanKeys, TrafficSpan
from replay.suppliers import NO_END, OpenEnds, Suppliers, depths
from replay.traffic import Flags, Moments


@dataclass(frozen=True)
class Crossing:
    """Looks at a span before it is remembered, after its replicas were (`watch`)."""

    memory: Memory
    keys: SpanKeys
    history: History
    span: TrafficSpan

    def of(self, columns: Columns) -> Crossed:
        """Of every request of the span, by one of its rules, in the order of its traffic."""
        if not self.memory.several_spaces or not self._any_candidate(columns):
            return Crossed.none(len(columns))
        return Scopes.by(columns, self._before(columns)).crossed()

    def _any_candidate(self, columns: Columns) -> bool:
        """Was more cached of any prompt than its scope's prompts are known to have had?"""
        keys = self.keys
        blocks = Blocks(keys.block, keys.owner, columns.chains.starts, len(keys.first))
        supplied = Suppliers.of(columns).supplied(blocks) | self.history.started
        known = depths(supplied, blocks) * columns.chains.grain_tokens
        return bool((columns.asked & (columns.cached_tokens > known)).any())

    def _before(self, columns: Columns) -> Before:
        begun, is_open = self.memory.has_root(self.keys.roots)
        is_open |= np.isin(self.span.scopes[columns.scope], self.span.open_scopes)
        replica = columns.timeline.replica
        parts = np.array([watch.served_parts for watch in self.memory.watches], np.bool_)
        return Before(
            own=self.history.started,
            any_scope=self.history.any_scope,
            begun=begun | is_open,
            reach_tokens=np.where(is_open, NO_END, 0),
            own_ends=self._ends(),
            warm=self._warm(columns),
            served_parts=parts[replica],
        )

    def _ends(self) -> OpenEnds:
        """Prompts that ended inside those of the span: answers that fill a block by their length,
        those whose length nobody knows without an end."""
        keys, answers = self.keys, self.history.answers
        is_open = np.flatnonzero(self.memory.find(keys.different).flags & OPEN)
        return OpenEnds(
            np.concatenate([answers.arrivals.place, keys.first[is_open]]),
            np.concatenate([answers.furthest_tokens, np.full(len(is_open), NO_END, np.int64)]),
        )

    def _warm(self, columns: Columns) -> Flags:
        """Look-ups before which all that their replica held is remembered: it was heard of for a
        horizon, or of a reset of it since."""
        memory, timeline = self.memory, columns.timeline
        oldest = memory.young if memory.old is None else memory.old
        warm = np.zeros(len(columns), np.bool_)
        for number, watch in enumerate(memory.watches):
            if watch.since_seconds is None:
                continue
            since = max(watch.since_seconds, oldest.begun_seconds)
            until = since + memory.limits.horizon_seconds
            if watch.reset_seconds is not None and watch.reset_seconds >= since:
                until = min(until, watch.reset_seconds)
            warm |= (timeline.replica == number) & (timeline.looked_up >= until)
        return warm


def watch(memory: Memory, columns: Sequence[Columns], span: TrafficSpan, resets: Moments) -> None:
    """Remember of a span what audits need of its replicas. `columns`: by each of its rules;
    `resets`: by the numbers of the memory."""
    timeline = columns[0].timeline
    by_rule = [
        (each, flags[timeline.order]) for each, flags in zip(columns, span.judged, strict=True)
    ]
    for number in np.unique(timeline.replica).tolist():
        replica = memory.watches[number]
        own = timeline.replica == number
        first = float(timeline.looked_up[own].min())
        known = replica.since_seconds
        replica.since_seconds = first if known is None else min(known, first)
        replica.served_parts |= any(_serves_parts(each, own & flags) for each, flags in by_rule)
    for number, seconds in zip(resets.replica.tolist(), resets.seconds.tolist(), strict=True):
        replica = memory.watches[number]
        replica.reset_seconds = max(replica.reset_seconds or -np.inf, seconds)
    for name in span.lower_tiers:
        if name in memory.replicas:
            memory.watches[memory.replicas[name]].reset_seconds = None


def _serves_parts(columns: Columns, own: Flags) -> bool:
    unit = columns.rule.block_tokens or 1
    return bool((columns.cached_tokens[own].clip(0) % unit > 0).any())
