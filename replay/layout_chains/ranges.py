"""Which parts of a template's prompts are shared, by what share of its requests."""

from dataclasses import dataclass

import numpy as np

from replay.layout_chains.prompts import Prompts, beginnings
from replay.traffic import Numbers

# Shares that differ by no more than this are one range.
_SAME_SHARE = 0.02
MOST_RANGES = 60


@dataclass(frozen=True)
class TokenRange:
    """Tokens from `from_token` to before `until_token`.

    `requests` have them; `same_requests`: so many of these have the very same beginning up to
    there (the most frequent one); `reuse_requests`: share it with at least one other;
    `content_requests`: another holds the same blocks at any place.
    """

    from_token: int
    until_token: int
    requests: int
    same_requests: int
    reuse_requests: int
    content_requests: int


def ranges_of(prompts: Prompts) -> list[TokenRange]:
    """From token 0 on, blocks of like shares taken together; at most MOST_RANGES, the last of which
    reaches to the end of the longest prompt. Of prompts without blocks none."""
    names, owner, place = beginnings(prompts)
    if not len(names):
        return []
    return _together(_shares(prompts, names, owner, place), prompts.grain_tokens)


def _shares(prompts: Prompts, names: Numbers, owner: Numbers, place: Numbers) -> Numbers:
    """By block: requests that have it; with the most frequent beginning; with one that others have;
    with content that others have."""
    blocks = int(place.max()) + 1
    times = np.bincount(names)[names]
    most = np.zeros(blocks, np.int64)
    np.maximum.at(most, place, times)
    return np.stack(
        [
            np.bincount(place, minlength=blocks),
            most,
            np.bincount(place, times > 1, minlength=blocks).astype(np.int64),
            np.bincount(place, _elsewhere(prompts, owner), minlength=blocks).astype(np.int64),
        ]
    )


def _elsewhere(prompts: Prompts, owner: Numbers) -> Numbers:
    """Which blocks hold what another request holds too."""
    held = np.concatenate(prompts.contents).astype(np.int64)
    pairs = np.unique(held * len(prompts) + owner)
    ids, requests = np.unique(pairs // len(prompts), return_counts=True)
    return np.isin(held, ids[requests > 1]).astype(np.int64)


def _together(table: Numbers, grain_tokens: int) -> list[TokenRange]:
    requests = int(table[0].max())
    found: list[TokenRange] = []
    begin = 0
    for block in range(1, table.shape[1] + 1):
        at_end = block == table.shape[1]
        unlike = not at_end and _differ(table[:, begin], table[:, block], requests)
        if at_end or (unlike and len(found) < MOST_RANGES - 1):
            counts = np.median(table[:, begin:block], axis=1).astype(np.int64).tolist()
            found.append(TokenRange(begin * grain_tokens, block * grain_tokens, *counts))
            begin = block
    return found


def _differ(one: Numbers, other: Numbers, requests: int) -> bool:
    return bool((np.abs(one - other) > _SAME_SHARE * requests).any())
