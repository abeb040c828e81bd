"""What rows of traces are read into: a few numbers a request and its ids, millions of them.

Rows of a store would cost ten times the memory.
"""

from array import array
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from pathlib import Path

import numpy as np

from replay.known_blocks import mixed, numbered, within
from replay.recorded import Labels
from replay.traffic import Names, Numbers, Small, ranges, starts_of

# An answer of more is a mistake, and would need memory of its own in a replay; so would blocks.
_MOST_OUTPUT_TOKENS = 100_000_000
_MOST_BLOCKS = 10_000_000
# Runs of ids are told as numbers from the least on where most of those between are there.
_SPARSE = 4
_RUNS_AT_ONCE = 1 << 16


class NotATraceRow(ValueError):
    """What is wrong with one row."""


class Coded:
    """Labels of rows as numbers from 0, -1 of a row without. Takes no memory until one has."""

    def __init__(self) -> None:
        self.names: dict[Hashable, int] = {}
        self._codes = array("q")

    def add(self, row: int, name: Hashable) -> int:
        """The number of a name, which is that of a row from now on."""
        code = self.names.setdefault(name, len(self.names))
        self._codes.extend(repeat(-1, row - len(self._codes)))
        self._codes.append(code)
        return code

    def codes(self, rows: int) -> Numbers | None:
        """One for each row; None where no row has a label."""
        if not self.names:
            return None
        codes = np.full(rows, -1, np.int64)
        codes[: len(self._codes)] = self._codes
        return codes

    def labels(self, rows: int) -> Labels | None:
        """The same with their names."""
        codes = self.codes(rows)
        return None if codes is None else Labels(codes, [str(name) for name in self.names])


