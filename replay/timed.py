"""A fleet with a clock: queues, prefill, decode that holds memory, and caches that fill as they go.

What happens, in whole microseconds, so that a replay is the same on every machine:

- A request arrives and is routed. At its replica it waits for those before it, for the prefill in
  front to end, and for memory for its whole prompt and answer; running requests always win memory
  over cached blocks. (Engines grow into the answer and may preempt; here it is reserved.)
- It looks up its prefix when its prefill starts, holds what it finds, and computes the rest. Its
  blocks can be found from the end of its prefill on, or by those computed in the same step: two
  replicas that compute the same block at once both compute it.
- While it is computed, those that decode on its replica get one token a step.
- At its end it gives all blocks back, tail first. Blocks filled with its answer stay until their
  memory is needed, as in engines; those that no later prompt names are found by nobody.
- With tiers below, what the device loses goes there (or everything does when computed), what the
  first of them loses to the next, and comes back behind the device's own hits.
"""

from dataclasses import dataclass, field

import numpy as np

from replay.clock import MICROSECOND, Clock, Tier
from replay.clock_columns import NEVER, Requests, Results, Rules, empty_queues
from replay.clockwork import run
from replay.event_heap import empty_events
from replay.pools import EVICTED, NONE, empty_pools
from replay.prompts import Prompts
from replay.router_views import empty_views
from replay.routers import Ring, Router
from replay.rules import CacheRule
from replay.tier_below import empty_below
from replay.traffic import Flags, Moments, Names, Numbers, Seconds, Small, starts_of


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Replicas that are alike. `capacity_blocks` None: never full. `lifetime_seconds`: idle blocks
    are not found after it; None: until their memory is needed. `tiers`: below the device, the
    nearest first. `resets`: moments, in the prompts'
    own seconds, at which a replica forgets all. `caches`: False: nothing is ever found. `clients`:
    each sends its next request when its last one ends, whatever the recorded times, as load
    generators do; None: as recorded."""

    replicas: int
    capacity_blocks: int | None
    clock: Clock
    router: Router
    tiers: tuple[Tier, ...] = ()
    lifetime_seconds: float | None = None
    resets: Moments = field(default_factory=Moments)
    caches: bool = True
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1 or (self.capacity_blocks is not None and self.capacity_blocks < 1):
            raise ValueError("replicas and capacity_blocks must be at least 1")
        if self.lifetime_seconds is not None and self.tiers:
            raise ValueError("blocks with a lifetime and a tier below are not modelled together")


@dataclass(frozen=True)
class Timed:
    """What became of each request: `refused` ones fit no replica, and are in no other figure.

    Times in seconds. `prefill_seconds`: that the replica was kept by it; of the cached tokens
    `loaded_by_tier` came from tiers below: a row a request, a column a tier. `evicted_blocks`: of
    each replica, lost by the device to make room; `evicted_of`: the same of each request that had
    them computed or loaded. `stored_by_tier`: blocks written to each tier, over all replicas.
    """

    prompt_tokens: Numbers
    cached_tokens: Numbers
    loaded_by_tier: Numbers
    replica: Small
    ttft_seconds: Seconds
    prefill_seconds: Seconds
    evicted_blocks: Numbers
    stored_by_tier: Numbers
    evicted_of: Numbers

    @property
    def loaded_tokens(self) -> Numbers:
        """From all tiers below, of each request."""
        loaded: Numbers = self.loaded_by_tier.sum(axis=1)
        return loaded

    @property
    def stored_blocks(self) -> int:
        """Written to all tiers below."""
        return int(self.stored_by_tier.sum())

    @property
    def refused(self) -> Flags:
        """Requests larger than a replica's memory."""
        refused: Flags = self.replica == NONE
        return refused


