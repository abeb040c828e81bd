"""Generated tokens that a later prompt proves: engines cache answers too.

A log has the names of prompts only. Where a prompt goes on behind the whole of an earlier one, what
follows may be what was generated then, as many tokens as the answer had but the last. It need not
be: templates rewrite answers once they are history, and tokenizers join text anew. So it counts
only where the engine itself found a block of it in its cache that no prompt had before; then all
of it was computed on that replica and is taken as available there once the earlier request had
ended.
"""

from dataclasses import dataclass

import numpy as np

from replay.known_blocks import Blocks, Sightings
from replay.timeline import NEVER, Timeline
from replay.traffic import Flags, Numbers, Small, ranges


@dataclass(frozen=True)
class Answers:
    """Prompts that were answered beyond their last block, and when that was there.

    `block`: the one the prompt ends with, `length`: how many it has. `ended_from`, `ended_stay`: as
    in `Timeline`. `served`, `number`: which answer to equal prompts counts: that which could be
    served from the latest look-up on, then that of the later request; both may be negative, of
    what was before the traffic.
    """

    block: Small
    length: Numbers
    replica: Numbers
    ended_from: Small
    ended_stay: Small
    served: Numbers
    number: Numbers
    prompt_tokens: Numbers
    output_tokens: Numbers

    @classmethod
    def of(
        cls,
        blocks: Blocks,
        timeline: Timeline,
        kept: Flags,
        prompt_tokens: Numbers,
        output_tokens: Numbers,
        grain_tokens: int,
    ) -> "Answers":
        """Those of the traffic itself that some request could be served."""
        lengths = np.diff(blocks.starts)
        answered = kept & is_answered(prompt_tokens, output_tokens, lengths, grain_tokens)
        answered &= timeline.ended_from < NEVER
        own = np.flatnonzero(answered)
        return cls(
            block=blocks.block[blocks.starts[own + 1] - 1],
            length=lengths[own],
            replica=timeline.replica[own],
            ended_from=timeline.ended_from[own],
            ended_stay=timeline.ended_stay[own],
            served=timeline.ended_from[own].astype(np.int64),
            number=own,
            prompt_tokens=prompt_tokens[own],
            output_tokens=output_tokens[own],
        )

    def with_others(self, others: "Answers") -> "Answers":
        """Both."""
        return Answers(
            *(
                np.concatenate([getattr(self, name), getattr(others, name)])
                for name in self.__dataclass_fields__
            )
        )

    def reach(self, grain_tokens: int) -> Numbers:
        """Blocks that prompt and answer fill; the last token is never computed."""
        reach: Numbers = (self.prompt_tokens + self.output_tokens - 1) // grain_tokens
        return reach


def is_answered(
    prompt_tokens: Numbers, output_tokens: Numbers, lengths: Numbers, grain_tokens: int
) -> Flags:
    """Which prompts have a chain and an answer that fills a block behind it."""
    reach = (prompt_tokens + output_tokens - 1) // grain_tokens
    answered: Flags = (lengths > 0) & (output_tokens > 0) & (reach > lengths)
    return answered


def proven(
    blocks: Blocks,
    timeline: Timeline,
    answers: Answers,
    started: Flags,
    cached_tokens: Numbers,
    sizes: tuple[int, int],
) -> tuple[Sightings, Numbers]:
    """Blocks of prompts that earlier answers had computed, and the request that proves each. Of
    answers to equal prompts on one replica the one that ended last before the look-up counts.

    All columns in the order of look-ups. `started`: which blocks an earlier request had. `sizes`:
    tokens of a block of the chain, and of the cache.
    """
    grain_tokens, unit_tokens = sizes
    if not len(answers.block):
        return Sightings.none(), np.empty(0, np.int64)
    lengths = np.diff(blocks.starts)
    later, place, first = _continued(blocks, answers, timeline)
    found = np.minimum(answers.reach(grain_tokens)[first], lengths[later]) - (place + 1)
    # The first block of the cache with a generated token in it.
    answer_ends = (answers.prompt_tokens[first] // unit_tokens + 1) * unit_tokens
    proof = blocks.starts[later] + answer_ends // grain_tokens - 1
    proves = (found > 0) & (cached_tokens[later] >= answer_ends)
    proves &= answer_ends // grain_tokens <= lengths[later]
    proves[proves] = ~started[proof[proves]]
    later, place, first, found = later[proves], place[proves], first[proves], found[proves]
    places = ranges(blocks.starts[later] + place + 1, found)
    sightings = Sightings(
        blocks.block[places],
        np.repeat(answers.ended_stay[first], found),
        np.repeat(answers.ended_from[first], found),
    )
    return sightings, np.repeat(later, found)


def _continued(
    blocks: Blocks, answers: Answers, timeline: Timeline
) -> tuple[Numbers, Numbers, Numbers]:
    """Pairs of a later request and an answer it continues, and the place of the answered prompt's
    last block in the later one's chain."""
    replicas = len(timeline.replicas.gone)
    keys = answers.block.astype(np.int64) * replicas + answers.replica
    order = np.lexsort((answers.number, answers.served, keys))
    keys, ended = keys[order], answers.ended_from[order].astype(np.int64)
    groups = np.unique(keys)
    # Every block that goes on in its chain and is the last one of an earlier prompt …
    is_end = np.zeros(blocks.count, np.bool_)
    is_end[answers.block] = True
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
    return later, inside - blocks.starts[later], order[place]
