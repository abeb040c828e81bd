"""Blocks that answers filled, named by the next turn of their conversation.

Engines cache answers too, and the next turn sends them again. A log has the names of prompts only;
where a next turn goes on behind the whole of an earlier prompt, what follows may be its answer. It
need not be: templates rewrite answers once they are history. So it counts only where what was
really cached tells that this kind of prompt goes on so.
"""

from dataclasses import replace

import numpy as np

from replay.prompts import Prompts
from replay.traffic import Flags, Names, Numbers, ranges, starts_of

NONE = -1
# Of next turns that were served all of the earlier prompt, so many were served of its answer too.
_MOST = 0.5


def following_turns(
    prompts: Prompts,
    sessions: Names | None,
    kind: Numbers,
    cached_tokens: Numbers,
    unit_tokens: int,
) -> Numbers:
    """The request that sends each request's answer again, NONE where none is known to.

    `kind`: a number for prompts that are made alike, their template; `cached_tokens`: what was
    cached of each, below 0 where that is not known, in blocks of `unit_tokens`. Without sessions
    none is known.
    """
    found = np.full(len(prompts), NONE, np.int64)
    if sessions is None:
        return found
    turns = _next_turns(sessions)
    # Names of blocks of the cache may leave out what fills none.
    known = prompts.lengths * prompts.block_tokens > prompts.prompt_tokens - unit_tokens
    pairs = np.flatnonzero(known & _goes_on(prompts, turns))
    proves, judged = _judged(prompts, pairs, cached_tokens[turns[pairs]], unit_tokens)
    kinds, own = np.unique(kind[pairs], return_inverse=True)
    proven, whole = (np.bincount(own, flags, len(kinds)) for flags in (proves, judged))
    believed = pairs[((proven > 0) & (proven >= _MOST * whole))[own]]
    found[believed] = turns[believed]
    return found


def _next_turns(sessions: Names) -> Numbers:
    """The next request of each request's session, NONE of the last."""
    turns = np.full(len(sessions), NONE, np.int64)
    order = np.argsort(sessions, kind="stable")
    same = sessions[order[1:]] == sessions[order[:-1]]
    turns[order[:-1][same]] = order[1:][same]
    return turns


def _judged(
    prompts: Prompts, pairs: Numbers, served: Numbers, unit_tokens: int
) -> tuple[Flags, Flags]:
    """Which next turns were served of an earlier answer, and which could have been: they were
    served all of that prompt, and its answer filled a block."""
    prompt = prompts.prompt_tokens[pairs]
    written = prompt + np.maximum(prompts.output_tokens[pairs] - 1, 0)
    fills = written // unit_tokens > prompt // unit_tokens
    return fills & (served > prompt), fills & (served >= prompt // unit_tokens * unit_tokens)


def _goes_on(prompts: Prompts, turns: Numbers) -> Flags:
    """Whose last block the next turn has at the same place, and more behind it: a block is named by
    all that is before it. Of requests without a next turn none."""
    lengths = prompts.lengths
    if not len(prompts.blocks):
        return np.zeros(len(prompts), np.bool_)
    last = np.maximum(lengths - 1, 0)
    goes_on = (turns >= 0) & (lengths > 0) & (lengths[turns] > lengths)
    at = np.where(goes_on, prompts.starts[turns] + last, 0)
    own = np.where(goes_on, prompts.starts[:-1] + last, 0)
    same: Flags = goes_on & (prompts.blocks[at] == prompts.blocks[own])
    return same


def with_answers(prompts: Prompts, turns: Numbers) -> Prompts:
    """The same, with the blocks that answers filled behind those of their prompts; none of an
    answer that is sent again otherwise. `turns`: as `following_turns` has them."""
    if not (turns >= 0).any():
        return prompts
    extended = _goes_on(prompts, turns)
    lengths = prompts.lengths
    written = prompts.prompt_tokens + np.maximum(prompts.output_tokens - 1, 0)
    reach = np.minimum(written // prompts.block_tokens, lengths[turns])
    more = np.where(extended, np.maximum(reach - lengths, 0), 0)
    # All of an extended chain stands in that of its next turn.
    begins = np.where(more > 0, prompts.starts[turns], prompts.starts[:-1])
    return replace(
        prompts,
        blocks=prompts.blocks[ranges(begins, lengths + more)],
        starts=starts_of(lengths + more),
        answer_blocks=more,
    )
