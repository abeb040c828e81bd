"""Recorded prompts as if what layout findings name had been mended: the same requests and tokens,
other names of blocks.

Only what comes always is mended, by what `gain_tokens` of a finding assumes: nothing is known but
hashes, so that what a replay of these prompts wins is what a fix would win at best.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from replay.answers import NONE, with_answers
from replay.chain_rows import chains_of, codes, deployments_of, lengths_of, row_pieces
from replay.contents import prefix_names
from replay.counted import counted
from replay.known_blocks import Blocks, mixed, numbered, within
from replay.layout_chains.findings import found_in
from replay.layout_chains.groups import groups_of
from replay.layout_chains.mending import mended_template, recurring
from replay.layout_chains.prompts import Prompts as Layout
from replay.layout_chains.words import mended_words
from replay.prompts import Prompts
from replay.recorded import Labels, Recorded
from replay.recorded_rows import turns_of
from replay.rules import RULES
from replay.traffic import Chains, Numbers, Small, ranges, starts_of

# Findings are of so many requests and hashes of a template, whole sessions, as the exporter's are.
MOST_REQUESTS, MOST_HASHES = 300, 1_000_000
# Templates that are looked at, those with most prompt tokens first.
MOST_TEMPLATES = 40
# Of requests without a template, groups of fewer are not looked at.
MIN_GROUP_REQUESTS = 5
NOTHING_FOUND = "no layout finding that comes always: there is nothing to mend"
NOTHING_WON = "what layout findings would change wins nothing in these requests: left as it is"
_WITHOUT_CONTENTS = "what blocks hold is not known, so that few layout findings can be told"


@dataclass(frozen=True)
class Mended:
    """`prompts` None: nothing was mended, and `words` says why; else they say what was."""

    prompts: Prompts | None
    words: list[str]


@dataclass(frozen=True)
class _Change:
    """One template mended: its requests, their contents from then on, the next turns that send
    their answers again (NONE where none does), and what was done."""

    rows: Numbers
    contents: list[Small]
    next_turns: Numbers
    words: list[str]


def mended(
    prompts: Prompts,
    told: Layout,
    template: Labels | None,
    space: Numbers,
    turns: Numbers | None = None,
) -> Mended:
    """Prompts with all mended that is found in them.

    `told`: the same requests in the same order with what layout is told from; `space`: a number
    from 0 for each, blocks being shared within one only; `turns`: whose answer the next one sends
    again (`replay.answers`), None where that is not known of any. What findings promise can cost
    more elsewhere, as where a value that changes comes again: a template that finds no more for it
    is left as it is.
    """
    before, changes = _found_tokens(prompts), _changes(told, template)
    nothing = NOTHING_WON if changes else NOTHING_FOUND
    while changes:
        better = _changed(prompts, told, changes, space, turns)
        won = _found_tokens(better) - before
        by_change = [int(won[change.rows].sum()) for change in changes]
        least = max(min(by_change), 0)
        if least and won.sum() > 0:
            return Mended(better, [words for change in changes for words in change.words])
        # Those that win nothing, or where they cost other templates more the one that wins least.
        changes = [
            change for change, tokens in zip(changes, by_change, strict=True) if tokens > least
        ]
    unknown = "" if told.contents_known else f"; {_WITHOUT_CONTENTS}"
    return Mended(None, [f"{nothing}{unknown}"])


def _changes(told: Layout, template: Labels | None) -> list[_Change]:
    """What could be mended, by template."""
    changes = []
    first_free = 1 + max((int(own.max(initial=0)) for own in told.contents), default=0)
    for name, rows in _templates(told, template):
        own = told.taken(rows)
        sample = _sample(own)
        found = recurring(found_in(own.taken(sample)))
        if found:
            done = mended_template(own, sample, found, first_free)
            first_free = max(first_free, *(1 + int(each.max(initial=0)) for each in done.contents))
            turns = np.where(done.next_turns >= 0, rows[done.next_turns], NONE)
            words = [mended_words(each.finding, name) for each in found]
            changes.append(_Change(rows, done.contents, turns, words))
    return changes


def _changed(
    prompts: Prompts,
    told: Layout,
    changes: Sequence[_Change],
    space: Numbers,
    turns: Numbers | None,
) -> Prompts:
    """The prompts with some templates mended."""
    contents = list(told.contents)
    answered = np.full(len(told), NONE, np.int64) if turns is None else turns.copy()
    for change in changes:
        going_on = change.next_turns >= 0
        answered[change.rows[going_on]] = change.next_turns[going_on]
        for row, blocks in zip(change.rows.tolist(), change.contents, strict=True):
            contents[row] = blocks
    return with_answers(_renamed(prompts, contents, space), answered)


def _found_tokens(prompts: Prompts) -> Numbers:
    """What of each prompt a cache that never loses a block would find."""
    lengths = np.diff(prompts.starts)
    owner = np.repeat(np.arange(len(prompts)), lengths)
    first = np.empty(prompts.distinct_blocks, np.int64)
    first[prompts.blocks[::-1]] = owner[::-1]
    is_prompt = ranges(np.zeros_like(lengths), lengths) < prompts.lengths[owner]
    # A block is named by all that is before it, which was there too.
    known = owner[(first[prompts.blocks] < owner) & is_prompt]
    tokens = np.bincount(known, minlength=len(prompts)) * prompts.block_tokens
    return np.minimum(tokens, prompts.ceiling_tokens(RULES["full"]))


def _renamed(prompts: Prompts, contents: list[Small], space: Numbers) -> Prompts:
    """The same by other contents of its blocks."""
    starts = starts_of([len(blocks) for blocks in contents])
    blocks = _numbers(contents, space)
    return replace(prompts, blocks=blocks, starts=starts, answer_blocks=None)


def with_mended(recorded: Recorded, rows: pa.Table) -> Recorded:
    """The same with its prompts mended too. `rows`: of `request_chains`, those that the prompts are
    of, in their order. Where nothing is mended `mended_words` says why.

    ValueError where rows and prompts are not as many.
    """
    if len(rows) != len(recorded.prompts):
        of = f"those of {counted(len(recorded.prompts), 'prompt')}"
        raise ValueError(f"{counted(len(rows), 'row is', 'rows are')} not {of}")
    chains = _with_contents(rows, chains_of(rows, recorded.prompts.block_tokens))
    told = Layout.of(
        chains,
        pieces=row_pieces(rows),
        prompt_tokens=recorded.prompts.prompt_tokens,
        output_tokens=recorded.prompts.output_tokens,
        cached_tokens=rows["cached_tokens"].cast(pa.int64()).fill_null(-1).to_numpy(),
        started=rows["ts"].cast(pa.int64()).to_numpy() / 1e6,
        **{name: rows[name].to_pylist() for name in ("session", "tenant", "scope", "replica")},
    )
    scope = codes(rows, "scope")
    space = deployments_of(rows) * (int(scope.max(initial=0)) + 1) + scope
    turns = turns_of(rows, recorded.prompts, recorded.sessions, recorded.template)
    found = mended(recorded.prompts, told, recorded.template, space, turns)
    return replace(recorded, mended=found.prompts, mended_words=found.words)


def _with_contents(rows: pa.Table, chains: Chains) -> Chains:
    """Where some rows tell contents and others do not: a block of the same name holds the same."""
    is_told = np.repeat(lengths_of(rows["content_hashes"]) > 0, chains.lengths)
    if chains.contents is None or is_told.all():
        return chains
    number, count = numbered(chains.names)
    told = np.zeros(count, np.uint64)
    has_any = np.zeros(count, np.bool_)
    told[number[is_told]] = chains.contents[is_told]
    has_any[number[is_told]] = True
    return replace(chains, contents=np.where(has_any[number], told[number], chains.contents))


def _templates(told: Layout, template: Labels | None) -> Iterator[tuple[str, Numbers]]:
    """Requests by template, '' where none is known and they seem to have the same."""
    none = np.full(len(told), -1, np.int64)
    labels = none if template is None else template.codes
    found = [
        (template.names[number] if template else "", np.flatnonzero(labels == number))
        for number in np.unique(labels[labels >= 0]).tolist()
    ]
    unnamed = np.flatnonzero(labels < 0)
    if len(unnamed):
        groups = groups_of(told.taken(unnamed))
        found += [("", unnamed[rows]) for rows in groups if len(rows) >= MIN_GROUP_REQUESTS]
    found.sort(key=lambda each: -int(told.prompt_tokens[each[1]].sum()))
    return iter(found[:MOST_TEMPLATES])


def _sample(prompts: Layout) -> Numbers:
    """Whole sessions, the same ones each time, as many as are compared with each other."""
    lengths = np.array([len(own) for own in prompts.contents], np.int64)
    if len(prompts) <= MOST_REQUESTS and lengths.sum() <= MOST_HASHES:
        return np.arange(len(prompts))
    _, first, unit = np.unique(prompts.unit, return_index=True, return_inverse=True)
    scattered = mixed(first[unit].astype(np.uint64))
    order = np.lexsort((np.arange(len(prompts)), scattered))
    few = order[:MOST_REQUESTS]
    return np.sort(few[np.cumsum(lengths[few]) <= MOST_HASHES])


def _numbers(contents: list[Small], space: Numbers) -> Small:
    """A number for each block and all before it, within its space."""
    starts = starts_of([len(own) for own in contents])
    owner = np.repeat(np.arange(len(contents), dtype=np.int32), np.diff(starts))
    flat = np.concatenate(contents)
    blocks = Blocks(flat, owner, starts, int(flat.max(initial=-1)) + 1)
    names = prefix_names(flat.astype(np.uint64), blocks)
    return numbered(within(names, space[owner]) if space.any() else names)[0]
