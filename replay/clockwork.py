"""What happens in a fleet with a clock: arrivals, prefills, ends and resets, as compiled code."""

from replay.clock_columns import NEVER, Queues, Requests, Results, Rules
from replay.compiled import borrowing, inlined, part, wide
from replay.event_heap import Events, plan, take_next
from replay.pools import (
    FREE,
    IDLE,
    NONE,
    UNKNOWN,
    Pools,
    drop,
    find,
    forget,
    idle_longest,
    locate,
    occupy,
    publish,
    release,
)
from replay.router_views import Views, learn, tell
from replay.routers import LONGEST, SCORED, pick
from replay.tier_below import (
    Below,
    forget_below,
    load_microseconds,
    load_up,
    tier_of,
    write_back,
    write_through,
)
from replay.traffic import Numbers, Small


@borrowing
def run(
    requests: Requests,
    rules: Rules,
    pools: Pools,
    below: Below,
    views: Views,
    queues: Queues,
    events: Events,
    results: Results,
    owners: Small,
    reset_times: Numbers,
    reset_replicas: Numbers,
) -> None:
    arriving, resetting, now = wide(0), 0, 0
    while True:
        arrival = NEVER
        if arriving < len(requests.arrived):
            if rules.clients == 0:
                arrival = requests.arrived[arriving]
            elif arriving - queues.ended[0] < rules.clients:
                arrival = requests.arrived[arriving] = now
        reset = reset_times[resetting] if resetting < len(reset_times) else NEVER
        end = events.time[0] if events.counts[0] else NEVER
        if arrival == NEVER and end == NEVER:
            break
        # What ends at a moment is over for whoever arrives at it.
        now = min(arrival, reset, end)
        if rules.lifetime != NEVER:
            _expire(rules, pools, views, now)
        replica = NONE
        if end <= reset and end <= arrival:
            replica = _end(requests, rules, pools, below, views, queues, events, results, end)
        elif reset <= arrival:
            _reset(rules, pools, below, views, results, reset_replicas[resetting], reset)
            resetting += 1
        else:
            replica = _arrive(requests, rules, pools, views, queues, results, owners, arriving)
            arriving += 1
        if replica != NONE and queues.prefilling[replica] == 0:
            _start(requests, rules, pools, below, views, queues, events, results, replica, now)


@inlined
def _arrive(
    requests: Requests,
    rules: Rules,
    pools: Pools,
    views: Views,
    queues: Queues,
    results: Results,
    owners: Small,
    request: int,
) -> int:
    """Route a request and let it wait at the replica that is returned; one that fits no replica is
    refused: NONE."""
    if requests.held_begins[request] == requests.held_begins[request + 1]:
        queues.ended[0] += 1
        return NONE
    now = requests.arrived[request]
    learn(views, now)
    if rules.router in (SCORED, LONGEST):
        for replica in range(len(queues.uncached)):
            queues.uncached[replica] = _uncached(requests, rules, pools, views, replica, request)
    chosen = pick(
        rules.router, request, requests.firsts[request], owners, queues.loads, queues.uncached,
        rules.slack, rules.load_weight, requests.draws[request], rules.takes_turns,
    )  # fmt: skip
    results.replica[request] = chosen
    estimate = _uncached(requests, rules, pools, views, chosen, request)
    results.estimate[request] = estimate
    queues.loads[chosen] += 1 if rules.counts_requests else estimate
    if rules.guesses:
        begin = requests.begins[request]
        for place in range(begin, begin + requests.stored[request]):
            views.held[requests.blocks[place], chosen] = True
    if queues.first[chosen] == NONE:
        queues.first[chosen] = request
    else:
        queues.following[queues.last[chosen]] = request
    queues.last[chosen] = request
    return int(chosen)


@part
def _uncached(
    requests: Requests,
    rules: Rules,
    pools: Pools,
    views: Views,
    replica: int,
    request: int,
) -> int:
    """Tokens of a prompt that a router believes a replica would have to compute."""
    chain = _findable(requests, rules, request)
    if rules.lag == 0 and not rules.guesses:
        known = find(pools, replica, chain)
    else:
        held, known = views.held, 0
        while known < len(chain) and held[chain[known], replica]:
            known += 1
    found = min(known * rules.block_tokens, requests.ceiling[request])
    return int(requests.prompt[request] - found)


