"""Arms of an experiment: the same traffic with caching off, on, and on behind other routers.

Each arm changes one thing. Differences are told against another arm on the same requests, with
intervals from resampling stretches of the traffic, as requests of one minute are not independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from replay.prompts import Prompts
from replay.routers import ROUTERS, Router
from replay.routing import imbalance_ratio
from replay.rules import CacheRule
from replay.timed import Fleet, Timed, serve_timed
from replay.traffic import Flags, Names, Numbers, Seconds, Small
from replay.untimed import serve

OFF = "off"
ARMS = (OFF, *ROUTERS)
# Caching as it is without thought for routing: what the others are compared with.
PLAIN = "round-robin"
PERCENTILES = (50, 90, 99)
_STRETCHES, _RESAMPLES, _INTERVAL = 100, 200, (2.5, 97.5)
# Of fewer requests an interval says nothing.
_FEWEST_STRETCHES = 10


@dataclass(frozen=True)
class ArmResult:
    """One arm in sum. Without a clock times are None. `imbalance_ratio`: computed tokens of the
    busiest replica ÷ their mean. `prefill_seconds`: that all replicas were kept by prefill,
    `ttft_seconds`: by percentile. `refused_requests` fit no replica and are in no other figure.
    `evicted_blocks` and `stored_blocks` are of the whole run, its warm-up included."""

    arm: str
    requests: int
    refused_requests: int
    prompt_tokens: int
    cached_tokens: int
    loaded_tokens: int
    evicted_blocks: int
    stored_blocks: int
    imbalance_ratio: float | None
    prefill_seconds: float | None = None
    ttft_mean_seconds: float | None = None
    ttft_seconds: dict[int, float] | None = None

    @property
    def token_hit_ratio(self) -> float | None:
        """Cached ÷ prompt tokens; None without any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True)
class Difference:
    """`arm` less `base` in one figure, and where it lies in 95 of 100 resamples."""

    arm: str
    base: str
    figure: str
    change: float
    low: float
    high: float


def untimed_arm(
    arm: str,
    prompts: Prompts,
    rule: CacheRule,
    router: Router,
    replicas: int,
    capacity_blocks: int | None,
    sessions: Names | None = None,
    counted_from: int = 0,
) -> ArmResult:
    """An arm by order of requests alone."""
    named = replace(router, name=PLAIN if arm == OFF else arm)
    served = serve(prompts, rule, named, replicas, capacity_blocks, sessions)
    cached = served.cached_tokens * (arm != OFF)
    computed = (prompts.prompt_tokens - cached)[counted_from:]
    return ArmResult(
        arm=arm,
        requests=len(prompts) - counted_from,
        refused_requests=0,
        prompt_tokens=int(prompts.prompt_tokens[counted_from:].sum()),
        cached_tokens=int(cached[counted_from:].sum()),
        loaded_tokens=0,
        evicted_blocks=int(served.evicted_blocks.sum()) if arm != OFF else 0,
        stored_blocks=0,
        imbalance_ratio=_imbalance(computed, served.replica[counted_from:], replicas),
    )


def timed_arm(
    arm: str, prompts: Prompts, rule: CacheRule, fleet: Fleet, sessions: Names | None = None
) -> Timed:
    """An arm with a clock, by request. The fleet's router is that of the arm, else unchanged."""
    router = replace(fleet.router, name=PLAIN if arm == OFF else arm)
    return serve_timed(prompts, rule, replace(fleet, router=router, caches=arm != OFF), sessions)


def summed(arm: str, served: Timed, which: Flags) -> ArmResult:
    """Sums over those of some requests that were served."""
    took = which & ~served.refused
    computed = served.prompt_tokens[took] - served.cached_tokens[took]
    ttft = served.ttft_seconds[took]
    percentiles = (
        np.percentile(ttft, PERCENTILES, method="inverted_cdf").tolist() if len(ttft) else []
    )
    return ArmResult(
        arm=arm,
        requests=int(took.sum()),
        refused_requests=int((which & served.refused).sum()),
        prompt_tokens=int(served.prompt_tokens[took].sum()),
        cached_tokens=int(served.cached_tokens[took].sum()),
        loaded_tokens=int(served.loaded_tokens[took].sum()),
        evicted_blocks=int(served.evicted_blocks.sum()),
        stored_blocks=served.stored_blocks,
        imbalance_ratio=_imbalance(computed, served.replica[took], len(served.evicted_blocks)),
        prefill_seconds=float(served.prefill_seconds[took].sum()),
        ttft_mean_seconds=float(ttft.mean()) if len(ttft) else None,
        ttft_seconds=dict(zip(PERCENTILES, percentiles, strict=False)),
    )


