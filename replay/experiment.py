"""One question put to recorded traffic: the same requests through every arm, in one setting."""

from dataclasses import dataclass, field

import numpy as np

from replay.arms import (
    OFF,
    PLAIN,
    ArmResult,
    Difference,
    Gain,
    differences,
    gain,
    summed,
    timed_arm,
    untimed_arm,
)
from replay.clock import Clock, Tier
from replay.curve import curve
from replay.prompts import Prompts
from replay.routers import Router
from replay.rules import CacheRule
from replay.timed import Fleet
from replay.traffic import Flags, Names

ORDER_ALONE = "order of requests alone, every earlier request's blocks are there: an upper bound"
USUAL_ARMS = (OFF, PLAIN, "least-loaded", "sticky", "bounded-load", "scored")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all arms have in common. `capacity_blocks`: of each replica, None: never full.
    `router`: its settings, whatever its name. `clock` None: by order of requests alone.
    `warm_up_requests`: the first ones, which are in no figure."""

    arms: tuple[str, ...]
    rule: CacheRule
    replicas: int
    capacity_blocks: int | None
    router: Router = field(default_factory=lambda: Router(name=PLAIN))
    clock: Clock | None = None
    tier: Tier | None = None
    warm_up_requests: int = 0

    def words(self) -> list[str]:
        """What is assumed, a line each."""
        memory = "never full"
        if self.capacity_blocks is not None:
            memory = f"of {self.capacity_blocks:,} blocks"
        words = [self.rule.words(), f"{self.replicas} replicas alike, memory {memory}"]
        words += [ORDER_ALONE] if self.clock is None else self.clock.words()
        words += [self.tier.words()] if self.tier and self.clock else []
        if self.warm_up_requests:
            words.append(f"the first {self.warm_up_requests:,} requests warm the caches only")
        return words


@dataclass(frozen=True)
class Experiment:
    """`bound_ratio`: the token hit ratio of one cache that never loses a block, for all requests
    that were served: no arm can do better. `days`: how long the requests counted took, None
    without any time between them."""

    setting: Setting
    results: list[ArmResult]
    differences: list[Difference]
    gain: Gain | None
    bound_ratio: float | None
    days: float | None


def experiment(prompts: Prompts, setting: Setting, sessions: Names | None = None) -> Experiment:
    """Run every arm. ValueError where there is no arm, or a rule with a lifetime of its own."""
    if not setting.arms:
        raise ValueError("an experiment needs at least one arm")
    first = min(setting.warm_up_requests, len(prompts))
    results, compared, refused = _run(prompts, setting, sessions, first)
    counted = prompts.arrived[first:]
    days = float(counted[-1] - counted[0]) / 86_400 if len(counted) else 0.0
    bound = curve(prompts.picked(~refused), setting.rule, int((~refused[:first]).sum()))
    return Experiment(
        setting, results, compared, gain(results), bound.ratio_at(bound.enough_blocks), days or None
    )


def _run(
    prompts: Prompts, setting: Setting, sessions: Names | None, first: int
) -> tuple[list[ArmResult], list[Difference], Flags]:
    """Sums and differences, and which requests fit no replica: in all arms the same."""
    clock = setting.clock
    if clock is None:
        return [
            untimed_arm(arm, prompts, setting.rule, setting.router, setting.replicas,
                        setting.capacity_blocks, sessions, first)
            for arm in setting.arms
        ], [], np.zeros(len(prompts), np.bool_)  # fmt: skip
    fleet = Fleet(
        replicas=setting.replicas,
        capacity_blocks=setting.capacity_blocks,
        clock=clock,
        router=setting.router,
        tier=setting.tier,
    )
    served = {arm: timed_arm(arm, prompts, setting.rule, fleet, sessions) for arm in setting.arms}
    which = np.arange(len(prompts)) >= first
    results = [summed(arm, each, which) for arm, each in served.items()]
    base = PLAIN if PLAIN in served else setting.arms[0]
    compared = [
        difference
        for arm, each in served.items()
        if arm != base
        for difference in differences(arm, each, base, served[base], which, setting.router.seed)
    ]
    return results, compared, served[base].refused
