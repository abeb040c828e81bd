"""Causes named span by span equal those of all traffic at once, wherever the cuts are."""

from dataclasses import fields, replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replay.causes import CAUSES, DETAILS, Causes, attribute
from replay.columns import Fleet
from replay.memory import Limits
from replay.name_set import NameSet
from replay.rules import RULES, CacheRule
from replay.seen import Change
from replay.spans import TrafficSpan
from replay.streaming import CauseStream, Named
from replay.traffic import Chains, Moments, Numbers, Stays, Traffic
from tests.unit_causes.reference import World
from tests.unit_causes.worlds import fleet_of, rule_of, traffic_of, world_of

# A world is cheap and its seed hard to shrink, so that each example looks at several.
_WORLDS = 5
_NUMBERS = np.array([2**63 + 11, 7, 0], np.uint64)
NO_LIMITS = Limits(1e9, 1_000_000)
_COLUMNS = (
    "prompt_tokens", "cached_tokens", "looked_up", "ready", "ended", "replica", "deployment",
    "scope", "ineligible", "kept", "output_tokens", "eligible_tokens",
)  # fmt: skip


def rows_of(traffic: Traffic, rows: Numbers) -> Traffic:
    """Only some requests."""
    columns: dict[str, Any] = {
        name: None if (column := getattr(traffic, name)) is None else column[rows]
        for name in _COLUMNS
    }
    return Traffic(chains=traffic.chains.sorted(rows), **columns)


def spans_of(world: World, random: Random) -> list[tuple[TrafficSpan, Numbers]]:
    """The world cut at random moments, with what it numbers numbered anew in each span."""
    traffic, fleet, rule = traffic_of(world), consistent(fleet_of(world)), rule_of(world)
    cuts = sorted(random.sample([0, 0.5, 1, 2, 2.5, 3, 4, 5, 5.75, 6, 7, 8, 9, 10], 4))
    looked_up = traffic.looked_up
    assert looked_up is not None
    found = []
    for since, until in zip([-1, *cuts], [*cuts, 100], strict=True):
        rows = np.flatnonzero((looked_up >= since) & (looked_up < until))
        own = rows_of(traffic, rows)
        found.append((numbered_anew(own, fleet, (since, until), rule, random), rows))
    return found


def numbered_anew(
    traffic: Traffic, fleet: Fleet, times: tuple[float, float], rule: CacheRule, random: Random
) -> TrafficSpan:
    since, until = times
    order = np.array(random.sample(range(3), 3))  # new number → number in the world
    back = np.argsort(order)
    resets, stays, gone = fleet.resets, fleet.stays, fleet.gone
    now = (resets.seconds >= since) & (resets.seconds < until)
    if stays is not None:
        lasting = (stays.since < until) & (stays.until > since)
        stays = Stays(
            stays.names[lasting], back[stays.replica[lasting]], stays.since[lasting],
            stays.until[lasting], back[stays.deployment[lasting]],
        )  # fmt: skip
    columns: dict[str, Any] = {name: getattr(traffic, name) for name in _COLUMNS}
    for name in ("replica", "deployment", "scope"):
        columns[name] = back[columns[name]]
    return TrafficSpan(
        traffic=Traffic(chains=traffic.chains, **columns),
        rules=[rule],
        judged=[np.ones(len(traffic), np.bool_)],
        replicas=[f"replica {number}" for number in order],
        deployments=_NUMBERS[order],
        scopes=_NUMBERS[order],
        since_seconds=since,
        until_seconds=until,
        resets=Moments(back[resets.replica[now]], resets.seconds[now]),
        gone=Moments(back[gone.replica], gone.seconds),
        stays=stays,
    )


def stream_of(world: World, limits: Limits = NO_LIMITS) -> CauseStream:
    return CauseStream.begin(limits, -1.0, lifetimes=world.lifetime is not None)


