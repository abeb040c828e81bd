"""Requests that seem to be of one template where nothing names one: those that hold most in common.

Prompts with a clock in front share no beginning, so that they are put together by what their blocks
hold, wherever it stands.
"""

import numpy as np

from replay.layout_chains.prompts import Prompts
from replay.traffic import Numbers

# A template has at least so many requests, and its text so many of theirs.
MIN_REQUESTS = 2


def groups_of(prompts: Prompts) -> list[Numbers]:
    """Groups of requests, the largest first; what shares nothing with others is in none.

    Each request goes by the block of its own that most requests hold, the first of these.
    """
    anchors = _anchors(prompts)
    found = [np.flatnonzero(anchors == anchor) for anchor in np.unique(anchors[anchors >= 0])]
    return sorted(
        (rows for rows in found if len(rows) >= MIN_REQUESTS),
        key=lambda rows: (-len(rows), rows[0]),
    )


def _anchors(prompts: Prompts) -> Numbers:
    """The block that stands for the template of each request; -1 where it holds none that another
    holds."""
    lengths = np.array([len(own) for own in prompts.contents], np.int64)
    anchors = np.full(len(prompts), -1, np.int64)
    if not lengths.sum():
        return anchors
    held = np.concatenate(prompts.contents).astype(np.int64)
    owner = np.repeat(np.arange(len(prompts)), lengths)
    unit = np.unique(prompts.unit, return_inverse=True)[1]
    wide = int(unit.max()) + 1
    witnesses = np.bincount(np.unique(held * wide + unit[owner]) // wide, minlength=held.max() + 1)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Turns of a conversation that stands alone are of one template too.
    turns = np.bincount(unit)[unit]
    for row in np.flatnonzero(lengths).tolist():
        own = held[starts[row] : starts[row + 1]]
        often = witnesses[own]
        if often.max() > 1 or turns[row] > 1:
            anchors[row] = own[int(often.argmax())]
    return anchors
