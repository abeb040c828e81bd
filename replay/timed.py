"""A fleet with a clock: queues, prefill, decode that holds memory, and caches that fill as they go.

What happens, in whole microseconds, so that a replay is the same on every machine:

- A request arrives and is routed. At its replica it waits for those before it, for the prefill in
  front to end, and for memory for its whole prompt and answer; running requests always win memory
  over cached blocks. (Engines grow into the answer and may preempt; here it is reserved.)
- It looks up its prefix when its prefill starts, holds what it finds, and computes the rest. Its
  blocks can be found from the end of its prefill on: two that compute the same block at once both
  compute it, and one of the copies has no name.
- At its end it gives all blocks back, tail first. Generated tokens have no names in a trace and
  leave nothing behind.
- With a tier below, what the device loses goes there (or everything does when computed), and comes
  back behind the device's own hits.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from replay.clock import MICROSECOND, Clock, Tier
from replay.compiled import compiled, inlined
from replay.pools import (
    EVICTED,
    FREE,
    IDLE,
    NONE,
    Pools,
    empty_pools,
    find,
    forget,
    link_last,
    locate,
    occupy,
    publish,
    release,
    unlink,
)
from replay.prompts import Prompts
from replay.routers import SESSION, Ring, Router, keys_of, pick
from replay.rules import CacheRule
from replay.traffic import Flags, Moments, Names, Numbers, Seconds, Small, starts_of

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Replicas that are alike. `lifetime_seconds`: idle blocks are not found after it; None: until
    their memory is needed. `resets`: moments, in the prompts' own seconds, at which a replica
    forgets all. `caches`: False: nothing is ever found. `clients`: each sends its next request when
    its last one ends, whatever the recorded times, as load generators do; None: as recorded."""

    replicas: int
    capacity_blocks: int
    clock: Clock
    router: Router
    tier: Tier | None = None
    lifetime_seconds: float | None = None
    resets: Moments = field(default_factory=Moments)
    caches: bool = True
    clients: int | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.capacity_blocks < 1:
            raise ValueError("replicas and capacity_blocks must be at least 1")


@dataclass(frozen=True)
class Timed:
    """What became of each request: `refused` ones fit no replica, and are in no other figure.

    Times in seconds. `prefill_seconds`: that the replica was kept by it; `loaded_tokens`: of the
    cached ones those that came from the tier below. Of each replica: blocks lost by the device.
    `stored_blocks`: written to the tier below, over all replicas.
    """

    prompt_tokens: Numbers
    cached_tokens: Numbers
    loaded_tokens: Numbers
    replica: Small
    ttft_seconds: Seconds
    prefill_seconds: Seconds
    evicted_blocks: Numbers
    stored_blocks: int

    @property
    def refused(self) -> Flags:
        """Requests larger than a replica's memory."""
        refused: Flags = self.replica == NONE
        return refused


class _Requests(NamedTuple):
    arrived: Numbers
    prompt: Numbers
    ceiling: Numbers
    stored: Numbers
    needed: Numbers
    decode: Numbers
    firsts: Numbers
    draws: Numbers
    blocks: Small
    begins: Numbers
    held_begins: Numbers


class _Rules(NamedTuple):
    """Times in microseconds, speeds in microseconds a token."""

    block_tokens: int
    router: int
    slack: float
    load_weight: float
    prefill: float
    overhead: int
    most_running: int
    clients: int
    lifetime: int
    lag: int
    guesses: bool
    tier_blocks: int
    tier_speed: float
    tier_latency: int
    writes_through: bool
    overlaps: bool


class _Below(NamedTuple):
    """The tier below by least recent use; the second index is the replica, 0 where it is shared.
    `counts`: blocks kept, and blocks written so far."""

    slot: Small
    block: Small
    behind: Small
    ahead: Small
    counts: Numbers


class _Views(NamedTuple):
    """What routers believe. Changes become known in their order, `due` microseconds."""

    held: Flags
    due: Numbers
    block: Small
    replica: Small
    there: Flags
    counts: Numbers  # made, known