def by_request(found: list[tuple[Causes, Numbers]], count: int) -> dict[str, list[int]]:
    """Tokens by cause of every request, from answers for some of them."""
    tokens = {name: np.zeros(count, np.int64) for name in (*CAUSES, *DETAILS, "warm")}
    for causes, rows in found:
        for name in (*CAUSES, *DETAILS):
            tokens[name][rows] = causes.tokens[name]
        tokens["warm"][rows] = causes.warm_before_log_tokens
    return {name: column.tolist() for name, column in tokens.items()}


def consistent(fleet: Fleet) -> Fleet:
    """No stay outlasts a reset of its replica, as no reader of events tells it."""
    stays, resets = fleet.stays, fleet.resets
    if stays is None:
        return fleet
    until = [
        min([end, *resets.seconds[(resets.replica == replica) & (resets.seconds > since)].tolist()])
        for replica, since, end in zip(stays.replica, stays.since, stays.until, strict=True)
    ]
    return replace(fleet, stays=replace(stays, until=np.array(until, np.float64)))


def known_by_then(world: World, spans: list[tuple[TrafficSpan, Numbers]]) -> dict[str, list[int]]:
    """Of every span what the batch pass says of it from all requests up to its end: an answer
    that a later request proves is not known yet."""
    traffic, fleet, rule = traffic_of(world), consistent(fleet_of(world)), rule_of(world)
    found = []
    for span, rows in spans:
        assert traffic.looked_up is not None
        until = np.flatnonzero(traffic.looked_up < span.until_seconds)
        causes = attribute(rows_of(traffic, until), rule, before(fleet, span.until_seconds))
        found.append((of_rows(causes, np.searchsorted(until, rows)), rows))
    return by_request(found, len(world.calls))


def before(fleet: Fleet, until: float) -> Fleet:
    """What was told of the fleet by then."""
    resets, stays = fleet.resets, fleet.stays
    told = resets.seconds < until
    if stays is not None:
        here = stays.since < until
        columns = {each.name: getattr(stays, each.name)[here] for each in fields(stays)}
        stays = Stays(**columns)
    return Fleet(Moments(resets.replica[told], resets.seconds[told]), fleet.gone, stays)


def of_rows(causes: Causes, rows: Numbers) -> Causes:
    """Only those of some requests."""
    return Causes(
        causes.prompt_tokens[rows],
        causes.cached_tokens[rows],
        {name: column[rows] for name, column in causes.tokens.items()},
        causes.warm_before_log_tokens[rows],
        causes.no_cache[rows],
    )


# Of these few each needs another part of what is remembered: uses, requests under way, scopes and
# answers.
@example(15)
@given(st.integers(0, 2**40))
@settings(max_examples=20, deadline=None)
def test_span_by_span_is_as_all_at_once(seed: int) -> None:
    for number in range(seed, seed + _WORLDS):
        world, spans = world_of(number), spans_of(world_of(number), Random(number))
        stream = stream_of(world)
        found = [(stream.take(span).causes[0], rows) for span, rows in spans]
        told = by_request(found, len(world.calls))
        assert told == known_by_then(world, spans), f"world {number}"


@given(st.integers(0, 2**40))
@settings(max_examples=6, deadline=None)
def test_a_pass_taken_up_again_goes_on_as_if_it_had_never_ended(seed: int) -> None:
    """Small generations, so that they turn often; limits drop blocks alike in both."""
    for number in range(seed, seed + _WORLDS):
        world, random = world_of(number), Random(number)
        limits = Limits(random.choice([2.0, 5.0, 1e9]), random.choice([4, 40]))
        spans, whole = spans_of(world, Random(number)), stream_of(world, limits)
        again, changes = stream_of(world, limits), list[tuple[int, Change]]()
        for span, _ in spans:
            one, other = whole.take(span), again.take(span)
            assert one.remembered_seconds == other.remembered_seconds
            assert sums(one.causes[0]) == sums(other.causes[0]), f"world {number}"
            changes.append((other.generation, other.change))
            lifetimes = world.lifetime is not None
            again = CauseStream.restored(limits, lifetimes, again.kept(), changes)
            assert again.memory.blocks == whole.memory.blocks