def serve_timed(
    prompts: Prompts, rule: CacheRule, fleet: Fleet, sessions: Names | None = None
) -> Timed:
    """Run all requests by their times. ValueError for a rule with a lifetime of its own."""
    needed = _needed(prompts, rule.by_memory_alone())
    filled = _filled(prompts, rule) * fleet.caches
    capacity = fleet.capacity_blocks
    most = int(np.sort(needed)[-fleet.clock.most_running :].sum()) + prompts.distinct_blocks
    if capacity is None or capacity >= most + int(filled.sum()):
        # More than could ever be used need not be there, nor what nobody can find.
        capacity, filled = max(most, 1), np.zeros_like(filled)
    needed = np.where(needed <= capacity, needed, 0)
    requests = _requests(prompts, rule, fleet, sessions, needed, filled)
    count, replicas = len(prompts), fleet.replicas
    distinct = max(prompts.distinct_blocks, 1)
    results = Results(
        replica=np.full(count, NONE, np.int32),
        cached=np.zeros(count, np.int64),
        loaded=np.zeros((count, len(fleet.tiers)), np.int64),
        estimate=np.zeros(count, np.int64),
        prefill=np.zeros(count, np.int64),
        ready=np.zeros(count, np.int64),
        stage=np.zeros(count, np.int32),
        waited=np.zeros(count, np.int64),
        evicted=np.zeros(count, np.int64),
        held=np.empty(int(requests.held_begins[-1]), np.int32),
        changed=np.empty(capacity, np.int32),
    )
    pools = empty_pools(distinct, replicas, capacity)
    below = empty_below(distinct, replicas, fleet.tiers)
    lag = fleet.clock.summary_lag_seconds
    views = empty_views(distinct, len(prompts.blocks), replicas, lag)
    order = np.argsort(fleet.resets.seconds, kind="stable")
    run(
        requests, _rules(prompts, fleet), pools, below, views, empty_queues(count, replicas),
        empty_events(count), results, Ring.of(replicas).owners,
        _microseconds(fleet.resets.seconds[order]), fleet.resets.replica[order],
    )  # fmt: skip
    ttft = _seconds(results.ready - requests.arrived)
    return Timed(
        prompts.prompt_tokens, results.cached, results.loaded, results.replica,
        np.where(results.replica == NONE, np.nan, ttft), _seconds(results.prefill),
        pools.counts[:, EVICTED].copy(), below.written(), results.evicted,
    )  # fmt: skip


def _microseconds(seconds: Seconds) -> Numbers:
    return np.rint(seconds / MICROSECOND).astype(np.int64)


def _seconds(microseconds: Numbers) -> Seconds:
    return microseconds.astype(np.float64) * MICROSECOND


def _needed(prompts: Prompts, rule: CacheRule) -> Numbers:
    """Blocks that each request holds while it runs, its answer included; one without any token is
    served like the others."""
    whole = prompts.prompt_tokens + prompts.output_tokens
    needed: Numbers = np.maximum(-(-whole // prompts.block_tokens), prompts.stored_blocks(rule))
    return np.maximum(needed, 1)


def _requests(
    prompts: Prompts,
    rule: CacheRule,
    fleet: Fleet,
    sessions: Names | None,
    needed: Numbers,
    filled: Numbers,
) -> Requests:
    """`needed`: 0 of those that fit no replica; `filled`: as `_filled` says, 0 where that does not
    matter."""
    keys = fleet.router.keys(prompts, sessions)
    ceiling = prompts.ceiling_tokens(rule)
    tokens = np.maximum(prompts.output_tokens - 1, 0)
    draws = np.random.default_rng(fleet.router.seed).integers(0, 1 << 31, len(prompts))
    return Requests(
        arrived=_microseconds(prompts.arrived),
        prompt=prompts.prompt_tokens,
        ceiling=ceiling if fleet.caches else np.zeros_like(ceiling),
        stored=prompts.stored_blocks(rule) if fleet.caches else np.zeros_like(ceiling),
        kept=prompts.kept_blocks(rule) if fleet.caches else np.zeros_like(ceiling),
        filled=filled,
        decode=_microseconds(tokens * fleet.clock.decode_seconds_per_token),
        firsts=Ring.of(fleet.replicas).first(keys),
        draws=draws,
        blocks=prompts.blocks,
        begins=prompts.starts,
        held_begins=starts_of(needed),
    )


def _filled(prompts: Prompts, rule: CacheRule) -> Numbers:
    """Whole blocks that a cache keeps of prompt and answer: of the last token there is no KV."""
    tokens = prompts.prompt_tokens + np.maximum(prompts.output_tokens - 1, 0)
    return np.where(rule.too_short(prompts.prompt_tokens), 0, tokens // prompts.block_tokens)


def _rules(prompts: Prompts, fleet: Fleet) -> Rules:
    clock, router = fleet.clock, fleet.router
    lifetime = fleet.lifetime_seconds
    return Rules(
        block_tokens=prompts.block_tokens,
        router=router.number,
        slack=float(router.slack),
        load_weight=float(router.load_weight),
        counts_requests=router.counts_requests,
        takes_turns=router.takes_turns,
        prefill=1 / (clock.prefill_tokens_per_second * MICROSECOND),
        overhead=round(clock.prefill_overhead_seconds / MICROSECOND),
        batched=clock.batched_tokens or 0,
        decode=round(clock.decode_seconds_per_token / MICROSECOND),
        most_running=clock.most_running,
        clients=fleet.clients or 0,
        lifetime=NEVER if lifetime is None else round(lifetime / MICROSECOND),
        lag=round((clock.summary_lag_seconds or 0.0) / MICROSECOND),
        guesses=clock.summary_lag_seconds is None,
    )
