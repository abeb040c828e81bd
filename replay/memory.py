"""All that a pass that goes on remembers of the traffic before: two generations of blocks, and how
many resets and look-ups there were.

When the younger generation has lasted a horizon, or has no room for more, the older is dropped as
a whole. So what was seen within the horizon is known, unless there was no room for so much.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from replay.known_blocks import within
from replay.seen import STARTED, AnswerRows, Found, Generation
from replay.traffic import Flags, Names, Numbers


@dataclass(frozen=True)
class Limits:
    """`horizon_seconds`: what was seen so long ago is known; at most `most_blocks` blocks."""

    horizon_seconds: float
    most_blocks: int


@dataclass
class Watch:
    """What an audit of reuse must know of a replica: when its first request looked up and when it
    was last reset (None: never), and whether it ever served a part of a block."""

    since_seconds: float | None = None
    reset_seconds: float | None = None
    served_parts: bool = False


@dataclass
class Memory:
    """`replicas`: their numbers. `resets`: of each replica how many there were; `watches`: what
    else is known of it. `deployments`: all that were met. `lookups`: how many requests there were.
    """

    limits: Limits
    lifetimes: bool
    begun_seconds: float
    replicas: dict[str, int] = field(default_factory=dict)
    resets: list[int] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    deployments: list[int] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)
    lookups: int = 0
    generation: int = 0
    until_seconds: float = -np.inf

    def __post_init__(self) -> None:
        self.young = Generation(self.begun_seconds, self.lifetimes)
        self.old: Generation | None = None

    # ------------------------------------------------------------------ names of things

    def number_replicas(self, names: Sequence[str]) -> Numbers:
        """The number of each replica; a new one gets the next."""
        for name in names:
            if name not in self.replicas:
                self.replicas[name] = len(self.replicas)
                self.resets.append(0)
                self.watches.append(Watch())
        return np.array([self.replicas[name] for name in names], np.int64)

    def meet(self, deployments: Names, scopes: Names) -> None:
        """Remember deployments, and whether there is more than one scope."""
        self.deployments += [d for d in deployments.tolist() if d not in self.deployments]
        self.scopes += [scope for scope in scopes.tolist() if scope not in self.scopes][:2]
        del self.scopes[2:]

    @property
    def several_spaces(self) -> bool:
        """Was there ever more than one deployment or scope?"""
        return len(self.deployments) > 1 or len(self.scopes) > 1

    # ------------------------------------------------------------------ generations

    @property
    def generations(self) -> Iterator[Generation]:
        """The younger first."""
        yield self.young
        if self.old is not None:
            yield self.old

    @property
    def bytes(self) -> int:
        """Memory of both."""
        return sum(each.bytes for each in self.generations)

    @property
    def blocks(self) -> int:
        """How many there are, those seen in both counted twice."""
        return sum(len(each) for each in self.generations)

    def remembered_seconds(self, now: float) -> float:
        """How far back it is known what was seen, at most the horizon."""
        oldest = self.young if self.old is None else self.old
        return min(self.limits.horizon_seconds, max(0.0, now - oldest.begun_seconds))

    @property
    def warm_seconds(self) -> float:
        """Until then less than a horizon had been seen."""
        return self.begun_seconds + self.limits.horizon_seconds

    def turn(self, now: float) -> bool:
        """Begin a new generation where the younger is old or large enough: was it? After a horizon
        without traffic nothing of before is known any more."""
        if now - self.until_seconds >= self.limits.horizon_seconds and len(self.young):
            self.old, self.young = None, Generation(now, self.lifetimes)
            self.generation += 2
            return True
        lasted = now - self.young.begun_seconds >= self.limits.horizon_seconds
        if not lasted and len(self.young) < self.limits.most_blocks // 2:
            return False
        self.old, self.young = self.young, Generation(now, self.lifetimes)
        self.generation += 1
        return True

    # ------------------------------------------------------------------ what is known

    def find(self, keys: Names) -> Found:
        """Of every block, of both generations."""
        found = self.young.find(keys, len(self.replicas))
        if self.old is None:
            return found
        before = self.old.find(keys, len(self.replicas))
        used = None
        if found.used is not None and before.used is not None:
            used = np.maximum(found.used, before.used)
        return Found(found.flags | before.flags, np.maximum(found.stays, before.stays), used)

    def has_content(self, keys: Names) -> Flags:
        """Which contents were seen."""
        return self._any([each.contents.has(keys) for each in self.generations])

    def has_root(self, roots: Names) -> tuple[Flags, Flags]:
        """Which scopes have sent anything, and which of them prompts without names of blocks."""
        generations = list(self.generations)
        return (
            self._any([each.roots.has(roots) for each in generations]),
            self._any([each.open_roots.has(roots) for each in generations]),
        )

    def has_prefix(self, keys: Names) -> Flags:
        """Which prefixes were seen."""
        return self._any([each.prefixes.has(keys) for each in self.generations])

    def was_started(self, names: Names, deployment: int) -> Flags:
        """Which blocks requests of a deployment had, by names that have it not in them."""
        keys = within(names, np.full(len(names), deployment, np.uint64))
        flags: Flags = self.find(keys).flags & STARTED > 0
        return flags

    @staticmethod
    def _any(flags: list[Flags]) -> Flags:
        found: Flags = np.logical_or.reduce(flags)
        return found

    def answers(self, ends: Names) -> Iterator[tuple[int, Numbers, AnswerRows]]:
        """By replica and generation: answers to prompts that end with some blocks, and which."""
        for replica in range(len(self.replicas)):
            keys = answer_keys(ends, np.full(len(ends), replica))
            for generation in self.generations:
                places, rows = generation.find_answers(keys)
                if len(places):
                    yield replica, places, rows

    # ------------------------------------------------------------------ kept

    def kept(self) -> dict[str, Any]:
        """All but the generations' tables, as JSON takes it."""
        return {
            "begun": self.begun_seconds,
            "replicas": list(self.replicas),
            "resets": self.resets,
            "watches": [vars(watch) for watch in self.watches],
            "deployments": self.deployments,
            "scopes": self.scopes,
            "lookups": self.lookups,
            "generation": self.generation,
            "until": self.until_seconds,
            "young_begun": self.young.begun_seconds,
            "old_begun": None if self.old is None else self.old.begun_seconds,
        }

    @classmethod
    def from_kept(cls, limits: Limits, lifetimes: bool, kept: Mapping[str, Any]) -> "Memory":
        """The same with empty tables."""
        memory = cls(limits, lifetimes, float(kept["begun"]))
        memory.replicas = {name: number for number, name in enumerate(kept["replicas"])}
        memory.resets, memory.scopes = list(kept["resets"]), list(kept["scopes"])
        memory.watches = [Watch(**watch) for watch in kept["watches"]]
        memory.deployments = list(kept["deployments"])
        memory.lookups, memory.generation = int(kept["lookups"]), int(kept["generation"])
        memory.until_seconds = float(kept["until"])
        memory.young = Generation(float(kept["young_begun"]), lifetimes)
        if kept["old_begun"] is not None:
            memory.old = Generation(float(kept["old_begun"]), lifetimes)
        return memory


def answer_keys(ends: Names, replica: Numbers) -> Names:
    """Keys of answers to prompts that end with a block, each on a replica."""
    return within(ends, replica + 1)
