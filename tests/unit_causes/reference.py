"""The causes of missed tokens, worked out one block at a time: small, obvious and slow.

Written from the definition alone. Nothing of `replay` is used: a prompt is the list of what its
blocks hold, a block is known when the same beginning was there before, and every question is a
loop over all earlier requests.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

CAUSES = (
    "unserved", "evicted", "expired", "reset", "routed", "concurrent", "isolated", "redeployed",
    "layout", "new", "rounding", "ineligible", "unexplained",
)  # fmt: skip


@dataclass
class Call:
    """One request. `blocks`: what each block of the chain holds. None: not known.

    `is_timed`: first token and end are known. Else `ready` and `ended` are shortly after the
    look-up, before any other moment.
    """

    blocks: list[int]
    prompt: int
    cached: int | None
    looked_up: float = 0.0
    ready: float = 0.0
    ended: float = 0.0
    replica: int = 0
    deployment: int = 0
    scope: int = 0
    output: int = 0
    ineligible: bool = False
    kept: bool = True
    eligible: int | None = None
    is_timed: bool = True


@dataclass
class Held:
    """What events told: the beginning `blocks` was on a replica for a while."""

    blocks: list[int]
    scope: int
    deployment: int
    replica: int
    since: float
    until: float


@dataclass
class World:
    """Calls in the order of look-ups, and the rule and the fleet they met."""

    calls: list[Call]
    grain: int = 16
    block: int = 16
    partial: bool = False
    held_back: int = 0
    minimum: int = 0
    lifetime: float | None = None
    answers: bool = False
    resets: list[tuple[int, float]] = field(default_factory=list)
    gone: list[tuple[int, float]] = field(default_factory=list)
    held: list[Held] | None = None
    has_contents: bool = True

    @property
    def unit(self) -> int:
        return max(self.grain, self.block)


# A beginning of a prompt with what bounds its reuse: (deployment, scope, contents).
Beginning = tuple[int, int, tuple[int, ...]]


@dataclass
class Record:
    """A beginning that became available on a replica; `after`: only to later calls than this."""

    beginning: Beginning
    replica: int
    moment: float
    after: int = -1


def named(world: World, call: Call) -> list[int]:
    """The blocks of a call that a cache of this rule names."""
    most = -(-call.prompt // world.grain) if world.partial else call.prompt // world.grain
    return call.blocks[:most]


def beginning(call: Call, blocks: list[int]) -> Beginning:
    return call.deployment, call.scope, tuple(blocks)


def units(world: World, call: Call) -> Iterator[tuple[int, list[int]]]:
    """(tokens, blocks) of every beginning that ends with a whole unit."""
    blocks, step = named(world, call), world.unit // world.grain
    for count in range(step, len(blocks) + 1, step):
        yield min(count * world.grain, call.prompt), blocks[:count]


def is_kept(world: World, call: Call) -> bool:
    return call.kept and call.prompt >= world.minimum


def records(world: World) -> list[Record]:
    found = []
    for number, call in enumerate(world.calls):
        if not is_kept(world, call):
            continue
        for tokens, blocks in units(world, call):
            found.append(Record(beginning(call, blocks), call.replica, call.ready, number))
            if call.cached is not None and tokens <= call.cached:
                found.append(Record(beginning(call, blocks), call.replica, call.looked_up, number))
    if world.answers:
        found += answered(world)
    for held in world.held or []:
        whole = (held.deployment, held.scope, tuple(held.blocks))
        found.append(Record(whole, held.replica, held.since))
    return found


def answered(world: World) -> list[Record]:
    """Beginnings of calls that an earlier answer had computed."""
    found = []
    for number, call in enumerate(world.calls):
        for length in range(1, len(named(world, call))):
            for replica in sorted({other.replica for other in world.calls}):
                before = last_answered(world, number, length, replica)
                if before is not None and came_back(world, number, world.calls[before]):
                    found += proofs(world, call, length, before)
    return found


def proofs(world: World, call: Call, length: int, before: int) -> Iterator[Record]:
    """Of a call that goes on behind `length` blocks, what call `before` had answered."""
    other, blocks = world.calls[before], named(world, call)
    for count in range(length + 1, min(reach(world, other), len(blocks)) + 1):
        if count % (world.unit // world.grain) == 0:
            yield Record(beginning(call, blocks[:count]), other.replica, other.ended, before)


def reach(world: World, call: Call) -> int:
    """Blocks that a prompt and its answer filled; the last token's KV is never computed."""
    return (call.prompt + call.output - 1) // world.grain


