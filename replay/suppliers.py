"""Who could have brought a block into a cache before a request looked for it.

The causes ask when a block was available; an audit of reuse asks less and must not err to one side:
which earlier request could have put it there at all, named or not.
"""

from dataclasses import dataclass

import numpy as np

from replay.columns import Columns
from replay.contents import prefix_names
from replay.known_blocks import Blocks
from replay.traffic import Flags, Names, Numbers, Small

# More tokens than any prompt has: of an answer whose length nobody knows.
NO_END = 2**31 - 1


@dataclass(frozen=True)
class OpenEnds:
    """Prompts that ended with a block, each with how far it and its answer may have come. `place`:
    one at which that block stands in the chains."""

    place: Numbers
    reach_tokens: Numbers

    def by_block(self, blocks: Blocks) -> Numbers:
        """The furthest of those that ended with each block, at every place; 0: none did."""
        furthest = np.zeros(blocks.count, np.int64)
        np.maximum.at(furthest, blocks.block[self.place], self.reach_tokens)
        return furthest[blocks.block]


@dataclass(frozen=True)
class Suppliers:
    """Requests that may have supplied others, all in the order of look-ups.

    `limit`: request i may have been supplied by those numbered below `limit[i]`, itself left out:
    all that had started by its first token, as its time in the queue may not be known. `reach`: as
    far as a request may have filled a cache, its answer included; NO_END where that is not known.
    """

    limit: Numbers
    reach_tokens: Numbers
    kept: Flags

    @classmethod
    def of(cls, columns: Columns) -> "Suppliers":
        timeline = columns.timeline
        limit = np.searchsorted(timeline.looked_up, timeline.ready, side="right")
        output = columns.output_tokens
        if output is None:
            output = np.zeros(len(columns), np.int64)
        # No output is not told apart from an unknown one, which may be long.
        reach = np.where(output > 0, columns.prompt_tokens + output - 1, NO_END)
        return cls(limit, reach, columns.kept)

    def supplied(self, blocks: Blocks) -> Flags:
        """Which blocks another request may have supplied."""
        requests = len(blocks.starts) - 1
        width = requests + 1
        held = self.kept[blocks.owner]
        keys = np.sort(blocks.block[held].astype(np.int64) * width + blocks.owner[held])
        keys = np.append(keys, [np.iinfo(np.int64).max] * 2)
        begin = blocks.block.astype(np.int64) * width
        first = np.searchsorted(keys, begin)
        is_own = keys[first] == begin + blocks.owner
        found: Flags = keys[first + is_own] < begin + self.limit[blocks.owner]
        return found

    def reaches(self, blocks: Blocks, open_ends: OpenEnds | None = None) -> Numbers:
        """How far into each prompt an earlier request may have come whose whole chain it
        continues: behind its named blocks stand the rest of that prompt and its answer. 0: none.

        `open_ends`: of requests before all of these.
        """
        is_end = np.zeros(len(blocks.block), np.bool_)
        is_end[blocks.starts[1:][np.diff(blocks.starts) > 0] - 1] = True
        is_end &= self.kept[blocks.owner]
        # By block, then in the order of look-ups: the running maximum begins anew with each block.
        order = np.argsort(blocks.block, kind="stable")
        base = blocks.block[order].astype(np.int64) * (NO_END + 1)
        value = base + np.where(is_end[order], self.reach_tokens[blocks.owner[order]], 0)
        before = np.maximum.accumulate(value)
        before = np.concatenate([base[:1], before[:-1]]) if len(base) else base
        reach = np.maximum(before - base, 0)
        if open_ends is not None:
            reach = np.maximum(reach, open_ends.by_block(blocks)[order])
        found = np.zeros(len(blocks.starts) - 1, np.int64)
        np.maximum.at(found, blocks.owner[order], reach)
        return found


def depths(supplied: Flags, blocks: Blocks) -> Numbers:
    """Of each request, how many leading blocks were supplied. The names of `blocks` name all blocks
    before them too, so that none is without those before it."""
    return np.bincount(blocks.owner[supplied], minlength=len(blocks.starts) - 1)


def rooted(blocks: Blocks, space: Numbers) -> Blocks:
    """The same with a block in front of each chain that all chains of a space begin with, so that
    a prompt whose blocks have no names is known to be of it."""
    requests = len(blocks.starts) - 1
    block = np.insert(blocks.block.astype(np.int64), blocks.starts[:-1], blocks.count + space)
    count = blocks.count + int(space.max(initial=0)) + 1
    starts = blocks.starts + np.arange(requests + 1)
    owner = np.repeat(np.arange(requests, dtype=np.int32), np.diff(starts))
    return Blocks(block.astype(np.int32), owner, starts, count)


def scope_free_names(columns: Columns) -> Names | None:
    """The blocks of prompts named by what they and all before them hold, whatever the scope. None
    where contents are not known."""
    chains = columns.chains
    if chains.contents is None:
        return None
    return prefix_names(chains.contents, Blocks.of(chains.names, chains.starts))


def without_scope(columns: Columns, names: Names | None) -> Blocks | None:
    """Blocks by such names, kept apart by model and version."""
    if names is None:
        return None
    return Blocks.of(names, columns.chains.starts).apart(columns.deployment)


def first_owners(blocks: Blocks, kept: Flags) -> Small:
    """Of each block number, the first request that had it; -1 where none was kept."""
    first = np.full(blocks.count, -1, np.int32)
    held = np.flatnonzero(kept[blocks.owner])[::-1]
    first[blocks.block[held]] = blocks.owner[held]
    return first