def sums(causes: Causes) -> dict[str, int]:
    return causes.totals() | {"warm": int(causes.warm_before_log_tokens.sum())}


def span(chains: list[list[int]], since: float, until: float) -> TrafficSpan:
    """Prompts of whole blocks of 16 tokens and a token more, one a second, none of it cached."""
    count = len(chains)
    looked_up = since + np.arange(count, dtype=np.float64)
    return TrafficSpan(
        traffic=Traffic(
            prompt_tokens=np.array([16 * len(chain) + 1 for chain in chains]),
            cached_tokens=np.zeros(count, np.int64),
            chains=Chains.of(chains, 16),
            looked_up=looked_up,
            ready=looked_up + 0.5,
        ),
        rules=[RULES["full"]],
        judged=[np.ones(count, np.bool_)],
        replicas=["a"],
        deployments=np.zeros(1, np.uint64),
        scopes=np.zeros(1, np.uint64),
        since_seconds=since,
        until_seconds=until,
    )


def tokens_of(named: Named) -> dict[str, int]:
    return {name: tokens for name, tokens in named.causes[0].totals().items() if tokens}


def test_what_was_seen_before_the_horizon_is_new_again() -> None:
    stream = CauseStream.begin(Limits(100.0, 1_000), 0.0)
    assert tokens_of(stream.take(span([[1, 2]], 0, 10))) == {"new": 32, "rounding": 1}
    # Two generations of a horizon each: what was seen within 100 s is known, up to 200 s.
    assert tokens_of(stream.take(span([[1, 2]], 90, 100))) == {"evicted": 32, "rounding": 1}
    assert tokens_of(stream.take(span([[3]], 101, 110))) == {"new": 16, "rounding": 1}
    assert tokens_of(stream.take(span([[4]], 201, 210))) == {"new": 16, "rounding": 1}
    found = stream.take(span([[1, 2]], 302, 310))
    assert tokens_of(found) == {"new": 32, "rounding": 1}
    assert found.remembered_seconds == 100.0
    assert found.warm_seconds == 100.0


def test_without_room_the_horizon_is_shorter_and_says_so() -> None:
    stream = CauseStream.begin(Limits(1_000.0, 8), 0.0)
    for minute in range(6):
        chain = [10 * minute + block for block in range(1, 5)]
        found = stream.take(span([chain], 60 * minute, 60 * minute + 60))
        assert stream.memory.blocks <= 8
    assert found.remembered_seconds < 200.0
    # Of the first minute nothing is known any more, of the last it is.
    assert tokens_of(stream.take(span([[51, 52, 53, 54]], 360, 420)))["evicted"] == 64
    assert tokens_of(stream.take(span([[1, 2, 3, 4]], 420, 480)))["new"] == 64


def test_a_replica_that_only_events_tell_of_is_one() -> None:
    told = Stays(
        np.array([1], np.uint64), np.array([4]), np.array([0.5]), np.array([np.inf]), np.array([0])
    )
    fleet = Fleet(stays=told)
    traffic = span([[1]], 1, 2).traffic
    found = attribute(traffic, RULES["full"], fleet)
    assert {name: found.totals()[name] for name in ("routed", "new")} == {"routed": 16, "new": 0}


@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=90), max_size=9))
@settings(max_examples=30, deadline=None)
def test_a_set_of_names_is_a_set(batches: list[list[int]]) -> None:
    # 0 and 1 are taken for one, as it says.
    ours, theirs = NameSet(), set[int]()
    for batch in batches:
        wanted = {name or 1 for name in batch}
        names = np.array(batch, np.uint64)
        assert ours.has(names).tolist() == [(name or 1) in theirs for name in batch]
        assert set(ours.add(names).tolist()) == wanted - theirs
        theirs |= wanted
        assert len(ours) == len(theirs)
    assert ours.has(np.array(sorted(theirs), np.uint64)).all()
