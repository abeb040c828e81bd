"""A tiny engine that keeps scopes apart or does not, and knows for every token who computed it.

Prompts are lists of token ids; whatever the audit says is checked against what is known here of
every single token, not of blocks.
"""

from dataclasses import dataclass, field
from random import Random

import numpy as np

from replay.hashes import chain_hashes, content_hashes
from replay.traffic import Chains, Traffic

GRAIN = 16


@dataclass
class Asked:
    """One request as its engine saw it. `own_tokens`: how far a request of its scope had come into
    its prompt before, answers included; `others_tokens`: the same of all others."""

    scope: int
    prompt: list[int]
    answer: list[int]
    cached_tokens: int = 0
    own_tokens: int = 0
    others_tokens: int = 0


@dataclass
class Engine:
    """Never loses anything. It caches prompts, and answers but for their last token."""

    unit_tokens: int
    keeps_apart: bool
    asked: list[Asked] = field(default_factory=list)

    def serve(self, scope: int, prompt: list[int], answer: list[int]) -> Asked:
        own = self._furthest(prompt, [a for a in self.asked if a.scope == scope])
        others = self._furthest(prompt, [a for a in self.asked if a.scope != scope])
        reached = own if self.keeps_apart else max(own, others)
        unit = self.unit_tokens
        cached = min(reached, len(prompt) - 1) // unit * unit
        asked = Asked(scope, prompt, answer, cached, own, others)
        self.asked.append(asked)
        return asked

    @staticmethod
    def _furthest(prompt: list[int], before: list[Asked]) -> int:
        return max((agreed(prompt, a.prompt + a.answer[:-1]) for a in before), default=0)


def agreed(one: list[int], other: list[int]) -> int:
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))


def busy(seed: int, unit_tokens: int, *, keeps_apart: bool, requests: int = 30) -> Engine:
    """Templates, turns that go on from an answer, and repeats, by up to three scopes. The same
    prompt gets the same answer whoever asks, as at temperature 0."""
    draw = Random(seed)
    engine = Engine(unit_tokens, keeps_apart)
    start = [draw.randrange(9) for _ in range(draw.choice([0, 3, 8, 20]))]
    templates = [[*start, *(draw.randrange(1000) for _ in range(draw.choice([9, 40, 64])))]
                 for _ in range(2)]  # fmt: skip
    for _ in range(requests):
        kind = draw.random()
        if engine.asked and kind < 0.3:
            turn = draw.choice(engine.asked)
            prompt = turn.prompt + turn.answer + [draw.randrange(3) for _ in range(20)]
        elif engine.asked and kind < 0.5:
            prompt = draw.choice(engine.asked).prompt
        else:
            prompt = draw.choice(templates) + [draw.randrange(3) for _ in range(20)]
        told = Random(sum(prompt) * 1000 + len(prompt))
        answer = [told.randrange(1000) for _ in range(told.choice([1, 2, 18, 40]))]
        engine.serve(draw.randrange(3), prompt, answer)
    return engine


def traffic_of(asked: list[Asked], grain_tokens: int = GRAIN) -> Traffic:
    """What a log tells of it: names of whole blocks, how long answers were, what was cached."""
    count = len(asked)
    chains = [chain_hashes(a.prompt, grain_tokens, str(a.scope)) for a in asked]
    return Traffic(
        prompt_tokens=np.array([len(a.prompt) for a in asked], np.int64),
        cached_tokens=np.array([a.cached_tokens for a in asked], np.int64),
        chains=Chains.of(
            chains, grain_tokens, [content_hashes(a.prompt, grain_tokens) for a in asked]
        ),
        looked_up=np.arange(count) * 10.0,
        ready=np.arange(count) * 10.0 + 1,
        ended=np.arange(count) * 10.0 + 2,
        scope=np.array([a.scope for a in asked], np.int64),
        output_tokens=np.array([len(a.answer) for a in asked], np.int64),
    )