@dataclass
class Columns:
    """`ids` of rows that list them, `runs` (first, how many) of rows that tell runs of them, and
    `run_counts`, the runs of each row; `lengths`: blocks of each row. `block_tokens`: as the rows
    state it, 0 where they do not. `turns`: whether rows may state only what their session adds.
    `ends`: how many rows there are once each file is read.
    """

    times: "array[float]" = field(default_factory=lambda: array("d"))
    prompt_tokens: "array[int]" = field(default_factory=lambda: array("q"))
    output_tokens: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    ids: "array[int]" = field(default_factory=lambda: array("Q"))
    runs: "array[int]" = field(default_factory=lambda: array("q"))
    run_counts: "array[int]" = field(default_factory=lambda: array("q"))
    sessions: Coded = field(default_factory=Coded)
    scopes: Coded = field(default_factory=Coded)
    templates: Coded = field(default_factory=Coded)
    block_tokens: int = 0
    turns: bool = False
    starts_by_delay: int = 0
    ends: list[tuple[Path, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.times)

    def add(self, time: float, prompt_tokens: int, output_tokens: int, ids: list[int]) -> None:
        """A row that lists its ids."""
        _check_lengths(prompt_tokens, output_tokens, 1)
        self.ids.extend(ids)
        self._add(time, prompt_tokens, output_tokens, len(ids))

    def add_runs(
        self, time: float, prompt_tokens: int, output_tokens: int, runs: list[tuple[int, int]]
    ) -> None:
        """A row that tells runs of ids; those who write them know empty prompts too."""
        _check_lengths(prompt_tokens, output_tokens, 0)
        blocks = 0
        for first, count in runs:
            if first < 0 or not 1 <= count <= _MOST_BLOCKS:
                raise NotATraceRow("hash_runs must be pairs of an id from 0 on and a count from 1")
            blocks += count
        if blocks > _MOST_BLOCKS:
            raise NotATraceRow(f"hash_runs stand for more than {_MOST_BLOCKS:,} blocks")
        for run in runs:
            self.runs.extend(run)
        self.run_counts.append(len(runs))
        self._add(time, prompt_tokens, output_tokens, blocks)

    def _add(self, time: float, prompt_tokens: int, output_tokens: int, blocks: int) -> None:
        if not 0 <= time < inf:
            raise NotATraceRow(f"its time is {time:g}, and times must be 0 or more")
        self.times.append(time)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.lengths.append(blocks)

    def state_block(self, tokens: int) -> None:
        """Every row of a trace must state the same."""
        if tokens < 1 or self.block_tokens not in (0, tokens):
            raise NotATraceRow(
                f"blocks of {tokens} among blocks of {self.block_tokens or 'others'}"
            )
        self.block_tokens = tokens

    def place(self, row: int) -> str:
        """Where a row stands, for a person; empty lines do not count."""
        begin = 0
        for path, end in self.ends:
            if row < end:
                return f"{path}, row {row - begin + 1}"
            begin = end
        raise IndexError(row)

    def blocks(self) -> Small:
        """Numbers from 0 for all ids, those of one scope alike."""
        scope = self.scopes.codes(len(self))
        if self.runs:
            return self._blocks_of_runs(scope)
        ids = np.frombuffer(self.ids, np.uint64)
        if scope is not None:
            lengths = np.frombuffer(self.lengths, np.int64)
            ids = within(ids, np.repeat(scope + 1, lengths))
        return numbered(ids)[0]

    def _blocks_of_runs(self, scope: Numbers | None) -> Small:
        pairs = np.frombuffer(self.runs, np.int64).reshape(-1, 2)
        first, count = pairs[:, 0], pairs[:, 1]
        own = np.zeros(len(first), np.int64)
        if scope is not None:
            # Numbered anew, as a scope of empty prompts has no run.
            own = np.unique(scope[self._row_of_runs()], return_inverse=True)[1]
        least = np.full(int(own.max()) + 1, np.iinfo(np.int64).max)
        most = np.zeros_like(least)
        np.minimum.at(least, own, first)
        np.maximum.at(most, own, first + count)
        offsets = starts_of(most - least)
        if offsets[-1] > _SPARSE * int(count.sum()):
            ids = ranges(first, count).astype(np.uint64)
            return numbered(within(ids, np.repeat(own, count)))[0]
        return _compact(first - least[own] + offsets[own], count, int(offsets[-1]))

    def _row_of_runs(self) -> Numbers:
        """The row that each run is of."""
        return np.repeat(np.arange(len(self)), np.frombuffer(self.run_counts, np.int64))


def _check_lengths(prompt_tokens: int, output_tokens: int, fewest: int) -> None:
    if prompt_tokens < fewest or not 0 <= output_tokens <= _MOST_OUTPUT_TOKENS:
        most = f"from 0 to {_MOST_OUTPUT_TOKENS:,}"
        raise NotATraceRow(f"input_length must be at least {fewest} and output_length {most}")


def _compact(first: Numbers, count: Numbers, span: int) -> Small:
    """The numbers of all runs behind each other, without those in no run; a few runs at a time,
    as the whole is large and a number of 64 bits for each twice that."""
    change = np.bincount(first, minlength=span + 1) - np.bincount(first + count, minlength=span + 1)
    place = (np.cumsum(np.cumsum(change) > 0) - 1).astype(np.int32)
    blocks = np.empty(int(count.sum()), np.int32)
    ends = starts_of(count)
    for begin in range(0, len(first), _RUNS_AT_ONCE):
        some = slice(begin, begin + _RUNS_AT_ONCE)
        end = min(begin + _RUNS_AT_ONCE, len(first))
        blocks[ends[begin] : ends[end]] = place[ranges(first[some], count[some])]
    return blocks


def added_up(
    sessions: Numbers, prompt_tokens: Numbers, ids: Names, lengths: Numbers, block_tokens: int
) -> tuple[Numbers, Names, Numbers]:
    """Whole prompts of rows that state only what their session adds: length, ids, how many.

    A row that repeats its session's first id states the whole prompt. A turn may end within a
    block, so a block of the whole prompt is named by the id that its last token is under: as ids
    name all that is before them, equal names still mean equal prefixes.
    """
    starts = starts_of(lengths)
    so_far: dict[int, tuple[Names, Numbers]] = {}
    totals, chains = prompt_tokens.copy(), []
    for row, session in enumerate(sessions.tolist()):
        own = ids[starts[row] : starts[row + 1]]
        ends = np.minimum(np.arange(1, len(own) + 1) * block_tokens, prompt_tokens[row])
        if session < 0 or not len(own):
            chains.append(own)
            continue
        if session in so_far and own[0] != so_far[session][0][0]:
            own = np.concatenate([so_far[session][0], own])
            ends = np.concatenate([so_far[session][1], so_far[session][1][-1] + ends])
        so_far[session] = own, ends
        totals[row] = ends[-1]
        chains.append(_chain(own, ends, block_tokens))
    return totals, np.concatenate(chains), np.array([len(chain) for chain in chains], np.int64)


def _chain(ids: Names, ends: Numbers, block_tokens: int) -> Names:
    """The blocks of a prompt by the ids that their last tokens are under. An id that ends a whole
    block and the prompt stands for two blocks, so the second gets another name."""
    last_tokens = np.arange(block_tokens, ends[-1] + block_tokens, block_tokens)
    chain: Names = ids[np.searchsorted(ends, np.minimum(last_tokens, ends[-1]))]
    if len(chain) > 1 and chain[-1] == chain[-2]:
        chain[-1:] = mixed(chain[-1:])
    return chain
