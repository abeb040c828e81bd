"""What routers believe caches to hold: changes become known in their order, some time later."""

from typing import NamedTuple

import numpy as np

from replay.compiled import inlined
from replay.traffic import Flags, Numbers, Small


class Views(NamedTuple):
    """What routers believe. Changes become known in their order, `due` microseconds."""

    held: Flags
    due: Numbers
    block: Small
    replica: Small
    there: Flags
    counts: Numbers  # made, known


def empty_views(
    distinct_blocks: int, references: int, replicas: int, lag_seconds: float | None
) -> Views:
    """Nothing is believed. Without a lag routers see the caches themselves, so nothing is kept;
    `lag_seconds` None: they are never told. `references`: blocks of all prompts."""
    is_exact = lag_seconds == 0.0
    # Each reference to a block is published once at most, and lost once after that.
    changes = 0 if is_exact or lag_seconds is None else 2 * references
    return Views(
        held=np.zeros((1 if is_exact else distinct_blocks, replicas), np.bool_),
        due=np.empty(changes, np.int64),
        block=np.empty(changes, np.int32),
        replica=np.empty(changes, np.int32),
        there=np.empty(changes, np.bool_),
        counts=np.zeros(2, np.int64),
    )


@inlined
def tell(views: Views, blocks: Small, replica: int, is_there: bool, due: int) -> None:
    """Let routers know of changes at `due`."""
    if len(views.due) == 0:
        return
    made = views.counts[0]
    for block in blocks:
        views.due[made] = due
        views.block[made] = block
        views.replica[made] = replica
        views.there[made] = is_there
        made += 1
    views.counts[0] = made


@inlined
def learn(views: Views, now: int) -> None:
    """What is due becomes what routers believe."""
    known = views.counts[1]
    while known < views.counts[0] and views.due[known] <= now:
        views.held[views.block[known], views.replica[known]] = views.there[known]
        known += 1
    views.counts[1] = known
