"""What a span of traffic leaves behind for the spans after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from replay.columns import Columns
from replay.depths import Sources
from replay.generated import is_answered
from replay.known_blocks import numbered, within
from replay.memory import Memory, answer_keys
from replay.seen import (
    ENDS,
    MOST_STAYS,
    NEVER_USED,
    OPEN,
    STARTED,
    AnswerRows,
    Change,
    Found,
    answer_change,
)
from replay.spans import SpanKeys, TrafficSpan
from replay.traffic import Flags, Names, Numbers, Seconds, Stays
from replay.under_way import ComingAnswers, ComingBlocks

_Coming = TypeVar("_Coming", ComingBlocks, ComingAnswers)


def stored_stay(number: npt.NDArray[np.integer]) -> npt.NDArray[np.uint16]:
    """A stay of a replica, counted from 1, as it is kept. After 65,535 resets no more are told
    apart."""
    stored: npt.NDArray[np.uint16] = np.minimum(number, MOST_STAYS).astype(np.uint16)
    return stored


@dataclass(frozen=True)
class Left:
    """What a span changed, and what is still under way when it is over."""

    change: Change
    blocks: ComingBlocks
    answers: ComingAnswers


class Keeper:
    """Writes a span into the memory. `sources`: one for each of its rules; `blocks`, `answers`:
    what was under way when it began."""

    def __init__(
        self,
        memory: Memory,
        keys: SpanKeys,
        sources: Sequence[Sources],
        span: TrafficSpan,
        blocks: ComingBlocks,
        answers: ComingAnswers,
    ) -> None:
        self._memory, self._keys, self._sources, self._span = memory, keys, sources, span
        self._columns: Columns = sources[0].columns
        self._timeline = self._columns.timeline
        until = span.until_seconds
        self._arrived, self._blocks = _split(blocks, blocks.seconds <= until)
        self._ended, self._answers = _split(answers, answers.seconds <= until)
        stays = self._columns.fleet.stays
        self._told = np.empty(0, np.uint64) if stays is None else self._told_keys(stays)
        every = np.concatenate([keys.different, self._arrived.keys, self._ended.keys, self._told])
        self._number, self._count = numbered(every)
        self._every = every
        self._flags = np.zeros(self._count, np.uint8)
        replicas = len(memory.replicas)
        self._stays = np.zeros((self._count, replicas), np.uint16)
        self._used = np.full((self._count, replicas), NEVER_USED) if memory.lifetimes else None

    def keep(self) -> Left:
        """All of it."""
        self._keep_prompts()
        self._keep_ends()
        self._keep_told()
        answers = self._keep_answers()
        young = self._memory.young
        change = {
            **self._keep_blocks(),
            **answer_change(answers),
            "contents": self._keep_set(self._keys.contents, self._keys.content_owner, "contents"),
            "prefixes": self._keep_set(self._keys.prefixes, self._keys.owner, "prefixes"),
            **self._keep_roots(),
        }
        young.add_answers(answers)
        return Left(change, self._blocks, self._answers)

    # ------------------------------------------------------------------ blocks

    def _keep_blocks(self) -> Change:
        some = np.flatnonzero((self._flags > 0) | self._stays.any(axis=1))
        first = np.zeros(self._count, np.int64)
        first[self._number[::-1]] = np.arange(len(self._number) - 1, -1, -1)
        used = None if self._used is None else self._used[some]
        found = Found(self._flags[some], self._stays[some], used)
        return self._memory.young.add(self._every[first[some]], found)

    def _keep_prompts(self) -> None:
        """What prompts brought into caches, and what was there when they looked."""
        columns, timeline = self._columns, self._timeline
        kept = np.flatnonzero(columns.kept[self._keys.owner])
        owner, block = self._keys.owner[kept], self._keys.block[kept]
        self._flags[block] |= STARTED
        ends = self._ends(kept)
        there = ends <= columns.cached_tokens[owner]
        self._arrive(block[there], timeline.replica[owner[there]], timeline.stay[owner[there]])
        is_use = np.full(len(kept), columns.rule.lifetime_seconds is not None)
        ready = timeline.ready[owner]
        past = ready <= self._span.until_seconds
        replica = timeline.replica[owner]
        self._arrive(block[past], replica[past], timeline.ready_stay[owner[past]])
        self._use(block, replica, ready, past & is_use)
        more = ComingBlocks(
            self._keys.keys[kept][~past], replica[~past], ready[~past], is_use[~past]
        )
        self._blocks = self._blocks.with_others(more)

    def _keep_ends(self) -> None:
        """Prompts of which nobody knows how far they, or their answers, filled a cache."""
        columns, lengths = self._columns, self._columns.chains.lengths
        is_open = ~columns.fully_named
        if columns.output_tokens is not None:
            is_open |= columns.output_tokens <= 0
        rows = np.flatnonzero(columns.kept & is_open & (lengths > 0))
        self._flags[self._keys.block[columns.chains.starts[rows + 1] - 1]] |= OPEN

    def _ends(self, places: Numbers) -> Numbers:
        """Where each block ends, in tokens."""
        chains, owner = self._columns.chains, self._keys.owner[places]
        ends = (places - chains.starts[owner] + 1) * chains.grain_tokens
        inside: Numbers = np.minimum(ends, self._columns.prompt_tokens[owner])
        return inside

    def _keep_told(self) -> None:
        """What was under way and has arrived, what answers had computed, what events told."""
        begin = len(self._keys.different)
        number = self._number[begin : begin + len(self._arrived)]
        arrived, replicas = self._arrived, self._timeline.replicas
        stay = replicas.stay_at(arrived.replica, arrived.seconds)
        self._arrive(number, arrived.replica, stay)
        self._use(number, arrived.replica, arrived.seconds, arrived.is_use)
        order = self._timeline.order
        for sources, judged in zip(self._sources, self._span.judged, strict=True):
            found, later = sources.answers
            picked = np.flatnonzero(judged[order][later])
            stay = found.stay[picked]
            self._arrive(found.block[picked], self._timeline.stay_replica[stay], stay)
        stays = self._columns.fleet.stays
        if stays is not None:
            number = self._number[len(self._number) - len(self._told) :]
            self._arrive(number, stays.replica, replicas.stay_at(stays.replica, stays.since))

    def _told_keys(self, stays: Stays) -> Names:
        return within(stays.names, self._span.deployments[stays.deployment])

    def _arrive(
        self,
        block: npt.NDArray[np.integer],
        replica: Numbers,
        stay: npt.NDArray[np.integer],
    ) -> None:
        np.maximum.at(self._stays, (block, replica), self._kept_stay(replica, stay))

    def _kept_stay(self, replica: Numbers, stay: npt.NDArray[np.integer]) -> npt.NDArray[np.uint16]:
        """A stay of the timeline, counted over all spans."""
        before = np.array(self._memory.resets, np.int64)
        within_span = stay - self._timeline.replicas.starts[replica] - replica
        return stored_stay(before[replica] + within_span)

    def _use(
        self, block: npt.NDArray[np.integer], replica: Numbers, seconds: Seconds, which: Flags
    ) -> None:
        if self._used is not None:
            np.maximum.at(self._used, (block[which], replica[which]), seconds[which])

    def _keep_roots(self) -> Change:
        """Which scopes sent anything, and which of them a prompt whose blocks have no names."""
        columns, young, roots = self._columns, self._memory.young, self._keys.roots
        nameless = columns.kept & (columns.chains.lengths == 0)
        return {
            "roots": young.roots.add(roots[columns.kept]),
            "open_roots": young.open_roots.add(roots[nameless]),
        }

    def _keep_set(self, names: Names | None, owner: npt.NDArray[np.int32], which: str) -> Names:
        if names is None:
            return np.empty(0, np.uint64)
        fresh: Names = getattr(self._memory.young, which).add(names[self._columns.kept[owner]])
        return fresh

    # ------------------------------------------------------------------ answers

    def _keep_answers(self) -> AnswerRows:
        """Of answers to equal prompts the one that counts, of those that are there by now."""
        own, ended = self._own_answers(), self._ended
        until = self._span.until_seconds
        more, coming = _split(own, own.seconds <= until)
        self._answers = self._answers.with_others(coming)
        ended = ended.with_others(more)
        begin = len(self._keys.different) + len(self._arrived)
        self._flags[self._number[begin : begin + len(self._ended)]] |= ENDS
        served = np.minimum(self._timeline.first_from(ended.seconds), len(self._columns))
        stay = self._timeline.replicas.stay_at(ended.replica, ended.seconds)
        rows = AnswerRows(
            answer_keys(ended.keys, ended.replica),
            {
                "served": served.astype(np.int64) + self._memory.lookups,
                "number": ended.number,
                "stay": self._kept_stay(ended.replica, stay).astype(np.int64),
                "length": ended.length,
                "prompt_tokens": ended.prompt_tokens,
                "output_tokens": ended.output_tokens,
                "furthest_tokens": ended.prompt_tokens + ended.output_tokens - 1,
            },
        )
        _, known = self._memory.young.find_answers(np.unique(rows.keys))
        return _that_count(rows, known)

    def _own_answers(self) -> ComingAnswers:
        columns, timeline = self._columns, self._timeline
        if columns.output_tokens is None:
            return ComingAnswers.none()
        chains, prompt, output = columns.chains, columns.prompt_tokens, columns.output_tokens
        answered = is_answered(prompt, output, chains.lengths, chains.grain_tokens)
        rows = np.flatnonzero(columns.kept & answered)
        last = chains.starts[rows + 1] - 1
        self._flags[self._keys.block[last]] |= ENDS
        return ComingAnswers(
            self._keys.keys[last],
            timeline.replica[rows],
            timeline.ended[rows],
            rows + self._memory.lookups,
            chains.lengths[rows],
            prompt[rows],
            output[rows],
        )


def _that_count(rows: AnswerRows, known: AnswerRows) -> AnswerRows:
    """One for each key: the one that could be served from the latest look-up on, then that of the
    latest request; and how far the furthest of them came."""
    keys = np.concatenate([known.keys, rows.keys])
    columns = {
        name: np.concatenate([known.columns[name], own]) for name, own in rows.columns.items()
    }
    order = np.lexsort((columns["number"], columns["served"], keys))
    is_last = np.append(keys[order][1:] != keys[order][:-1], True)[: len(keys)]
    last = order[is_last]
    counted = {name: column[last] for name, column in columns.items()}
    if len(last):
        begins = np.flatnonzero(np.append(True, is_last[:-1]))
        furthest = np.maximum.reduceat(columns["furthest_tokens"][order], begins)
        counted["furthest_tokens"] = furthest
    return AnswerRows(keys[last], counted)


def _split(coming: _Coming, past: Flags) -> tuple[_Coming, _Coming]:
    return coming.picked(past), coming.picked(~past)
