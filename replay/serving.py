"""One arm served: what becomes of every request, and its sums."""

from dataclasses import dataclass, field, replace

import numpy as np

from replay.arms import Arm
from replay.balance import imbalance_ratio
from replay.prompts import Prompts
from replay.radix_fleet import serve_by_trees
from replay.recorded import Recorded
from replay.setting import Setting, variant_of
from replay.timed import Fleet, serve_timed
from replay.traffic import Flags, Numbers, Seconds, Small
from replay.untimed import serve as serve_by_blocks

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Times:
    """Of each request, in seconds; nothing of those refused counts."""

    ttft: Seconds
    prefill: Seconds


@dataclass(frozen=True)
class Outcome:
    """What an arm came to, by request. Without a clock there are no times, and nobody is refused.

    `evicted_blocks`: of each replica; `evicted_of`: of each request that had them computed, None
    where that is not known. `loaded`: tokens that came back from each of the `tiers`
    below, a row a request; `stored_tokens`: written to each, over all replicas.
    """

    prompt_tokens: Numbers
    cached_tokens: Numbers
    replica: Small
    refused: Flags
    evicted_blocks: Numbers
    evicted_of: Numbers | None = None
    times: Times | None = None
    tiers: tuple[str, ...] = ()
    loaded: Numbers = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    stored_tokens: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def loaded_tokens(self) -> Numbers:
        """From all tiers below, of each request."""
        loaded: Numbers = self.loaded.sum(axis=1)
        return loaded if self.tiers else np.zeros_like(self.cached_tokens)


@dataclass(frozen=True)
class Moved:
    """Tokens of KV that came back from a tier, and that were written to it."""

    loaded_tokens: int = 0
    stored_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """One arm in sum. Without a clock times are None. `imbalance_ratio`: computed tokens of the
    busiest replica ÷ their mean. `prefill_seconds`: that all replicas were kept by prefill,
    `ttft_seconds`: by percentile. `refused_requests` fit no replica and are in no other figure.
    `moved`: by tier below. Evicted blocks and stored tokens are of the whole run, its warm-up
    included."""

    arm: str
    requests: int
    refused_requests: int
    prompt_tokens: int
    cached_tokens: int
    evicted_blocks: int
    imbalance_ratio: float | None
    moved: dict[str, Moved] = field(default_factory=dict)
    prefill_seconds: float | None = None
    ttft_mean_seconds: float | None = None
    ttft_seconds: dict[int, float] | None = None

    @property
    def token_hit_ratio(self) -> float | None:
        """Cached ÷ prompt tokens; None without any."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def loaded_tokens(self) -> int:
        """From all tiers below."""
        return sum(each.loaded_tokens for each in self.moved.values())

    @property
    def stored_tokens(self) -> int:
        """To all tiers below."""
        return sum(each.stored_tokens for each in self.moved.values())


def serve_arm(arm: Arm, recorded: Recorded, setting: Setting) -> Outcome:
    """Run all requests through an arm that was checked. ValueError for a rule with a lifetime."""
    prompts = variant_of(arm, recorded)
    if setting.clock is None:
        return _untimed(arm, prompts, recorded, setting)
    block = recorded.prompts.block_tokens
    tiers = setting.tiers_of(arm, block) if arm.caches else ()
    lifetime = arm.lifetime_seconds or setting.lifetime_seconds
    fleet = Fleet(
        replicas=arm.replicas or setting.replicas,
        capacity_blocks=setting.capacity_of(arm, block),
        clock=setting.clock,
        router=replace(setting.router, name=arm.router),
        tiers=tiers,
        lifetime_seconds=lifetime if arm.caches else None,
        caches=arm.caches,
        clients=setting.clients,
    )
    served = serve_timed(prompts, setting.rule_of(arm, block), fleet, recorded.sessions)
    return Outcome(
        served.prompt_tokens, served.cached_tokens, served.replica, served.refused,
        served.evicted_blocks, served.evicted_of,
        Times(served.ttft_seconds, served.prefill_seconds), tuple(tier.name for tier in tiers),
        served.loaded_by_tier, served.stored_by_tier * prompts.block_tokens,
    )  # fmt: skip


def _untimed(arm: Arm, prompts: Prompts, recorded: Recorded, setting: Setting) -> Outcome:
    replicas = arm.replicas or setting.replicas
    router = replace(setting.router, name=arm.router)
    block = recorded.prompts.block_tokens
    capacity, rule = setting.capacity_of(arm, block), setting.rule_of(arm, block)
    serve = serve_by_trees if setting.cache == "radix" else serve_by_blocks
    served = serve(prompts, rule, router, replicas, capacity, recorded.sessions)
    return Outcome(
        served.prompt_tokens, served.cached_tokens * arm.caches, served.replica,
        np.zeros(len(prompts), np.bool_), served.evicted_blocks * arm.caches,
        None if served.evicted_of is None else served.evicted_of * arm.caches,
    )  # fmt: skip


def summed(arm: str, served: Outcome, which: Flags) -> ArmResult:
    """Sums over those of some requests that were served."""
    took = which & ~served.refused
    computed = served.prompt_tokens[took] - served.cached_tokens[took]
    ttft = served.times.ttft[took] if served.times else None
    return ArmResult(
        arm=arm,
        requests=int(took.sum()),
        refused_requests=int((which & served.refused).sum()),
        prompt_tokens=int(served.prompt_tokens[took].sum()),
        cached_tokens=int(served.cached_tokens[took].sum()),
        evicted_blocks=int(served.evicted_blocks.sum()),
        imbalance_ratio=_imbalance(computed, served.replica[took], len(served.evicted_blocks)),
        moved={
            tier: Moved(int(served.loaded[took, place].sum()), int(served.stored_tokens[place]))
            for place, tier in enumerate(served.tiers)
        },
        prefill_seconds=float(served.times.prefill[took].sum()) if served.times else None,
        ttft_mean_seconds=float(ttft.mean()) if ttft is not None and len(ttft) else None,
        ttft_seconds=percentiles_of(ttft) if ttft is not None else None,
    )


def percentiles_of(ttft_seconds: Seconds) -> dict[int, float]:
    """The least value with so many of a hundred not above it; empty without values."""
    if not len(ttft_seconds):
        return {}
    found = np.percentile(ttft_seconds, PERCENTILES, method="inverted_cdf").tolist()
    return dict(zip(PERCENTILES, found, strict=True))


def _imbalance(computed: Numbers, replica: Small, replicas: int) -> float | None:
    """Of the busiest replica ÷ mean; None where nothing was computed."""
    return imbalance_ratio(np.bincount(replica, computed, replicas).astype(np.int64))
