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

from replay.known_blocks import Blocks, Firsts, Sightings, Spans, paired, renumbered
from replay.timeline import NEVER, Timeline
from replay.traffic import Flags, Numbers, Small


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
    """What is known of each block beside when it was available.

    `started`: an earlier request had it; `any_scope`, `any_model`: the same content in another
    scope, under another model too; None where that makes no difference. `extra`: blocks that
    became available otherwise than as prompts. `held`: spans during which a replica held a
    block, key: block × replicas + replica; None where that is not known at all. `is_whole`: no
    request was under way when the first of these looked up.
    """

    started: Flags
    any_scope: Flags | None
    any_model: Flags | None
    extra: Sightings
    held: Spans | None
    is_whole: bool = True


def ways(blocks: Blocks, timeline: Timeline, prompts: tuple[Small, Small], known: Known) -> Found:
    """The way in which each block was known to its request, of blocks by themselves.

    `prompts`: the blocks that prompts put into caches, and whose they were.
    """
    found = np.full(len(blocks.block), Way.UNKNOWN, np.int8)
    for way, flags in ((Way.ANY_MODEL, known.any_model), (Way.ANY_SCOPE, known.any_scope)):
        if flags is not None:
            found[flags] = way
    found[known.started] = Way.IN_FLIGHT
    if timeline.is_serial and known.is_whole and not len(known.extra.block):
        there = np.flatnonzero(known.started)  # nothing was ever under way
    else:
        since = timeline.ready_from[prompts[1]]
        available = _available(blocks, prompts[0], since)
        available |= _available(blocks, known.extra.block, known.extra.since)
        there = np.flatnonzero(available)
    block, owner = blocks.block[there], blocks.owner[there]
    if len(timeline.stay_replica) == 1 and not timeline.has_endings:
        found[there] = Way.SINCE
    elif len(there):
        # Most blocks are never met again: the tables are of those that are.
        numbers, count = renumbered(block, blocks.count)
        sightings = _of_prompts(prompts, numbers, timeline)
        sightings = sightings.with_others(known.extra.of_blocks(numbers))
        found[there] = _nearest((numbers[block], owner), timeline, sightings, count)
    if known.held is not None:
        replicas = len(timeline.replicas.gone)
        keys = blocks.block.astype(np.int64) * replicas + timeline.replica[blocks.owner]
        found[known.held.hold(keys, blocks.owner)] = Way.HELD
    return found


def _available(blocks: Blocks, seen: Small, since: Small) -> Flags:
    """Which blocks were available somewhere by the look-up: those seen, each since then."""
    there: Flags = Firsts(seen, since, blocks.count).of(blocks.block) <= blocks.owner
    return there


def _of_prompts(prompts: tuple[Small, Small], numbers: Small, timeline: Timeline) -> Sightings:
    """When and where prompts made those blocks available that have a number."""
    block = numbers[prompts[0]]
    numbered = np.flatnonzero(block >= 0)
    owner = prompts[1][numbered]
    return Sightings(block[numbered], timeline.ready_stay[owner], timeline.ready_from[owner])


def started_before(blocks: Blocks, kept: Flags) -> Flags:
    """Which blocks an earlier request had too, whether or not it had computed them by then."""
    block, owner = blocks.block, blocks.owner
    if not kept.all():
        own = kept[owner]
        block, owner = block[own], owner[own]
    first = np.full(blocks.count, NEVER, np.int32)
    # Written from the last to the first: what stays is the first.
    first[block[::-1]] = owner[::-1]
    before: Flags = first[blocks.block] < blocks.owner
    return before


def _nearest(
    there: tuple[Small, Small], timeline: Timeline, available: Sightings, block_count: int
) -> Found:
    """Where blocks were that were available somewhere by the look-up; `there`: the blocks, and
    the requests that looked."""
    block, owner = there
    stays = len(timeline.stay_replica)
    firsts = available.firsts(timeline, block_count)
    way = np.full(len(block), Way.SINCE, np.int8)
    elsewhere = np.flatnonzero(firsts.of(paired(block, timeline.stay[owner], stays)) > owner)
    way[elsewhere] = Way.FLEET
    if timeline.has_endings and len(elsewhere):
        others = block[elsewhere], owner[elsewhere]
        way[elsewhere] = _lost_or_elsewhere(others, timeline, available, block_count)
    return way


def _lost_or_elsewhere(
    there: tuple[Small, Small], timeline: Timeline, available: Sightings, block_count: int
) -> Found:
    """The same for blocks that this replica has not computed since its last reset."""
    block, owner = there
    lasting = timeline.stay_until[available.stay] == NEVER
    for_good = Firsts(available.block[lasting], available.since[lasting], block_count)
    way = np.full(len(block), Way.FLEET, np.int8)
    doubtful = np.flatnonzero(for_good.of(block) > owner)
    if len(doubtful):
        spans = _spans(available, ~lasting, block[doubtful], timeline, block_count)
        live = spans.hold(block[doubtful].astype(np.int64), owner[doubtful])
        way[doubtful[~live]] = Way.GONE
    replicas = len(timeline.replicas.gone)
    on_replica = timeline.stay_replica[available.stay]
    own = Firsts(
        paired(available.block, on_replica, replicas), available.since, block_count * replicas
    )
    way[own.of(paired(block, timeline.replica[owner], replicas)) <= owner] = Way.BEFORE
    return way


def _spans(
    available: Sightings, ending: Flags, blocks: Small, timeline: Timeline, block_count: int
) -> Spans:
    """When some blocks were on replicas whose stay came to an end."""
    wanted = np.zeros(block_count, np.bool_)
    wanted[blocks] = True
    picked = np.flatnonzero(ending & wanted[available.block])
    return Spans(
        available.block[picked].astype(np.int64),
        available.since[picked],
        timeline.stay_until[available.stay[picked]],
        len(timeline.order),
    )


def depths_of(found: Found, blocks: Blocks) -> Numbers:
    """Of each request (row), how many leading blocks are known in each way (column) or a nearer
    one."""
    requests = len(blocks.starts) - 1
    along = np.maximum.accumulate(blocks.owner * _STRIDE + found)
    counts = np.bincount(along, minlength=requests * _STRIDE).reshape(requests, _STRIDE)
    return counts[:, : _WAYS - 1].cumsum(axis=1)
