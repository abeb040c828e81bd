"""How far into each prompt its blocks were known, and in what way: the nested depths.

A block is known in the nearest of several ways (`Way`): still held by the replica, computed there
since its last reset, … As a prompt is reused from its start on, a block counts only as far as
every block before it does, so the ways of a prompt's blocks can only get worse along it; a depth
is how many blocks are known in a way at least that near.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from replay.known_blocks import Blocks, Firsts, Sightings, Spans
from replay.timeline import NEVER, Timeline
from replay.traffic import Flags, Numbers


class Way(IntEnum):
    """How a block was known when its request looked up, the nearest first."""

    HELD = 0  # by this replica, or a tier it can reach
    SINCE = 1  # on this replica since its last reset
    BEFORE = 2  # ever on this replica
    FLEET = 3  # on any live replica
    GONE = 4  # only on replicas that were reset or replaced since
    IN_FLIGHT = 5  # by a request that had not come to its first token
    ANY_SCOPE = 6  # only in another scope
    ANY_MODEL = 7  # only of another model or version
    UNKNOWN = 8


# A way for each block.
Found = npt.NDArray[np.int8]

_WAYS = len(Way)
_STRIDE = 16


@dataclass(frozen=True)
class Known:
    """What is known beside the requests themselves.

    `extra`: blocks that became available otherwise than as prompts. `held`: spans during which
    a replica held a block, key: block × replicas + replica; None where that is not known at all.
    `scope_free` and `model_free`: the same blocks named without their scope, without model too.
    """

    extra: Sightings
    held: Spans | None = None
    scope_free: Blocks | None = None
    model_free: Blocks | None = None


def ways(blocks: Blocks, timeline: Timeline, kept: Flags, seen: Sightings, known: Known) -> Found:
    """The way in which each block was known to its request, of blocks by themselves.

    `kept`: which requests put blocks into a cache at all; `seen`: what they put there.
    """
    found = np.full(len(blocks.block), Way.UNKNOWN, np.int8)
    for way, free in ((Way.ANY_MODEL, known.model_free), (Way.ANY_SCOPE, known.scope_free)):
        if free is not None:
            found[started_before(free, kept)] = way
    found[started_before(blocks, kept)] = Way.IN_FLIGHT
    available = seen.with_others(known.extra)
    _mark_available(found, blocks, timeline, available)
    if known.held is not None:
        replicas = len(timeline.replicas.gone)
        keys = blocks.block.astype(np.int64) * replicas + timeline.replica[blocks.owner]
        found[known.held.hold(keys, blocks.owner)] = Way.HELD
    return found


def started_before(blocks: Blocks, kept: Flags) -> Flags:
    """Which blocks an earlier request had too, whether or not it had computed them by then."""
    block, owner = blocks.block, blocks.owner
    if not kept.all():
        own = kept[owner]
        block, owner = block[own], owner[own]
    first = np.full(blocks.count, NEVER, np.int32)
    # Written from the last to the first: what stays is the first.
    first[block[::-1]] = owner[::-1]
    return first[blocks.block] < blocks.owner


def _mark_available(
    found: Found,
    blocks: Blocks,
    timeline: Timeline,
    available: Sightings,
) -> None:
    """Blocks that were available anywhere by the look-up, by where that was."""
    stays = len(timeline.stay_replica)
    firsts = available.firsts(timeline, blocks.count)
    entries, since = firsts.entries()
    by_block, on_stay = entries // max(stays, 1), entries % max(stays, 1)
    anywhere = Firsts(by_block, since, blocks.count)
    there = np.flatnonzero(anywhere.of(blocks.block) <= blocks.owner)
    block, owner = blocks.block[there].astype(np.int64), blocks.owner[there]
    way = np.full(len(there), Way.FLEET, np.int8)
    if timeline.has_endings:
        until = timeline.stay_until[on_stay]
        live = Spans(by_block, since, until, len(timeline.order)).hold(block, owner)
        way[~live] = Way.GONE
        replicas = len(timeline.replicas.gone)
        own = Firsts(
            by_block * replicas + timeline.stay_replica[on_stay], since, blocks.count * replicas
        )
        way[own.of(block * replicas + timeline.replica[owner]) <= owner] = Way.BEFORE
    way[firsts.of(block * stays + timeline.stay[owner]) <= owner] = Way.SINCE
    found[there] = way


def depths_of(found: Found, blocks: Blocks) -> Numbers:
    """Of each request (row), how many leading blocks are known in each way (column) or a nearer
    one."""
    requests = len(blocks.starts) - 1
    along = np.maximum.accumulate(blocks.owner * _STRIDE + found)
    counts = np.bincount(along, minlength=requests * _STRIDE).reshape(requests, _STRIDE)
    return counts[:, : _WAYS - 1].cumsum(axis=1)
