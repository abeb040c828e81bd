"""Turns of a conversation: does the next prompt go on where the last one and its answer ended?

A prompt that was extended is found again whole. What was rewritten in it parts the two: near its
end where the template renders the beginning of an answer in another way once it is history
(thinking markers), further inside where history is shortened. Where the whole prompt is found again
but never a block of the answer, they part exactly at the join.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from replay.layout_chains.prompts import NOT_GIVEN, Prompts
from replay.traffic import NOT_REPORTED, Flags, Numbers

Kind = Literal["thinking_removed", "tokenizer_join", "unknown"]
_MIN_PAIRS = 3
# A next turn has at least so much of the prompt before it, else it is another conversation.
_GOES_ON_RATIO = 0.5
# Few rewritten ends show in whole blocks: a marker of two tokens in two of sixteen.
_REWRITTEN_RATIO, _SHORTENED_RATIO, _NO_ANSWER_RATIO = 0.04, 0.1, 0.8
# What ends a prompt and is not in the next lies within so many tokens of its end; a marker at the
# beginning of an answer takes less than a block, so that most turns do not show it.
_END_TOKENS, _MARKER_RATIO, _MIN_MARKERS = 32, 0.75, 6
# Turns that should show a marker and do not, as a share of those that do.
_STRAY_RATIO = 0.5
# Answers have at least so many tokens more than the prompt's last block, whatever the block.
_ANSWER_BLOCKS = 4
# Turns of helpers stand between those of a conversation; so far back it is looked for.
_LOOKED_BACK = 8


@dataclass(frozen=True)
class Turns:
    """Turns that part from the one before in the same way.

    `kind` unknown: somewhere inside. `rows`: the later turns that show it, `before`: what each goes
    on; of each the first token of the block in which they part, and the first one behind it.
    `lost_tokens`: computed though the
    turn before had them, of all turns that are the same way.
    """

    kind: Kind
    rows: Numbers
    before: Numbers
    begins_tokens: Numbers
    ends_tokens: Numbers
    lost_tokens: int
    turns: int


@dataclass(frozen=True)
class Pairs:
    """Each later turn beside the one before it; `shared`: tokens in whole blocks both have."""

    row: Numbers
    before: Numbers
    shared: Numbers


def turns_of(prompts: Prompts) -> list[Turns]:
    """Every way in which turns part from those before them; of no conversation none."""
    pairs = pairs_of(prompts)
    if not len(pairs.row):
        return []
    # Chains may leave out what fills no block of the cache.
    named = np.array([len(own) for own in prompts.chains], np.int64)
    blocks = np.minimum(prompts.prompt_tokens // prompts.grain_tokens, named)
    whole = blocks[pairs.before] * prompts.grain_tokens
    inside = pairs.shared < whole
    left = prompts.prompt_tokens[pairs.before] - pairs.shared
    at_end = inside & (left <= _END_TOKENS + prompts.grain_tokens)
    found = [
        _rewritten(prompts, pairs, at_end),
        _shortened(prompts, pairs, inside & ~at_end),
        _never_answered(prompts, pairs, ~inside) if not at_end.any() else None,
    ]
    return [each for each in found if each is not None]


def pairs_of(prompts: Prompts) -> Pairs:
    """Each request of a conversation that goes on an earlier one."""
    rows: list[tuple[int, int, int]] = []
    last_of: dict[int, list[int]] = {}
    for row, session in enumerate(prompts.session.tolist()):
        if session == NOT_GIVEN or not len(prompts.chains[row]):
            continue
        earlier = last_of.setdefault(session, [])
        found = _turn_before(prompts, row, earlier[-_LOOKED_BACK:])
        if found is not None:
            rows.append((row, *found))
        earlier.append(row)
    table = np.array(rows, np.int64).reshape(len(rows), 3)
    return Pairs(table[:, 0], table[:, 1], table[:, 2])


def _turn_before(prompts: Prompts, row: int, earlier: list[int]) -> tuple[int, int] | None:
    """The prompt of the session that this one goes on, and the tokens of the blocks both have."""
    best: tuple[int, int] | None = None
    chain = prompts.chains[row]
    for other in earlier:
        before = prompts.chains[other]
        length = min(len(chain), len(before))
        # Names are of all that came before: two agree up to the last that is the same.
        shared = int((chain[:length] == before[:length]).sum())
        is_longer = prompts.prompt_tokens[row] > prompts.prompt_tokens[other]
        if shared < _GOES_ON_RATIO * len(before) or not is_longer:
            continue
        if best is None or shared * prompts.grain_tokens >= best[1]:
            best = other, shared * prompts.grain_tokens
    return best


def _rewritten(prompts: Prompts, pairs: Pairs, parted: Flags) -> Turns | None:
    if parted.sum() < _MIN_PAIRS or parted.mean() < _REWRITTEN_RATIO:
        return None
    # What does not fill the last whole block: the difference reaches at least so far back.
    behind = prompts.prompt_tokens[pairs.before] % prompts.grain_tokens
    if not _is_marker(behind, parted):
        return _shortened(prompts, pairs, parted)
    # More than the last token differs where the last whole block is not the prompt's end.
    kind: Kind = "thinking_removed" if (behind[parted] > 0).any() else "tokenizer_join"
    # Less than a block shows in few turns what all of them lose.
    return _turns(prompts, pairs, parted, kind, of_all=kind == "thinking_removed")


def _is_marker(behind: Numbers, parted: Flags) -> bool:
    """Is it the same few tokens at the end of every prompt? Then the turns that show it are those
    whose last whole block ends within these, and no others."""
    if len(parted) >= _MIN_MARKERS and parted.mean() >= _MARKER_RATIO:
        return False
    reach = behind[parted].max()
    return bool((behind[~parted] <= reach).sum() <= _STRAY_RATIO * parted.sum())


def _shortened(prompts: Prompts, pairs: Pairs, parted: Flags) -> Turns | None:
    if parted.sum() < _MIN_PAIRS or parted.mean() < _SHORTENED_RATIO:
        return None
    return _turns(prompts, pairs, parted, "unknown")


def _never_answered(prompts: Prompts, pairs: Pairs, whole: Flags) -> Turns | None:
    """Prompts came back whole, and never a block of an answer that was long enough."""
    cached, grain = prompts.cached_tokens[pairs.row], prompts.grain_tokens
    own = prompts.prompt_tokens[pairs.before]
    with_answer = _with_answer(prompts, pairs)
    told = whole & (cached != NOT_REPORTED) & (with_answer >= own + _ANSWER_BLOCKS * grain)
    told &= cached > own - 2 * grain
    never = told & (cached <= own)
    if told.sum() < _MIN_PAIRS or never.sum() < _NO_ANSWER_RATIO * told.sum():
        return None
    grown = prompts.prompt_tokens[pairs.row] - own
    shortened = never & (grown < prompts.output_tokens[pairs.before])
    kind: Kind = "tokenizer_join"
    if shortened.sum() >= _NO_ANSWER_RATIO * never.sum():
        kind = "thinking_removed"
    return _turns(prompts, pairs, never, kind)


def _with_answer(prompts: Prompts, pairs: Pairs) -> Numbers:
    """Tokens that were computed by the end of the turn before, in whole blocks, as far as the next
    one could use them: of an answer all but its last token."""
    had = prompts.prompt_tokens[pairs.before] + np.maximum(
        prompts.output_tokens[pairs.before] - 1, 0
    )
    usable = np.minimum(had, prompts.prompt_tokens[pairs.row] - 1)
    whole: Numbers = usable // prompts.grain_tokens * prompts.grain_tokens
    return whole


def _turns(prompts: Prompts, pairs: Pairs, which: Flags, kind: Kind, of_all: bool = False) -> Turns:
    shared, grain = pairs.shared[which], prompts.grain_tokens
    lost = np.maximum(_with_answer(prompts, pairs) - pairs.shared, 0)
    # Where the answer came back, nothing was lost.
    lost[prompts.cached_tokens[pairs.row] > prompts.prompt_tokens[pairs.before]] = 0
    total = int((lost if of_all else lost[which]).sum())
    rows, before = pairs.row[which], pairs.before[which]
    return Turns(kind, rows, before, shared, shared + grain, total, len(pairs.row))