class _Queues(NamedTuple):
    """Of each replica: first and last that wait, how many run, whether a prefill is under way, and
    tokens to be computed. `following`: the next that waits."""

    first: Small
    last: Small
    following: Small
    running: Numbers
    prefilling: Numbers
    loads: Numbers
    ended: Numbers  # one number: requests that are over, on all replicas


class _Events(NamedTuple):
    """A heap of ends to come, by time and then by the order in which they were planned."""

    time: Numbers
    order: Numbers
    request: Small
    counts: Numbers  # in the heap, planned


class _Results(NamedTuple):
    replica: Small
    cached: Numbers
    loaded: Numbers
    estimate: Numbers
    prefill: Numbers
    ready: Numbers
    stage: Small
    held: Small
    changed: Small  # blocks that came or went in the step under way


def serve_timed(
    prompts: Prompts, rule: CacheRule, fleet: Fleet, sessions: Names | None = None
) -> Timed:
    """Run all requests by their times. ValueError for a rule with a lifetime of its own."""
    requests = _requests(prompts, rule.by_memory_alone(), fleet, sessions)
    count, replicas = len(prompts), fleet.replicas
    distinct = max(prompts.distinct_blocks, 1)
    results = _Results(
        replica=np.full(count, NONE, np.int32),
        cached=np.zeros(count, np.int64),
        loaded=np.zeros(count, np.int64),
        estimate=np.zeros(count, np.int64),
        prefill=np.zeros(count, np.int64),
        ready=np.zeros(count, np.int64),
        stage=np.zeros(count, np.int32),
        held=np.empty(int(requests.held_begins[-1]), np.int32),
        changed=np.empty(max(fleet.capacity_blocks, 1), np.int32),
    )
    pools = empty_pools(distinct, replicas, fleet.capacity_blocks)
    below = _below(distinct, replicas, fleet.tier)
    order = np.argsort(fleet.resets.seconds, kind="stable")
    _run(
        requests, _rules(prompts, fleet), pools, below, _views(requests, fleet, distinct),
        _queues(count, replicas), _events(count), results, Ring.of(replicas).owners,
        _microseconds(fleet.resets.seconds[order]), fleet.resets.replica[order],
    )  # fmt: skip
    ttft = _seconds(results.ready - requests.arrived)
    return Timed(
        prompts.prompt_tokens, results.cached, results.loaded, results.replica,
        np.where(results.replica == NONE, np.nan, ttft), _seconds(results.prefill),
        pools.counts[:, EVICTED].copy(), int(below.counts[:, 1].sum()),
    )  # fmt: skip


def _microseconds(seconds: Seconds) -> Numbers:
    return np.rint(seconds / MICROSECOND).astype(np.int64)


def _seconds(microseconds: Numbers) -> Seconds:
    return microseconds.astype(np.float64) * MICROSECOND