def _imbalance(computed: Numbers, replica: Small, replicas: int) -> float | None:
    """Of the busiest replica ÷ mean; None where nothing was computed."""
    return imbalance_ratio(np.bincount(replica, computed, replicas).astype(np.int64))


def differences(
    arm: str, served: Timed, base: str, other: Timed, which: Flags, seed: int = 1
) -> list[Difference]:
    """Prefill seconds, and TTFT by percentile, of those of some requests that both served; none
    where there are few."""
    both = which & ~served.refused & ~other.refused
    if int(both.sum()) < _FEWEST_STRETCHES:
        return []
    label = _stretches(int(both.sum()))
    prefill = (served.prefill_seconds - other.prefill_seconds)[both]
    times = _draws(int(label[-1]) + 1, seed)
    sums: Seconds = times.astype(np.float64) @ np.bincount(label, prefill)
    found = [_difference(arm, base, "prefill_seconds", float(prefill.sum()), sums)]
    mine, theirs = (_percentiles(each.ttft_seconds[both], label, times) for each in (served, other))
    for place, percentile in enumerate(PERCENTILES):
        change = mine[:, place] - theirs[:, place]
        name = f"ttft_p{percentile}_seconds"
        found.append(_difference(arm, base, name, float(change[0]), change[1:]))
    return found


def _difference(arm: str, base: str, figure: str, change: float, resampled: Seconds) -> Difference:
    low, high = np.percentile(resampled, _INTERVAL).tolist()
    return Difference(arm, base, figure, change, low, high)


def _stretches(requests: int) -> Numbers:
    """The stretch of the traffic that each request belongs to."""
    return np.arange(requests) * min(_STRETCHES, requests) // requests


def _draws(stretches: int, seed: int) -> Numbers:
    """How often each stretch is in each resample: as many are drawn as there are, with
    replacement."""
    drawn = np.random.default_rng(seed).multinomial(
        stretches, [1 / stretches] * stretches, _RESAMPLES
    )
    return drawn.astype(np.int64)


def _percentiles(values: Seconds, label: Numbers, times: Numbers) -> Seconds:
    """Of the values, in the first row, and of every resample: the least value with so many of a
    hundred not above it."""
    order = np.argsort(values)
    ascending, own = values[order], label[order]
    found = np.empty((len(times) + 1, len(PERCENTILES)))
    for row, weight in enumerate((np.ones(len(times[0]), np.int64), *times)):
        ahead = np.cumsum(weight[own])
        wanted = np.array(PERCENTILES) / 100 * ahead[-1]
        found[row] = ascending[np.searchsorted(ahead, wanted)]
    return found


@dataclass(frozen=True)
class Gain:
    """Of the prefill seconds that caching and routing save together, whose they are; less than 0
    where it costs more. They add up to `off` less the best arm."""

    best: str
    caching_seconds: float
    routing_seconds: float


def gain(results: Sequence[ArmResult]) -> Gain | None:
    """Caching: off → round robin. Routing: round robin → the caching arm whose first tokens came
    soonest on average, as the one with the least prefill may keep them waiting. None without
    these two arms, or without a clock."""
    known = {each.arm: each for each in results if each.prefill_seconds is not None}
    if OFF not in known or PLAIN not in known:
        return None
    off, plain = (known[arm].prefill_seconds or 0.0 for arm in (OFF, PLAIN))
    caching = [each for arm, each in known.items() if arm != OFF]
    best = min(caching, key=lambda each: each.ttft_mean_seconds or 0.0)
    return Gain(best.arm, off - plain, plain - (best.prefill_seconds or 0.0))
