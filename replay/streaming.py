"""The causes of missed tokens, span by span as traffic goes by, instead of all at once.

Every span is named by the batch pass itself (`causes.named`), which is told what was known before:
the same answers as over all traffic at once, wherever requests come in the order of their
look-ups. What comes too late for its span, and what was seen before the horizon, is not known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from replay.causes import Causes, named
from replay.columns import Columns, Fleet
from replay.crossing import Crossing, watch
from replay.depths import Sources
from replay.history import (
    BEGUN_SECONDS,
    LOST_SECONDS,
    THERE_SECONDS,
    Arrivals,
    EarlierAnswers,
    History,
)
from replay.isolation import Crossed
from replay.keeping import Keeper, stored_stay
from replay.known_blocks import numbered, within
from replay.memory import Limits, Memory
from replay.seen import ENDS, NEVER_USED, STARTED, Change
from replay.spans import SpanKeys, TrafficSpan
from replay.timeline import NEVER
from replay.traffic import Flags, Moments, Numbers, Seconds, Traffic
from replay.under_way import ComingAnswers, ComingBlocks

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Named:
    """What became of a span: its causes by each of its rules, in the order of its traffic; what it
    added to the memory, and to which generation. `turned`: that has begun with it.
    `remembered_seconds`: how far back it was known what was seen; until `warm_seconds` less than a
    horizon had been seen. `crossed`: reuse across scopes, as `causes` by each rule; whose it was is
    known only where it was in the span."""

    causes: list[Causes]
    crossed: list[Crossed]
    change: Change
    generation: int
    turned: bool
    remembered_seconds: float
    warm_seconds: float


class CauseStream:
    """Names causes span after span. Chains of all spans have blocks of the same size, and all
    rules the same lifetime or none."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.blocks = ComingBlocks.none()
        self.answers = ComingAnswers.none()

    @classmethod
    def begin(cls, limits: Limits, begun_seconds: float, lifetimes: bool = False) -> "CauseStream":
        """One that has seen nothing."""
        return cls(Memory(limits, lifetimes, begun_seconds))

    def kept(self) -> tuple[dict[str, Any], Arrays]:
        """What it knows beside the changes it told: a part for JSON, and arrays."""
        arrays = {f"blocks_{name}": column for name, column in self.blocks.arrays().items()}
        arrays |= {f"answers_{name}": column for name, column in self.answers.arrays().items()}
        return self.memory.kept(), arrays

    @classmethod
    def restored(
        cls,
        limits: Limits,
        lifetimes: bool,
        kept: tuple[Mapping[str, Any], Arrays],
        changes: Iterable[tuple[int, Change]],
    ) -> "CauseStream":
        """As it was when it was kept, from that and all changes up to there, each with its
        generation, in their order."""
        told, arrays = kept
        stream = cls(Memory.from_kept(limits, lifetimes, told))
        memory = stream.memory
        for generation, change in changes:
            if generation == memory.generation:
                memory.young.take_in(change)
            elif generation == memory.generation - 1 and memory.old is not None:
                memory.old.take_in(change)
        stream.blocks = ComingBlocks.from_arrays(_unprefixed(arrays, "blocks_"))
        stream.answers = ComingAnswers.from_arrays(_unprefixed(arrays, "answers_"))
        return stream

    def take(self, span: TrafficSpan) -> Named:
        """The next span. Raises BlockSizesDisagree, and remembers nothing of it, where a rule's
        block and that of the chains do not go into each other."""
        memory = self.memory
        traffic, fleet = self._numbered(span)
        columns = [Columns.of(traffic, rule, fleet) for rule in span.rules]
        turned = memory.turn(span.since_seconds)
        remembered = memory.remembered_seconds(span.since_seconds)
        memory.meet(span.deployments, span.scopes)
        keys = SpanKeys.of(columns[0], span.deployments, span.scopes)
        history = _Look(memory, keys, self.blocks, self.answers).history()
        own_resets = Moments(fleet.resets.replica[len(memory.replicas) :],
                             fleet.resets.seconds[len(memory.replicas) :])  # fmt: skip
        watch(memory, columns, span, own_resets)
        crossed = [Crossing(memory, keys, history, span).of(each) for each in columns]
        sources = [Sources(each, history) for each in columns]
        causes = [named(each) for each in sources]
        left = Keeper(memory, keys, sources, span, self.blocks, self.answers).keep()
        self.blocks, self.answers = left.blocks, left.answers
        memory.lookups += len(traffic)
        memory.until_seconds = span.until_seconds
        for replica in fleet.resets.replica[fleet.resets.seconds > BEGUN_SECONDS].tolist():
            memory.resets[replica] += 1
        generation, warm = memory.generation, memory.warm_seconds
        return Named(causes, crossed, left.change, generation, turned, remembered, warm)

    def _numbered(self, span: TrafficSpan) -> tuple[Traffic, Fleet]:
        """The span with replicas as the memory numbers them, each reset before all times."""
        numbers = self.memory.number_replicas(span.replicas)
        every = np.arange(len(self.memory.replicas))
        resets = Moments(
            np.concatenate([every, numbers[span.resets.replica]]),
            np.concatenate([np.full(len(every), BEGUN_SECONDS), span.resets.seconds]),
        )
        gone = Moments(numbers[span.gone.replica], span.gone.seconds)
        stays = span.stays
        if stays is not None:
            stays = replace(stays, replica=numbers[stays.replica])
        own = span.traffic.replica
        own = np.zeros(len(span.traffic), np.int64) if own is None else own
        return replace(span.traffic, replica=numbers[own]), Fleet(resets, gone, stays)


