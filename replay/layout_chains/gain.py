"""What a fix of a place would win: the same requests replayed without what stands there.

An upper bound: the cache never loses a block, blocks are left out whole, and what lies behind a
value of varying length is taken for the same text where it is as long.
"""

from collections.abc import Sequence

import numpy as np

from replay.layout_chains.places import Place
from replay.layout_chains.prompts import NOT_GIVEN, Prompts, reused_blocks
from replay.traffic import Numbers, Small

# What lies behind in one class may be so many blocks longer than in another and be the same text.
_SPREAD_BLOCKS = 2


def gain_tokens(prompts: Prompts, place: Place) -> int:
    """Tokens that these requests would reuse more at best if the place were the same in all."""
    lengths = [prompts.lengths(row) for row in range(len(prompts))]
    before = _reused_tokens(prompts, prompts.contents, lengths)
    fixed = fixed_at(prompts, place, lengths)
    after = _reused_tokens(prompts, *fixed)
    for row, (_, had) in hidden_turns(prompts, place, fixed[1]).items():
        after[row] = max(after[row], had)
    # Where the value came again, its own blocks were reused: leaving them out loses nothing.
    return int((after - before).clip(min=0).sum())


def hidden_turns(
    prompts: Prompts, place: Place, lengths: Sequence[Numbers]
) -> dict[int, tuple[int, int]]:
    """Of later turns whose value is another number of tokens than in the turn before, that turn and
    the tokens of it that this one has too: a shift hides that it goes on where that one ended."""
    found: dict[int, tuple[int, int]] = {}
    # What a second place hides the first hides too.
    if place.crossed or place.after >= 0:
        return found
    behind = {
        row: prompts.contents[row][end] if end < len(prompts.contents[row]) else -1
        for row, _, end in _each(place)
    }
    last: dict[int, int] = {}
    for row in np.sort(place.rows).tolist():
        session = int(prompts.session[row])
        before = last.get(session)
        if session != NOT_GIVEN:
            last[session] = row
        if before is not None and behind[row] != behind[before]:
            had = min(int(lengths[before].sum()), int(lengths[row].sum()))
            found[row] = before, had // prompts.grain_tokens * prompts.grain_tokens
    return found


def _reused_tokens(
    prompts: Prompts, contents: Sequence[Small], lengths: Sequence[Numbers]
) -> Numbers:
    """What each would reuse, in whole blocks."""
    depths = reused_blocks(contents, prompts.scope)
    tokens = [int(own[:depth].sum()) for own, depth in zip(lengths, depths.tolist(), strict=True)]
    return np.array(tokens, np.int64) // prompts.grain_tokens * prompts.grain_tokens


def fixed_at(
    prompts: Prompts, place: Place, lengths: Sequence[Numbers], first_free: int = 0
) -> tuple[list[Small], list[Numbers]]:
    """The contents of every request with the place put right, and how long each is. What is made
    the same in all gets new numbers, from `first_free` on or behind all there are."""
    fixed, own_lengths = list(prompts.contents), list(lengths)
    first_free = max(first_free, 1 + max(int(own.max(initial=0)) for own in prompts.contents))
    for row, begin, end in _each(place):
        own, tokens = fixed[row], lengths[row]
        # A set in a fixed order is there still, and the same in all.
        there = first_free + np.arange(end - begin if place.crossed else 0)
        fixed[row] = np.concatenate([own[:begin], there.astype(own.dtype), own[end:]])
        kept = tokens[begin:end] if place.crossed else tokens[:0]
        own_lengths[row] = np.concatenate([tokens[:begin], kept, tokens[end:]])
    if not place.crossed:
        _stitch(fixed, place, prompts, first_free)
    return fixed, own_lengths


def _stitch(fixed: list[Small], place: Place, prompts: Prompts, first_free: int) -> None:
    """Make what lies behind the place the same in all classes where it is as long."""
    classes = _classes(fixed, place)
    if len(classes) < 2:
        return
    runs = [_run(fixed, rows, place, prompts) for rows in classes]
    known = [run for run in runs if run > 0]
    if len(known) < 2:
        return
    usual = int(np.median(known))
    alike = [abs(run - usual) <= _SPREAD_BLOCKS for run in runs]
    if sum(alike) < 2:
        return
    length = min(run for run, is_alike in zip(runs, alike, strict=True) if is_alike)
    begins = dict(zip(place.rows.tolist(), place.begins.tolist(), strict=True))
    for rows, is_alike in zip(classes, alike, strict=True):
        for row in rows if is_alike else []:
            own, begin = fixed[row].copy(), begins[row]
            here = min(length, len(own) - begin)
            own[begin : begin + here] = first_free + np.arange(here)
            fixed[row] = own


def _classes(fixed: list[Small], place: Place) -> list[list[int]]:
    """Requests that agree in the first block behind the place."""
    found: dict[int, list[int]] = {}
    for row, begin, _ in _each(place):
        if begin < len(fixed[row]):
            found.setdefault(int(fixed[row][begin]), []).append(row)
    return list(found.values())


def _run(fixed: list[Small], rows: list[int], place: Place, prompts: Prompts) -> int:
    """Blocks behind the place that these requests share; 0 where they are one witness."""
    if len(np.unique(prompts.unit[rows])) < 2:
        return 0
    begins = dict(zip(place.rows.tolist(), place.begins.tolist(), strict=True))
    return common_run([fixed[row][begins[row] :] for row in rows])


def _each(place: Place) -> Sequence[tuple[int, int, int]]:
    return list(zip(place.rows.tolist(), place.begins.tolist(), place.ends.tolist(), strict=True))


def shared_blocks(prompts: Prompts, rows: Numbers, begins: Numbers) -> int:
    """Blocks from `begins` on that most of these requests share."""
    return common_run(
        [prompts.contents[row][at:] for row, at in zip(rows.tolist(), begins.tolist(), strict=True)]
    )


def common_run(tails: Sequence[Small]) -> int:
    """Leading blocks that more than half of all have in common."""
    depth = 0
    while True:
        ahead = [int(tail[depth]) for tail in tails if len(tail) > depth]
        if len(ahead) < 2 or np.unique(ahead, return_counts=True)[1].max() <= len(tails) // 2:
            return depth
        depth += 1
