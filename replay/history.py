"""What is known of the blocks of some requests from before them, when causes are named as traffic
goes by.

The batch pass has all requests at once and needs none of this. A pass over one minute is given
what the minutes before it left behind, in the same terms: flags of blocks, and moments at which
replicas came to have them.
"""

from dataclasses import dataclass

import numpy as np

from replay.generated import Answers
from replay.known_blocks import Blocks, Sightings
from replay.timeline import NEVER, Timeline
from replay.traffic import Flags, Numbers, Seconds

# Every replica is taken to have been reset at a moment before all others, so that what is left
# from before its last real reset and what is there still can be told by their moments alone.
LOST_SECONDS, BEGUN_SECONDS, THERE_SECONDS = -np.inf, -1e300, -1e200


@dataclass(frozen=True)
class Arrivals:
    """When replicas came to have blocks. `place`: one at which the block stands in the chains."""

    place: Numbers
    replica: Numbers
    seconds: Seconds

    def sightings(self, blocks: Blocks, timeline: Timeline) -> Sightings:
        """The same in the terms of a timeline."""
        stay = timeline.replicas.stay_at(self.replica, self.seconds)
        return Sightings(blocks.block[self.place], stay, timeline.first_from(self.seconds))


@dataclass(frozen=True)
class EarlierAnswers:
    """Prompts from before that were answered, each of which ends with a block of these chains.

    `seconds`: when the answer was there. `served`, `number`: as in `generated.Answers`, counted
    from the first look-up of these requests. `furthest_tokens`: how far any answer to that prompt
    came there.
    """

    arrivals: Arrivals
    served: Numbers
    number: Numbers
    length: Numbers
    prompt_tokens: Numbers
    output_tokens: Numbers
    furthest_tokens: Numbers

    def answers(self, blocks: Blocks, timeline: Timeline) -> Answers:
        """In the terms of a timeline: those that some request could be served."""
        ended = self.arrivals.sightings(blocks, timeline)
        there = np.flatnonzero(ended.since < NEVER)
        return Answers(
            block=ended.block[there],
            length=self.length[there],
            replica=self.arrivals.replica[there],
            ended_from=ended.since[there],
            ended_stay=ended.stay[there],
            served=np.minimum(self.served[there], ended.since[there]),
            number=self.number[there],
            prompt_tokens=self.prompt_tokens[there],
            output_tokens=self.output_tokens[there],
        )


@dataclass(frozen=True)
class History:
    """What was there before some requests; flags have an entry for each block of their chains.

    `started`: an earlier request had the block. `any_scope`, `any_model`: one in any scope, and of
    any model too, had its content and all content before it. `contents`: one had its content
    anywhere (of each piece, where prompts have pieces). `used`: when requests brought it into a
    cache, or used it there, as a rule with a lifetime counts.
    """

    started: Flags
    any_scope: Flags
    any_model: Flags
    contents: Flags
    arrivals: Arrivals
    used: Arrivals
    answers: EarlierAnswers
