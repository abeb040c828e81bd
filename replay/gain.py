"""Whose the gain is: of the prefill that an experiment saves, the part of caching, of routing and
of the layout of prompts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from replay.arms import MENDED, Arm
from replay.serving import Outcome
from replay.traffic import Flags

_OFF, _PLAIN = Arm(caches=False), Arm()


@dataclass(frozen=True)
class Gain:
    """Prefill seconds that each saves; less than 0 where it costs more. They add up to `off` less
    `best` over requests that all of these arms served.

    `best`: the arm of the best router, with mended prompts where these take less prefill
    (`has_layout`).
    """

    best: str
    caching_seconds: float
    routing_seconds: float
    layout_seconds: float
    has_layout: bool = False


def best_routed(outcomes: Mapping[Arm, Outcome], which: Flags) -> Arm | None:
    """Of the arms that differ in their router alone the one whose first tokens come soonest on
    average, as the one with the least prefill may keep them waiting. None without the arms `off`
    and round robin to hold it against, or without a clock."""
    known = {arm: each for arm, each in outcomes.items() if each.times is not None}
    if _OFF not in known or _PLAIN not in known:
        return None
    routed = [arm for arm in known if arm == Arm(router=arm.router)]
    return min(routed, key=lambda arm: _mean_ttft(known[arm], which))


def _mean_ttft(served: Outcome, which: Flags) -> float:
    assert served.times is not None
    ttft = served.times.ttft[which & ~served.refused]
    return float(ttft.mean()) if len(ttft) else 0.0


def mended(arm: Arm) -> Arm:
    """The same with mended prompts."""
    return replace(arm, traffic=MENDED)


def gain(outcomes: Mapping[Arm, Outcome], which: Flags) -> Gain | None:
    """Caching: off → round robin. Routing: round robin → the best router. Layout: that → the same
    with mended prompts, 0 where this arm is not there or takes no less. None where `best_routed`
    finds none."""
    best = best_routed(outcomes, which)
    if best is None:
        return None
    last = mended(best) if mended(best) in outcomes else best
    chosen = [outcomes[arm] for arm in (_OFF, _PLAIN, best, last)]
    took = which & ~np.any([each.refused for each in chosen], axis=0)
    off, plain, routed, laid_out = (_prefill_seconds(each, took) for each in chosen)
    if laid_out >= routed:
        last, laid_out = best, routed
    return Gain(last.name, off - plain, plain - routed, routed - laid_out, last != best)


def _prefill_seconds(served: Outcome, took: Flags) -> float:
    assert served.times is not None
    return float(served.times.prefill[took].sum())