@inlined
def _findable(requests: Requests, rules: Rules, request: int) -> Small:
    """The blocks of a prompt that could be found at best."""
    begin = requests.begins[request]
    return requests.blocks[begin : begin + -(-requests.ceiling[request] // rules.block_tokens)]


@inlined
def _held(requests: Requests, results: Results, request: int) -> Small:
    """The slots of a request."""
    return results.held[requests.held_begins[request] : requests.held_begins[request + 1]]


@inlined
def _start(
    requests: Requests,
    rules: Rules,
    pools: Pools,
    below: Below,
    views: Views,
    queues: Queues,
    events: Events,
    results: Results,
    replica: int,
    now: int,
) -> None:
    """Start the prefill of the request in front, and of those behind it that go into the same
    step, as far as the replica and its memory are ready."""
    first, begun, tokens = queues.first[replica], 0, 0
    computing, loading, beside = rules.overhead, 0, 0
    while queues.first[replica] != NONE and queues.running[replica] < rules.most_running:
        request = queues.first[replica]
        held = _held(requests, results, request)
        hits, loads, idle = _look_up(requests, rules, pools, below, held, replica, request)
        cached = min(hits * rules.block_tokens, requests.ceiling[request])
        more = requests.prompt[request] - cached
        own = len(held) - (hits - loads)
        room = pools.counts[replica, FREE] + pools.counts[replica, IDLE] - idle
        is_full = tokens + more > rules.batched or rules.batched == 0
        if room < own or (begun and is_full):
            break
        tokens += more
        before = _kept(begun, computing, loading, beside)
        begun += 1
        queues.first[replica] = queues.following[request]
        queues.running[replica] += 1
        results.cached[request] = cached
        computing += round(more * rules.prefill)
        if loads:
            chain, loaded = _findable(requests, rules, request)[:hits], results.loaded[request]
            load_up(below, replica, chain, held, rules.block_tokens, cached, loaded)
            ahead, overlapping = load_microseconds(below, loaded)
            loading, beside = loading + ahead, beside + overlapping
        results.prefill[request] = _kept(begun, computing, loading, beside) - before
        count = occupy(pools, replica, held, now, request, results.evicted, results.changed)
        lost = results.changed[:count]
        tell(views, lost, replica, False, now + rules.lag)
        if len(below.shelves):
            write_back(below, replica, lost)
        if rules.batched:  # those behind it in the same step find its blocks
            _publish(requests, rules, pools, below, views, results, held, replica, request, 0,
                     requests.stored[request], now)  # fmt: skip
    queues.prefilling[replica] = begun
    if begun:
        # What decodes there gets one token a step.
        steps = -(-tokens // rules.batched) if rules.batched else 1
        queues.held_up[replica] += max(computing - steps * rules.decode, 0)
    for _ in range(begun):
        plan(events, now + _kept(begun, computing, loading, beside), first)
        first = queues.following[first]


@inlined
def _kept(begun: int, computing: int, loading: int, beside: int) -> int:
    """Microseconds that the prefills of a step keep their replica."""
    return loading + max(computing, beside) if begun else 0


@inlined
def _look_up(
    requests: Requests,
    rules: Rules,
    pools: Pools,
    below: Below,
    held: Small,
    replica: int,
    request: int,
) -> tuple[int, int, int]:
    """Leading blocks found, those of them in tiers below, and those idle on the device. Slots
    of the latter are written to `held`, NONE for all else."""
    chain = _findable(requests, rules, request)
    held[:] = NONE
    hits = find(pools, replica, chain)
    loads = 0
    if len(below.shelves):
        # Behind a gap that tiers below fill, blocks on the device are found again.
        while hits < len(chain):
            more = int(tier_of(below, replica, chain[hits]) != NONE)
            loads += more
            if more == 0:
                more = find(pools, replica, chain[hits:])
            if more == 0:
                break
            hits += more
    idle = locate(pools, replica, chain[:hits], held)
    if loads:
        loads = hits
        for at in held:
            loads -= int(at >= 0)
    return hits, loads, idle


@inlined
def _end(
    requests: Requests,
    rules: Rules,
    pools: Pools,
    below: Below,
    views: Views,
    queues: Queues,
    events: Events,
    results: Results,
    now: int,
) -> int:
    """The prefill of a request is over, or the request is, at the replica that is returned. NONE
    where it is not over yet, as prefills have held it up."""
    request = take_next(events)
    replica, held = wide(results.replica[request]), _held(requests, results, request)
    owed = queues.held_up[replica] - results.waited[request]
    results.waited[request] += owed
    decodes, first, last = results.stage[request] == 1, 0, requests.stored[request]
    if decodes and owed and requests.decode[request]:
        plan(events, now + owed, request)
        return NONE
    if decodes:
        first, last = requests.stored[request], requests.kept[request]
    if first < last and (decodes or rules.batched == 0):
        _publish(requests, rules, pools, below, views, results, held, replica, request, first, last,
                 now)  # fmt: skip
    if decodes:
        release(pools, replica, held, now, requests.kept[request], requests.filled[request])
        queues.running[replica] -= 1
        queues.loads[replica] -= 1 if rules.counts_requests else 0
        queues.ended[0] += 1
    else:
        results.stage[request] = 1
        results.ready[request] = now
        queues.prefilling[replica] -= 1
        queues.loads[replica] -= 0 if rules.counts_requests else results.estimate[request]
        plan(events, now + requests.decode[request], request)
    return replica


@inlined
def _publish(
    requests: Requests,
    rules: Rules,
    pools: Pools,
    below: Below,
    views: Views,
    results: Results,
    held: Small,
    replica: int,
    request: int,
    first: int,
    last: int,
    now: int,
) -> None:
    """The blocks of a request from `first` to before `last` can be found from now on."""
    begin = requests.begins[request]
    chain, own = requests.blocks[begin + first : begin + last], held[first:last]
    count = publish(pools, replica, chain, own, now, results.changed)
    fresh = results.changed[:count]
    tell(views, fresh, replica, True, now + rules.lag)
    if len(below.shelves):
        write_through(below, replica, fresh)


@part
def _expire(rules: Rules, pools: Pools, views: Views, now: int) -> None:
    """What was idle for longer than its lifetime is lost, the oldest first; routers hear of it as
    of the moment when that was over."""
    while True:
        replica, slot, since = NONE, NONE, now - rules.lifetime
        for other in range(len(pools.counts)):
            at = idle_longest(pools, other)
            if at != NONE and pools.touched[other, at] < since:
                replica, slot, since = other, at, pools.touched[other, at]
        if replica == NONE:
            return
        if pools.block[replica, slot] != UNKNOWN:
            due = since + rules.lifetime + 1 + rules.lag
            tell(views, pools.block[replica, slot : slot + 1], replica, False, due)
        drop(pools, replica, slot)


@part
def _reset(
    rules: Rules,
    pools: Pools,
    below: Below,
    views: Views,
    results: Results,
    replica: int,
    now: int,
) -> None:
    """A replica forgets its blocks, and those in a tier of its own."""
    lost = results.changed[: forget(pools, replica, results.changed)]
    tell(views, lost, replica, False, now + rules.lag)
    forget_below(below, replica)
