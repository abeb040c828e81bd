"""Generated tokens that a later prompt proves: engines cache answers too.

A log has the names of prompts only. Where a prompt goes on behind the whole of an earlier one, what
follows may be what was generated then, as many tokens as the answer had but the last. It need not
be: templates rewrite answers once they are history, and tokenizers join text anew. So it counts
only where the engine itself found a block of it in its cache that no prompt had before; then all
of it was computed on that replica and is taken as available there once the earlier request had
ended.
"""

import numpy as np

from replay.known_blocks import Blocks, Sightings
from replay.timeline import NEVER, Timeline
from replay.traffic import Flags, Numbers, ranges


def proven(
    blocks: Blocks,
    timeline: Timeline,
    known: tuple[Flags, Flags],
    prompt_tokens: Numbers,
    output_tokens: Numbers,
    cached_tokens: Numbers,
    sizes: tuple[int, int],
) -> Sightings:
    """Blocks of prompts that earlier answers had computed. Of answers to equal prompts on one
    replica the one that ended last before the look-up counts.

    All columns in the order of look-ups; `output_tokens` below 1: no answer, or not known.
    `known`: which requests were kept, and which blocks an earlier one had. `sizes`: tokens of a
    block of the chain, and of the cache.
    """
    kept, started = known
    grain_tokens, unit_tokens = sizes
    lengths = np.diff(blocks.starts)
    reach = (prompt_tokens + output_tokens - 1) // grain_tokens
    answered = kept & (lengths > 0) & (output_tokens > 0) & (reach > lengths)
    answered &= timeline.ended_from < NEVER
    earlier = np.flatnonzero(answered)
    if not len(earlier):
        return Sightings.none()
    later, place, first = _continued(blocks, earlier, timeline)
    found = np.minimum(reach[first], lengths[later]) - (place + 1)
    # The first block of the cache with a generated token in it.
    answer_ends = (prompt_tokens[first] // unit_tokens + 1) * unit_tokens
    proof = blocks.starts[later] + answer_ends // grain_tokens - 1
    proves = (found > 0) & (cached_tokens[later] >= answer_ends)
    proves &= answer_ends // grain_tokens <= lengths[later]
    proves[proves] = ~started[proof[proves]]
    later, place, first, found = later[proves], place[proves], first[proves], found[proves]
    places = ranges(blocks.starts[later] + place + 1, found)
    return Sightings(
        blocks.block[places],
        np.repeat(timeline.ended_stay[first], found),
        np.repeat(timeline.ended_from[first], found),
    )


def _continued(
    blocks: Blocks, earlier: Numbers, timeline: Timeline
) -> tuple[Numbers, Numbers, Numbers]:
    """Pairs of a later request and an earlier one it continues, and the place of the earlier
    one's last block in the later one's chain."""
    replicas = len(timeline.replicas.gone)
    ends = blocks.block[blocks.starts[earlier + 1] - 1].astype(np.int64)
    keys = ends * replicas + timeline.replica[earlier]
    order = np.lexsort((earlier, timeline.ended_from[earlier], keys))
    earlier, keys = earlier[order], keys[order]
    ended = timeline.ended_from[earlier].astype(np.int64)
    groups = np.unique(keys)
    # Every block that goes on in its chain and is the last one of an earlier prompt …
    is_end = np.zeros(blocks.count, np.bool_)
    is_end[ends] = True
    goes_on = is_end[blocks.block]
    goes_on[blocks.starts[1:][np.diff(blocks.starts) > 0] - 1] = False
    inside = np.flatnonzero(goes_on)
    # … with every replica that computed it.
    low = np.searchsorted(groups, blocks.block[inside].astype(np.int64) * replicas)
    high = np.searchsorted(groups, (blocks.block[inside].astype(np.int64) + 1) * replicas)
    group = groups[ranges(low, high - low)]
    inside = np.repeat(inside, high - low)
    later = blocks.owner[inside].astype(np.int64)
    width = len(timeline.order) + 1
    place = np.searchsorted(keys * width + ended, group * width + later, side="right") - 1
    valid = (place >= 0) & (keys[place] == group)
    later, inside, place = later[valid], inside[valid], place[valid]
    return later, inside - blocks.starts[later], earlier[place]