def last_answered(world: World, number: int, length: int, replica: int) -> int | None:
    """The call on a replica whose whole prompt is the first `length` blocks of call `number`, and
    whose answer, longer than those, was the last to be there."""
    call = world.calls[number]
    whole = beginning(call, named(world, call)[:length])
    candidates = [
        (first_served(world, before), before)
        for before, other in enumerate(world.calls[:number])
        if is_kept(world, other)
        and other.replica == replica
        and beginning(other, named(world, other)) == whole
        and other.output > 0
        and reach(world, other) > length
        and other.ended <= call.looked_up
    ]
    return max(candidates)[1] if candidates else None


def came_back(world: World, number: int, other: Call) -> bool:
    """Did the cache serve a block of the answer to `other` that no prompt had before? Else nobody
    knows whether the answer came back as it was."""
    call, answer = world.calls[number], (other.prompt // world.unit + 1) * world.unit
    blocks = named(world, call)[: answer // world.grain]
    if (call.cached or 0) < answer or len(blocks) * world.grain < answer:
        return False
    return not any(
        beginning(each, named(world, each)[: len(blocks)]) == beginning(call, blocks)
        for each in world.calls[:number]
        if is_kept(world, each)
    )


def first_served(world: World, number: int) -> int:
    """The first call that could see the answer of call `number`."""
    ended = world.calls[number].ended
    later = [
        each for each in range(number + 1, len(world.calls))
        if world.calls[each].looked_up >= ended
    ]  # fmt: skip
    return later[0] if later else len(world.calls)


def resets_between(world: World, replica: int, since: float, until: float) -> int:
    return sum(1 for own, moment in world.resets if own == replica and since < moment <= until)


def is_live(world: World, replica: int, moment: float) -> bool:
    return not any(own == replica and left <= moment for own, left in world.gone)


def ways(world: World, number: int, known: list[Record]) -> list[set[Beginning]]:
    """For each way of knowing, the nearest first, the beginnings known in it to a call."""
    call = world.calls[number]
    then = [
        record for record in known
        if record.moment <= call.looked_up and record.after < number
    ]  # fmt: skip
    since, before, fleet, gone = set(), set(), set(), set()
    for record in then:
        lost = resets_between(world, record.replica, record.moment, call.looked_up)
        gone.add(record.beginning)
        if record.replica == call.replica:
            before.add(record.beginning)
            if not lost:
                since.add(record.beginning)
        if not lost and is_live(world, record.replica, call.looked_up):
            fleet.add(record.beginning)
    earlier = [other for other in world.calls[:number] if is_kept(world, other)]
    started, any_scope, any_model = set(), set(), set()
    for other in earlier:
        for _, blocks in units(world, other):
            if (other.deployment, other.scope) == (call.deployment, call.scope):
                started.add(beginning(call, blocks))
            if other.deployment == call.deployment and world.has_contents:
                any_scope.add(beginning(call, blocks))
            if world.has_contents or other.scope == call.scope:
                any_model.add(beginning(call, blocks))
    return [
        held(world, number), since, before, fleet, gone, started, any_scope, any_model
    ]  # fmt: skip


def held(world: World, number: int) -> set[Beginning]:
    call = world.calls[number]
    found: set[Beginning] = set()
    if world.held is not None:
        for each in world.held:
            if each.replica == call.replica and each.since <= call.looked_up < each.until:
                found.add((each.deployment, each.scope, tuple(each.blocks)))
    elif world.lifetime is not None:
        for other in world.calls[:number]:
            if not is_kept(world, other) or other.replica != call.replica:
                continue
            if not other.ready <= call.looked_up <= other.ready + world.lifetime:
                continue
            for _, blocks in units(world, other):
                found.add(beginning(other, blocks))
    return found


def ceiling(world: World, call: Call) -> int:
    if world.partial:
        return call.prompt
    return max((call.prompt - 1) // world.block - world.held_back, 0) * world.block


def causes(world: World) -> list[dict[str, int] | None]:
    """Cause → tokens of every call; None where its cached count is not known."""
    known = records(world)
    return [causes_of(world, number, known) for number in range(len(world.calls))]


def causes_of(world: World, number: int, known: list[Record]) -> dict[str, int] | None:
    call = world.calls[number]
    if call.cached is None:
        return None
    found: Counter[str] = Counter()
    if call.ineligible or call.prompt < world.minimum:
        found["ineligible"] = call.prompt - call.cached
        return dict(found)
    eligible = call.prompt if call.eligible is None else call.eligible
    eligible = min(max(eligible, call.cached), call.prompt)
    found["ineligible"] = call.prompt - eligible
    best = max(min(ceiling(world, call), eligible), call.cached)
    tail = eligible - best

    depth = call.cached
    names = ["unserved", "evicted", "reset", "routed", "reset", "concurrent", "isolated",
             "redeployed"]  # fmt: skip
    if world.lifetime is not None:
        names[1] = "expired"
    so_far: set[Beginning] = set()
    for name, beginnings in zip(names, ways(world, number, known), strict=True):
        so_far |= beginnings
        reached = 0
        for tokens, blocks in units(world, call):
            if beginning(call, blocks) not in so_far:
                break
            reached = tokens
        given_up = 0 if world.partial else world.held_back * world.block
        deeper = max(depth, min(reached - given_up, best))
        found[name] += deeper - depth
        depth = deeper

    # Of what matched last, blocks that are given up are no fault of anybody's: rounding.
    shared = max(depth, min(reached, best), min(agreed(world, number), best))
    found["rounding"] = tail + shared - depth
    covered = min(len(named(world, call)) * world.grain, call.prompt)
    end = min(best, max(covered, shared))
    beyond = best - end
    if len(named(world, call)) >= call.prompt // world.grain:
        found["rounding"] += beyond
    else:
        found["unexplained"] = beyond
    found["layout"] = elsewhere(world, number, shared, end)
    found["new"] = end - shared - found["layout"]
    return dict(found)


def agreed(world: World, number: int) -> int:
    """Tokens that the call shares with any earlier one, by the chain's own blocks."""
    if world.unit == world.grain:
        return 0
    call, most = world.calls[number], 0
    for other in world.calls[:number]:
        if not is_kept(world, other):
            continue
        if not world.has_contents and other.scope != call.scope:
            continue
        count = 0
        for mine, theirs in zip(named(world, call), named(world, other), strict=False):
            if mine != theirs:
                break
            count += 1
        most = max(most, count)
    return most * world.grain


def elsewhere(world: World, number: int, begin: int, end: int) -> int:
    """Tokens between two places that stand in blocks whose content an earlier call of the same
    deployment and scope had."""
    if not world.has_contents:
        return 0
    call = world.calls[number]
    contents = {
        content
        for other in world.calls[:number]
        if is_kept(world, other)
        and (other.deployment, other.scope) == (call.deployment, call.scope)
        for content in named(world, other)
    }
    return sum(
        1
        for token in range(begin, end)
        if token // world.grain < len(named(world, call))
        and named(world, call)[token // world.grain] in contents
    )