def _requests(prompts: Prompts, rule: CacheRule, fleet: Fleet, sessions: Names | None) -> _Requests:
    size = prompts.block_tokens
    keys = keys_of(prompts.blocks, prompts.starts, fleet.router.prefix_blocks)
    if fleet.router.number == SESSION and sessions is not None:
        keys = sessions
    ceiling = prompts.ceiling_tokens(rule)
    needed = -(-(prompts.prompt_tokens + prompts.output_tokens) // size)
    needed = np.maximum(needed, prompts.stored_blocks(rule))
    tokens = np.maximum(prompts.output_tokens - 1, 0)
    draws = np.random.default_rng(fleet.router.seed).integers(0, 1 << 31, len(prompts))
    return _Requests(
        arrived=_microseconds(prompts.arrived),
        prompt=prompts.prompt_tokens,
        ceiling=ceiling if fleet.caches else np.zeros_like(ceiling),
        stored=prompts.stored_blocks(rule) if fleet.caches else np.zeros_like(ceiling),
        needed=needed,
        decode=_microseconds(tokens * fleet.clock.decode_seconds_per_token),
        firsts=Ring.of(fleet.replicas).first(keys),
        draws=draws,
        blocks=prompts.blocks,
        begins=prompts.starts,
        held_begins=starts_of(np.where(needed <= fleet.capacity_blocks, needed, 0)),
    )


def _rules(prompts: Prompts, fleet: Fleet) -> _Rules:
    clock, router = fleet.clock, fleet.router
    tier = fleet.tier or Tier(name="none", capacity_blocks=0, tokens_per_second=1.0)
    lifetime = fleet.lifetime_seconds
    return _Rules(
        block_tokens=prompts.block_tokens,
        router=router.number,
        slack=float(router.slack),
        load_weight=float(router.load_weight),
        prefill=1 / (clock.prefill_tokens_per_second * MICROSECOND),
        overhead=round(clock.prefill_overhead_seconds / MICROSECOND),
        most_running=clock.most_running,
        clients=fleet.clients or 0,
        lifetime=_NEVER if lifetime is None else round(lifetime / MICROSECOND),
        lag=round((clock.summary_lag_seconds or 0.0) / MICROSECOND),
        guesses=clock.summary_lag_seconds is None,
        tier_blocks=tier.capacity_blocks,
        tier_speed=1 / (tier.tokens_per_second * MICROSECOND),
        tier_latency=round(tier.latency_seconds / MICROSECOND),
        writes_through=tier.writes_through,
        overlaps=tier.overlaps,
    )


def _below(distinct: int, replicas: int, tier: Tier | None) -> _Below:
    size = 0 if tier is None else min(tier.capacity_blocks, distinct)
    groups = 1 if tier is None or tier.is_shared else replicas
    ring = np.full((2, groups, size + 1), size, np.int32)
    return _Below(
        slot=np.full((distinct if size else 1, groups), NONE, np.int32),
        block=np.full((groups, size), NONE, np.int32),
        behind=ring[0],
        ahead=ring[1],
        counts=np.zeros((groups, 2), np.int64),
    )


def _views(requests: _Requests, fleet: Fleet, distinct: int) -> _Views:
    """Empty where routers see the caches themselves."""
    is_exact = fleet.clock.summary_lag_seconds == 0.0
    # Each reference to a block is published once at most, and lost once after that.
    changes = 0 if is_exact or fleet.clock.summary_lag_seconds is None else 2 * len(requests.blocks)
    return _Views(
        held=np.zeros((1 if is_exact else distinct, fleet.replicas), np.bool_),
        due=np.empty(changes, np.int64),
        block=np.empty(changes, np.int32),
        replica=np.empty(changes, np.int32),
        there=np.empty(changes, np.bool_),
        counts=np.zeros(2, np.int64),
    )


def _queues(requests: int, replicas: int) -> _Queues:
    return _Queues(
        first=np.full(replicas, NONE, np.int32),
        last=np.full(replicas, NONE, np.int32),
        following=np.full(requests, NONE, np.int32),
        running=np.zeros(replicas, np.int64),
        prefilling=np.zeros(replicas, np.int64),
        loads=np.zeros(replicas, np.int64),
        ended=np.zeros(1, np.int64),
    )


def _events(requests: int) -> _Events:
    size = requests + 1
    return _Events(
        time=np.empty(size, np.int64),
        order=np.empty(size, np.int64),
        request=np.empty(size, np.int32),
        counts=np.zeros(2, np.int64),
    )


@compiled
def _run(
    requests: _Requests,
    rules: _Rules,
    pools: Pools,
    below: _Below,
    views: _Views,
    queues: _Queues,
    events: _Events,
    results: _Results,
    owners: Small,
    reset_times: Numbers,
    reset_replicas: Numbers,
) -> None:
    uncached = np.empty(len(queues.first), np.int64)
    arriving, resetting, now = 0, 0, 0
    while True:
        arrival = _NEVER
        if arriving < len(requests.arrived):
            if rules.clients == 0:
                arrival = requests.arrived[arriving]
            elif arriving - queues.ended[0] < rules.clients:
                arrival = requests.arrived[arriving] = now
        reset = reset_times[resetting] if resetting < len(reset_times) else _NEVER
        end = events.time[0] if events.counts[0] else _NEVER
        if arrival == _NEVER and end == _NEVER:
            break
        # What ends at a moment is over for whoever arrives at it.
        now = min(arrival, reset, end)
        if end <= reset and end <= arrival:
            _end(requests, rules, pools, below, views, queues, events, results, end)
        elif reset <= arrival:
            _reset(rules, pools, below, views, results, reset_replicas[resetting], reset)
            resetting += 1
        else:
            _arrive(
                requests, rules, pools, below, views, queues, events, results, owners, uncached,
                arriving,
            )  # fmt: skip
            arriving += 1


@inlined
def _arrive(
    requests: _Requests,
    rules: _Rules,
    pools: Pools,
    below: _Below,
    views: _Views,
    queues: _Queues,
    events: _Events,
    results: _Results,
    owners: Small,
    uncached: Numbers,
    request: int,
) -> None:
    """Route a request and let it wait; one that fits no replica is refused."""
    if requests.held_begins[request] == requests.held_begins[request + 1]:
        queues.ended[0] += 1
        return
    now = requests.arrived[request]
    _learn(views, now)
    for replica in range(len(uncached)):
        known = _known_blocks(requests, rules, pools, views, replica, request, now)
        found = min(known * rules.block_tokens, requests.ceiling[request])
        uncached[replica] = requests.prompt[request] - found
    chosen = pick(
        rules.router, request, requests.firsts[request], owners, queues.loads, uncached,
        rules.slack, rules.load_weight, requests.draws[request],
    )  # fmt: skip
    results.replica[request] = chosen
    results.estimate[request] = uncached[chosen]
    queues.loads[chosen] += uncached[chosen]
    if rules.guesses:
        begin = requests.begins[request]
        for place in range(begin, begin + requests.stored[request]):
            views.held[requests.blocks[place], chosen] = True
    if queues.first[chosen] == NONE:
        queues.first[chosen] = request
    else:
        queues.following[queues.last[chosen]] = request
    queues.last[chosen] = request
    _start(requests, rules, pools, below, views, queues, events, results, chosen, now)


@inlined
def _known_blocks(
    requests: _Requests,
    rules: _Rules,
    pools: Pools,
    views: _Views,
    replica: int,
    request: int,
    now: int,
) -> int:
    """How many leading blocks a router believes a replica to hold."""
    chain = _findable(requests, rules, request)
    if rules.lag == 0 and not rules.guesses:
        return find(pools, replica, chain, now - rules.lifetime)
    held, known = views.held, 0
    while known < len(chain) and held[chain[known], replica]:
        known += 1
    return known


@inlined
def _findable(requests: _Requests, rules: _Rules, request: int) -> Small:
    """The blocks of a prompt that could be found at best."""
    begin = requests.begins[request]
    return requests.blocks[begin : begin + -(-requests.ceiling[request] // rules.block_tokens)]


@inlined
def _held(requests: _Requests, results: _Results, request: int) -> Small:
    """The slots of a request."""
    return results.held[requests.held_begins[request] : requests.held_begins[request + 1]]


@inlined
def _start(
    requests: _Requests,
    rules: _Rules,
    pools: Pools,
    below: _Below,
    views: _Views,
    queues: _Queues,
    events: _Events,
    results: _Results,
    replica: int,
    now: int,
) -> None:
    """Start the prefill of the request in front, if the replica and its memory are ready."""
    request = queues.first[replica]
    if request == NONE or queues.prefilling[replica]:
        return
    if queues.running[replica] >= rules.most_running:
        return
    held = _held(requests, results, request)
    hits, loads, idle = _look_up(requests, rules, pools, below, held, replica, request, now)
    own = len(held) - (hits - loads)
    if pools.counts[replica, FREE] + pools.counts[replica, IDLE] - idle < own:
        return
    queues.first[replica] = queues.following[request]
    queues.prefilling[replica] = 1
    queues.running[replica] += 1
    if loads:
        _keep_below(below, replica, _findable(requests, rules, request)[:hits], held)
    lost = results.changed[: occupy(pools, replica, held, now, results.changed)]
    _tell(views, rules, lost, replica, False, now)
    if not rules.writes_through:
        _write_below(below, replica, lost)
    cached = min(hits * rules.block_tokens, requests.ceiling[request])
    results.cached[request] = cached
    results.loaded[request] = min(loads * rules.block_tokens, cached)
    results.prefill[request] = _prefill(rules, requests.prompt[request] - cached, loads)
    _plan(events, now + results.prefill[request], request)


@inlined
def _prefill(rules: _Rules, computed_tokens: int, loaded_blocks: int) -> int:
    """Microseconds that a prefill keeps its replica."""
    compute = rules.overhead + round(computed_tokens * rules.prefill)
    if loaded_blocks == 0:
        return compute
    tokens = loaded_blocks * rules.block_tokens
    load = rules.tier_latency + round(tokens * rules.tier_speed)
    return max(compute, load) if rules.overlaps else compute + load


@inlined
def _look_up(
    requests: _Requests,
    rules: _Rules,
    pools: Pools,
    below: _Below,
    held: Small,
    replica: int,
    request: int,
    now: int,
) -> tuple[int, int, int]:
    """Leading blocks found, those of them in the tier below, and those idle on the device. Slots
    of the latter are written to `held`, NONE for all else."""
    chain = _findable(requests, rules, request)
    held[:] = NONE
    oldest = now - rules.lifetime
    hits = find(pools, replica, chain, oldest)
    loads = 0
    if below.block.shape[1]:
        # Behind a gap that the tier below fills, blocks on the device are found again.
        slot, group = below.slot, _group(below, replica)
        while hits < len(chain):
            if slot[chain[hits], group] >= 0:
                hits, loads = hits + 1, loads + 1
                continue
            more = find(pools, replica, chain[hits:], oldest)
            if more == 0:
                break
            hits += more
    idle = locate(pools, replica, chain[:hits], oldest, held)
    if loads:
        loads = hits - (held >= 0).sum()
    return hits, loads, idle


@inlined
def _end(
    requests: _Requests,
    rules: _Rules,
    pools: Pools,
    below: _Below,
    views: _Views,
    queues: _Queues,
    events: _Events,
    results: _Results,
    now: int,
) -> None:
    """The prefill of a request is over, or the request is."""
    request = _next(events)
    replica, held = results.replica[request], _held(requests, results, request)
    if results.stage[request] == 0:
        results.stage[request] = 1
        results.ready[request] = now
        begin = requests.begins[request]
        chain = requests.blocks[begin : begin + requests.stored[request]]
        fresh = results.changed[: publish(pools, replica, chain, held, now, results.changed)]
        _tell(views, rules, fresh, replica, True, now)
        if rules.writes_through:
            _write_below(below, replica, fresh)
        queues.prefilling[replica] = 0
        queues.loads[replica] -= results.estimate[request]
        _plan(events, now + requests.decode[request], request)
    else:
        release(pools, replica, held, now)
        queues.running[replica] -= 1
        queues.ended[0] += 1
    _start(requests, rules, pools, below, views, queues, events, results, replica, now)


@compiled
def _reset(
    rules: _Rules,
    pools: Pools,
    below: _Below,
    views: _Views,
    results: _Results,
    replica: int,
    now: int,
) -> None:
    """A replica forgets its blocks, and those in a tier of its own."""
    lost = results.changed[: forget(pools, replica, results.changed)]
    _tell(views, rules, lost, replica, False, now)
    if below.counts.shape[0] > 1 or pools.counts.shape[0] == 1:
        end = below.block.shape[1]
        for at in range(below.counts[replica, 0]):
            below.slot[below.block[replica, at], replica] = NONE
        below.counts[replica, 0] = 0
        below.ahead[replica, end] = end
        below.behind[replica, end] = end


@inlined
def _group(below: _Below, replica: int) -> int:
    """Whose part of the tier below a replica reaches."""
    return replica if below.counts.shape[0] > 1 else 0


@compiled
def _keep_below(below: _Below, replica: int, chain: Small, held: Small) -> None:
    """Make blocks that are about to be loaded the ones used last, or what makes room for them on
    the device might push them out."""
    group, end = _group(below, replica), below.block.shape[1]
    slot, behind, ahead = below.slot, below.behind[group], below.ahead[group]
    for place in range(len(chain) - 1, -1, -1):
        if held[place] == NONE:
            at = slot[chain[place], group]
            unlink(behind, ahead, at)
            link_last(behind, ahead, at, end)


@compiled
def _write_below(below: _Below, replica: int, blocks: Small) -> None:
    """Bring blocks to the tier below, where they may push out those used least recently."""
    size = below.block.shape[1]
    if size == 0:
        return
    group = _group(below, replica)
    slot, block = below.slot, below.block[group]
    behind, ahead = below.behind[group], below.ahead[group]
    for new in blocks:
        at = slot[new, group]
        if at >= 0:
            unlink(behind, ahead, at)
        elif below.counts[group, 0] < size:
            at = below.counts[group, 0]
            below.counts[group, 0] += 1
            below.counts[group, 1] += 1
        else:
            at = ahead[size]
            unlink(behind, ahead, at)
            slot[block[at], group] = NONE
            below.counts[group, 1] += 1
        slot[new, group] = at
        block[at] = new
        link_last(behind, ahead, at, size)


@inlined
def _tell(
    views: _Views, rules: _Rules, blocks: Small, replica: int, is_there: bool, now: int
) -> None:
    """Let routers know of changes once the lag is over."""
    if len(views.due) == 0:
        return
    made = views.counts[0]
    for block in blocks:
        views.due[made] = now + rules.lag
        views.block[made] = block
        views.replica[made] = replica
        views.there[made] = is_there
        made += 1
    views.counts[0] = made


@inlined
def _learn(views: _Views, now: int) -> None:
    """What is due becomes what routers believe."""
    known = views.counts[1]
    while known < views.counts[0] and views.due[known] <= now:
        views.held[views.block[known], views.replica[known]] = views.there[known]
        known += 1
    views.counts[1] = known


@compiled
def _plan(events: _Events, time: int, request: int) -> None:
    """Put the end of a stage of a request into the heap."""
    at, order = events.counts[0], events.counts[1]
    events.counts[0] += 1
    events.counts[1] += 1
    while at > 0:
        parent = (at - 1) // 2
        if events.time[parent] <= time:  # planned earlier, so first where times agree
            break
        _move(events, parent, at)
        at = parent
    events.time[at] = time
    events.order[at] = order
    events.request[at] = request


@compiled
def _next(events: _Events) -> int:
    """Take the first out of the heap."""
    found = events.request[0]
    events.counts[0] -= 1
    count = events.counts[0]
    time, order = events.time[count], events.order[count]
    request = events.request[count]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _is_before(
            events, child + 1, events.time[child], events.order[child]
        ):
            child += 1
        if not _is_before(events, child, time, order):
            break
        _move(events, child, at)
        at = child
    events.time[at] = time
    events.order[at] = order
    events.request[at] = request
    return int(found)


@compiled
def _is_before(events: _Events, at: int, time: int, order: int) -> bool:
    here = events.time[at]
    return bool(here < time or (here == time and events.order[at] < order))


@compiled
def _move(events: _Events, source: int, target: int) -> None:
    events.time[target] = events.time[source]
    events.order[target] = events.order[source]
    events.request[target] = events.request[source]
