"""The nested depths of every request, in tokens, from all that is known of blocks."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from replay.columns import Columns
from replay.contents import prefix_names
from replay.generated import Answers, proven
from replay.history import History
from replay.known_blocks import Blocks, Sightings, Spans, numbered, within
from replay.traffic import Flags, Names, Numbers, Small
from replay.ways import Known, Way, depths_of, started_before, ways


@dataclass(frozen=True)
class Depths:
    """In tokens from the start of each prompt, one row a request in the order of look-ups.

    `tokens`: a column for each way of knowing but UNKNOWN, never falling. `shared`: how far any
    earlier prompt agreed, by the chain's own blocks. `given_up`: of that what the rule of the cache
    holds back of every match. `warm_tokens`: cached beyond all that.
    `contents`: the blocks by what they hold; None where that is not known; `contents_before`:
    which of them requests before all of these had.
    """

    tokens: Numbers
    shared: Numbers
    given_up: Numbers
    warm_tokens: Numbers
    contents: Blocks | None
    contents_before: Flags | None = None

    @property
    def deepest(self) -> Numbers:
        """What was known in any way."""
        return self.tokens[:, Way.ANY_MODEL]

    @classmethod
    def of(cls, columns: Columns) -> "Depths":
        """From what the traffic itself tells."""
        return cls.by(Sources(columns))

    @classmethod
    def by(cls, sources: "Sources") -> "Depths":
        """From all that is told of the blocks."""
        columns = sources.columns
        units = sources.units
        found = ways(units, columns.timeline, sources.prompts(), sources.known())
        depths = depths_of(found, units) * columns.unit_tokens
        deepest = np.minimum(depths[:, Way.ANY_MODEL], columns.prompt_tokens)
        cached = np.maximum(columns.cached_tokens, 0)
        tokens = np.maximum(depths - columns.rule.held_back_tokens, cached[:, np.newaxis])
        tokens = np.minimum(tokens, columns.ceiling_tokens[:, np.newaxis])
        matched = np.minimum(depths[:, Way.ANY_MODEL], columns.ceiling_tokens)
        matched = np.maximum(matched, tokens[:, Way.ANY_MODEL])
        shared = sources.shared_blocks() * columns.chains.grain_tokens
        shared = np.minimum(shared, columns.ceiling_tokens)
        shared = np.maximum(shared, matched)
        warm = np.maximum(cached - deepest, 0)
        given_up = matched - tokens[:, Way.ANY_MODEL]
        return cls(tokens, shared, given_up, warm, sources.contents(), sources.contents_before())


class Sources:
    """Blocks of the chains, of the cache's own size, and everything told of them. `history`: by
    what was before the traffic; None: nothing was."""

    def __init__(self, columns: Columns, history: History | None = None) -> None:
        self.columns = columns
        self._history = history
        self._timeline = columns.timeline
        chains = columns.chains
        names, told = self._names()
        block, count = numbered(np.concatenate([names, told]) if len(told) else names)
        self._told = block[len(names) :]
        owner = np.repeat(np.arange(len(columns), dtype=np.int32), chains.lengths)
        self.named = Blocks(block[: len(names)], owner, chains.starts, count)
        self._step = columns.unit_tokens // chains.grain_tokens
        self._at_unit = None
        if self._step > 1:
            self._at_unit = (self.named.places() + 1) % self._step == 0
        self.units = self._of_unit(self.named)
        self._started = started_before(self.named, columns.kept)
        if history is not None:
            self._started |= history.started
        self._any_scope, self._any_model = self._without_scope()

    def _names(self) -> tuple[Names, Names]:
        """Of the blocks in chains, and of those events told of."""
        columns, stays = self.columns, self.columns.fleet.stays
        names, deployment = columns.chains.names, columns.deployment
        told, others = np.empty(0, np.uint64), np.empty(0, np.int64)
        if stays is not None:
            told, others = stays.names, stays.deployment
        if deployment.any() or others.any():
            names = within(names, np.repeat(deployment, columns.chains.lengths))
            told = within(told, others)
        return names, told

    def _of_unit(self, blocks: Blocks) -> Blocks:
        return blocks if self._at_unit is None else blocks.picked(self._at_unit)

    def _without_scope(self) -> tuple[Flags | None, Flags | None]:
        """Which blocks an earlier request had in any scope, and of any deployment too; None where
        that makes no difference. Without content hashes a scope cannot be taken out of a name."""
        history = self._history
        any_scope, any_model = self._without_scope_here()
        if history is None:
            return any_scope, any_model
        any_scope = history.any_scope if any_scope is None else any_scope | history.any_scope
        any_model = history.any_model if any_model is None else any_model | history.any_model
        return any_scope, any_model

    def _without_scope_here(self) -> tuple[Flags | None, Flags | None]:
        columns = self.columns
        several = columns.deployment.any()
        if columns.chains.contents is None:
            if not several:
                return None, None
            free = Blocks.of(columns.chains.names, columns.chains.starts)
            return None, started_before(free, columns.kept)
        if not several and not columns.scope.any():
            return None, None
        free = self.named.renamed(prefix_names(columns.chains.contents, self.named))
        any_scope = started_before(free.apart(columns.deployment), columns.kept)
        return any_scope, started_before(free, columns.kept) if several else None

    def contents(self) -> Blocks | None:
        """The blocks named by what they hold, wherever; None where that is not known."""
        contents = self.columns.chains.contents
        return None if contents is None else self.named.renamed(contents)

    def contents_before(self) -> Flags | None:
        """Which contents, or pieces, were there before the traffic."""
        return None if self._history is None else self._history.contents

    def prompts(self) -> tuple[Small, Small]:
        """The blocks that prompts put into caches, and whose they were."""
        block, owner = self.units.block, self.units.owner
        if self.columns.kept.all():
            return block, owner
        kept = self.columns.kept[owner]
        return block[kept], owner[kept]

    def _was_there(self) -> Sightings:
        """What was cached at a look-up was there already, wherever it came from."""
        if self._timeline.is_serial:  # then no other request could have looked before
            return Sightings.none()
        units, columns = self.units, self.columns
        there = self._unit_ends() <= columns.cached_tokens[units.owner]
        there &= columns.kept[units.owner]
        owner = units.owner[there]
        return Sightings(units.block[there], self._timeline.stay[owner], owner + 1)

    def _unit_ends(self) -> Numbers:
        """Where each unit ends, in tokens."""
        ends = (self.units.places().astype(np.int64) + 1) * self.columns.unit_tokens
        return np.minimum(ends, self.columns.prompt_tokens[self.units.owner])

    def known(self) -> Known:
        """What is known beside the prompts of requests."""
        extra = self.answers[0].with_others(self.stored()).with_others(self._was_there())
        if self._history is not None:
            earlier = self._history.arrivals.sightings(self.named, self._timeline)
            extra = extra.with_others(earlier)
        flags = (self._started, self._any_scope, self._any_model)
        started, any_scope, any_model = (self._at_units(each) for each in flags)
        assert started is not None
        held, is_whole = self._held(), self._history is None
        return Known(started, any_scope, any_model, extra, held, is_whole)

    def _at_units(self, flags: Flags | None) -> Flags | None:
        """Of the blocks at the end of each unit: they stand for those before them."""
        return flags if flags is None or self._at_unit is None else flags[self._at_unit]

    @cached_property
    def answers(self) -> tuple[Sightings, Numbers]:
        """What earlier answers had computed, and the request that proves each block of it."""
        columns = self.columns
        if columns.output_tokens is None:
            return Sightings.none(), np.empty(0, np.int64)
        grain_tokens = columns.chains.grain_tokens
        answers = Answers.of(
            self.named,
            self._timeline,
            columns.kept,
            columns.prompt_tokens,
            columns.output_tokens,
            grain_tokens,
        )
        if self._history is not None:
            answers = answers.with_others(self._history.answers.answers(self.named, self._timeline))
        return proven(
            self.named,
            self._timeline,
            answers,
            self._started,
            columns.cached_tokens,
            (grain_tokens, columns.unit_tokens),
        )

    def stored(self) -> Sightings:
        """What events told."""
        stays = self.columns.fleet.stays
        if stays is None:
            return Sightings.none()
        stay = self._timeline.replicas.stay_at(stays.replica, stays.since)
        since = self._timeline.first_from(stays.since)
        return Sightings(self._told, stay, since)

    def _held(self) -> Spans | None:
        """Spans during which replicas held blocks: by events, else by the rule's lifetime."""
        stays, replicas = self.columns.fleet.stays, len(self._timeline.replicas.gone)
        if stays is not None:
            keys = self._told.astype(np.int64) * replicas + stays.replica
            since = self._timeline.first_from(stays.since)
            until = self._timeline.first_from(stays.until)
            return Spans(keys, since, until, len(self.columns))
        if self.columns.rule.lifetime_seconds is None:
            return None
        return self._within_lifetime(self.columns.rule.lifetime_seconds)

    def _within_lifetime(self, seconds: float) -> Spans:
        units, timeline, columns = self.units, self._timeline, self.columns
        used = columns.kept[units.owner]
        owner = units.owner[used]
        keys = units.block[used].astype(np.int64) * len(timeline.replicas.gone)
        keys += timeline.replica[owner]
        since = timeline.ready_from[owner]
        until = timeline.first_after(timeline.ready + seconds)[owner]
        if self._history is not None:
            earlier = self._history.used
            before = self.named.block[earlier.place].astype(np.int64)
            before = before * len(timeline.replicas.gone) + earlier.replica
            keys = np.concatenate([keys, before])
            since = np.concatenate([since, timeline.first_from(earlier.seconds)])
            until = np.concatenate([until, timeline.first_after(earlier.seconds + seconds)])
        return Spans(keys, since, until, len(columns))

    def shared_blocks(self) -> Numbers:
        """How many leading blocks of the chain's own size any earlier prompt had too."""
        if self._step == 1:
            return np.zeros(len(self.columns), np.int64)
        seen = self._started if self._any_scope is None else self._started | self._any_scope
        if self._any_model is not None:
            seen = seen | self._any_model
        found = np.where(seen, Way.ANY_MODEL, Way.UNKNOWN).astype(np.int8)
        return depths_of(found, self.named)[:, Way.ANY_MODEL]