class _Look:
    """What the memory has of the blocks of a span."""

    def __init__(
        self, memory: Memory, keys: SpanKeys, blocks: ComingBlocks, answers: ComingAnswers
    ) -> None:
        self._memory, self._keys = memory, keys
        self._blocks, self._answers = blocks, answers
        self._different = keys.different
        self._found = memory.find(self._different)
        number, _ = numbered(np.concatenate([self._different, blocks.keys, answers.keys]))
        count = len(self._different)
        # Numbers from `count` on are of blocks that do not stand in the span.
        self._coming = number[count : count + len(blocks)]
        self._coming_answers = number[count + len(blocks) :]

    def history(self) -> History:
        """All of it."""
        keys, memory = self._keys, self._memory
        started = self._found.flags[keys.block] & STARTED > 0
        any_scope, any_model = self._without_scope()
        contents = np.empty(0, np.bool_)
        if keys.contents is not None:
            contents = memory.has_content(keys.contents)
        return History(
            started, any_scope, any_model, contents, self._arrivals(), self._used(),
            self._earlier_answers(),
        )  # fmt: skip

    def _without_scope(self) -> tuple[Flags, Flags]:
        keys, memory = self._keys, self._memory
        nowhere = np.zeros(len(keys.keys), np.bool_)
        if not memory.several_spaces:
            return nowhere, nowhere
        any_scope = nowhere if keys.prefixes is None else memory.has_prefix(keys.prefixes)
        any_model = any_scope
        if len(memory.deployments) > 1:
            names = keys.columns.chains.names
            for deployment in memory.deployments:
                different = memory.was_started(names[keys.first], deployment)
                any_model = any_model | different[keys.block]
                if keys.bare_prefixes is not None:
                    there = np.full(len(keys.bare_prefixes), deployment, np.uint64)
                    any_model |= memory.has_prefix(within(keys.bare_prefixes, there))
        return any_scope, any_model

    def _arrivals(self) -> Arrivals:
        block, replica = np.nonzero(self._found.stays)
        seconds = self._since_reset(self._found.stays[block, replica], replica)
        before = Arrivals(self._keys.first[block], replica, seconds)
        return _together(before, self._under_way(np.ones(len(self._blocks), np.bool_)))

    def _used(self) -> Arrivals:
        if self._found.used is None:
            return Arrivals(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        block, replica = np.nonzero(self._found.used > NEVER_USED)
        before = Arrivals(self._keys.first[block], replica, self._found.used[block, replica])
        return _together(before, self._under_way(self._blocks.is_use))

    def _under_way(self, which: Flags) -> Arrivals:
        here = np.flatnonzero(which & (self._coming < len(self._different)))
        place = self._keys.first[self._coming[here]]
        return Arrivals(place, self._blocks.replica[here], self._blocks.seconds[here])

    def _since_reset(self, stays: npt.NDArray[np.integer], replica: Numbers) -> Seconds:
        """A moment that tells whether a block came since its replica's last reset."""
        resets = np.array(self._memory.resets, np.int64)
        there = stays == stored_stay(resets[replica] + 1)
        return np.where(there, THERE_SECONDS, LOST_SECONDS)

    def _earlier_answers(self) -> EarlierAnswers:
        ends = np.flatnonzero(self._found.flags & ENDS)
        lookups = self._memory.lookups
        parts = [self._coming_part(lookups)]
        for replica, places, rows in self._memory.answers(self._different[ends]):
            whose, told = np.full(len(places), replica), rows.columns
            arrivals = Arrivals(
                self._keys.first[ends[places]], whose, self._since_reset(told["stay"], whose)
            )
            parts.append(EarlierAnswers(
                arrivals, told["served"] - lookups, told["number"] - lookups, told["length"],
                told["prompt_tokens"], told["output_tokens"], told["furthest_tokens"],
            ))  # fmt: skip
        return _joined(parts)

    def _coming_part(self, lookups: int) -> EarlierAnswers:
        here = np.flatnonzero(self._coming_answers < len(self._different))
        coming = self._answers.picked(here)
        arrivals = Arrivals(
            self._keys.first[self._coming_answers[here]], coming.replica, coming.seconds
        )
        return EarlierAnswers(
            arrivals, np.full(len(here), NEVER, np.int64), coming.number - lookups, coming.length,
            coming.prompt_tokens, coming.output_tokens,
            coming.prompt_tokens + coming.output_tokens - 1,
        )  # fmt: skip


def _unprefixed(arrays: Arrays, prefix: str) -> dict[str, npt.NDArray[Any]]:
    return {
        name.removeprefix(prefix): column
        for name, column in arrays.items()
        if name.startswith(prefix)
    }


def _together(some: Arrivals, others: Arrivals) -> Arrivals:
    return Arrivals(
        np.concatenate([some.place, others.place]),
        np.concatenate([some.replica, others.replica]),
        np.concatenate([some.seconds, others.seconds]),
    )


def _joined(parts: list[EarlierAnswers]) -> EarlierAnswers:
    arrivals = parts[0].arrivals
    for part in parts[1:]:
        arrivals = _together(arrivals, part.arrivals)
    columns = (
        "served", "number", "length", "prompt_tokens", "output_tokens", "furthest_tokens",
    )  # fmt: skip
    return EarlierAnswers(
        arrivals, *(np.concatenate([getattr(part, name) for part in parts]) for name in columns)
    )
