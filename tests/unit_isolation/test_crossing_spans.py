"""The audit of scopes span by span, with bounded memory: the same as over all traffic at once."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from replay.columns import Fleet
from replay.isolation import Crossed, Scopes
from replay.memory import Limits, Memory
from replay.rules import CacheRule
from replay.spans import TrafficSpan
from replay.streaming import CauseStream
from replay.traffic import Chains, Moments, Numbers, Traffic
from tests.unit_isolation.engines_that_share import GRAIN, Asked, busy, traffic_of

LIMITS = Limits(1e9, 1_000_000)
NUMBERS = np.array([11, 2**63 + 5, 77, 99], np.uint64)
# After the first request, which is of a scope of its own: from then on all is known.
RESET = Moments.of([(0, 5.0)])
FIELDS = ("at_least", "at_most", "cannot_tell")


def told(asked: list[Asked]) -> Traffic:
    first = replace(asked[0], scope=3, prompt=[5000 + n for n in range(40)], cached_tokens=0)
    return traffic_of([first, *asked])


def span_of(traffic: Traffic, rows: Numbers, rule: CacheRule, resets: Moments) -> TrafficSpan:
    """Some requests of a traffic; the numbers of scopes change from span to span."""
    assert traffic.looked_up is not None
    assert traffic.scope is not None
    columns: dict[str, Any] = {
        name: getattr(traffic, name)[rows]
        for name in ("prompt_tokens", "cached_tokens", "looked_up", "ready", "ended",
                     "output_tokens")
    }  # fmt: skip
    order = np.roll(np.arange(4), len(rows) % 4)
    since, until = float(columns["looked_up"][0]), float(columns["looked_up"][-1]) + 10
    now = (resets.seconds >= since) & (resets.seconds < until)
    return TrafficSpan(
        traffic=Traffic(
            chains=traffic.chains.sorted(rows), scope=np.argsort(order)[traffic.scope[rows]],
            **columns,
        ),
        rules=[rule],
        judged=[np.ones(len(rows), np.bool_)],
        replicas=["a"],
        deployments=np.zeros(1, np.uint64),
        scopes=NUMBERS[order],
        since_seconds=since,
        until_seconds=until,
        resets=Moments(resets.replica[now], resets.seconds[now]),
    )  # fmt: skip


def by_spans(
    traffic: Traffic, cuts: list[int], rule: CacheRule, resets: Moments, limits: Limits = LIMITS
) -> dict[str, list[int]]:
    """What a stream says, kept and opened again between any two spans."""
    stream = CauseStream.begin(limits, -1.0)
    found: dict[str, list[int]] = {name: [] for name in FIELDS}
    for begin, end in zip([0, *cuts], [*cuts, len(traffic)], strict=True):
        rows = np.arange(begin, end)
        named = stream.take(span_of(traffic, rows, rule, resets))
        kept = json.loads(json.dumps(stream.memory.kept()))
        opened = Memory.from_kept(limits, False, kept)
        opened.young, opened.old = stream.memory.young, stream.memory.old
        stream.memory = opened
        for name in FIELDS:
            found[name] += getattr(named.crossed[0], name).tolist()
    return found


def columns_of(crossed: Crossed) -> dict[str, list[int]]:
    return {name: getattr(crossed, name).tolist() for name in FIELDS}


@pytest.mark.parametrize("unit_tokens", [1, 16, 32])
def test_span_by_span_is_all_at_once(unit_tokens: int) -> None:
    rule, found_tokens = CacheRule("test", "test", block_tokens=unit_tokens), 0
    for seed in range(5):
        traffic = told(busy(seed, unit_tokens, keeps_apart=False).asked)
        draw = Random(seed)
        cuts = sorted(draw.sample(range(2, len(traffic)), 5))
        whole = columns_of(Scopes.of(traffic, rule, Fleet(resets=RESET)).crossed(1e9))
        spans = by_spans(traffic, cuts, rule, RESET)
        # The memory knows other scopes by their prompts, and not how long their answers were; of
        # the own answers it knows those that fill a block.
        rows = [list(zip(*each.values(), strict=True)) for each in (spans, whole)]
        for one, all_at_once in zip(*rows, strict=True):
            assert one[0] <= all_at_once[0]
            assert one[1] <= all_at_once[1] + (GRAIN - 1 if unit_tokens < GRAIN else 0)
            assert one[2] >= all_at_once[2]
        sums = [np.array(each["at_least"]) + each["cannot_tell"] for each in (spans, whole)]
        assert sums[0].tolist() == sums[1].tolist()
        found_tokens += sum(spans["at_least"])
    assert found_tokens > 500


@pytest.mark.parametrize("unit_tokens", [1, 16])
def test_an_engine_that_keeps_scopes_apart_is_never_accused(unit_tokens: int) -> None:
    rule = CacheRule("test", "test", block_tokens=unit_tokens)
    for seed in range(5):
        traffic = told(busy(seed, unit_tokens, keeps_apart=True).asked)
        cuts = sorted(Random(seed).sample(range(2, len(traffic)), 5))
        found = by_spans(traffic, cuts, rule, RESET)
        assert not any(found["at_most"])


def test_nothing_is_said_before_a_horizon_or_a_reset_or_once_too_much_was_forgotten() -> None:
    """The horizon is 200 s; 30 requests come every 10 s."""
    rule = CacheRule("test", "test", block_tokens=16)
    traffic = told(busy(2, 16, keeps_apart=False).asked)
    cuts = [8, 12, 16, 20, 24, 28]
    limits = Limits(200.0, 1_000_000)
    young = by_spans(traffic, cuts, rule, Moments(), limits)
    known = by_spans(traffic, cuts, rule, RESET, limits)
    assert sum(known["at_least"][:20]) > 0
    assert not any(young["at_most"][:20])
    assert sum(young["cannot_tell"][:20]) >= sum(known["at_least"][:20])
    assert young["at_least"][20:] == known["at_least"][20:]
    assert sum(young["at_least"][20:]) > 0
    # Room for a few blocks only: from each time the older half is dropped, a horizon is not known.
    full = by_spans(traffic, cuts, rule, Moments(), Limits(200.0, 24))
    assert not any(full["at_most"])
    assert sum(full["cannot_tell"]) > 0


def test_a_longer_answer_that_an_equal_prompt_had_before_is_not_forgotten() -> None:
    """Scope 1 has a prompt of 32 tokens answered by 40 tokens, then by 18; its next turn goes on
    from the first answer, which a prompt of scope 0 has in it too."""
    turn = [1, 2, 3, 4]
    chains = [[90], [51, 52, 53, 54], [11, 12], [11, 12], [11, 12, 13, 14]]
    traffic = Traffic(
        prompt_tokens=np.array([20, 70, 32, 32, 70]),
        cached_tokens=np.array([0, 0, 0, 16, 64]),
        chains=Chains.of(chains, 16, [[99], turn, [1, 2], [1, 2], turn]),
        looked_up=np.arange(5) * 10.0,
        ready=np.arange(5) * 10.0 + 1,
        ended=np.arange(5) * 10.0 + 2,
        scope=np.array([3, 0, 1, 1, 1]),
        output_tokens=np.array([3, 3, 40, 18, 3]),
    )
    rule = CacheRule("test", "test", block_tokens=16)
    found = by_spans(traffic, [1, 2, 3, 4], rule, RESET)
    assert found["at_most"] == [0] * 5
    # Had it been answered by 18 tokens only, 49 of those 64 were there.
    short = replace(traffic, output_tokens=np.array([3, 3, 18, 18, 3]))
    assert by_spans(short, [1, 2, 3, 4], rule, RESET)["at_least"] == [0, 0, 0, 0, 16]
    # Of an answer whose length is not known nobody can say how long it was.
    unknown = replace(traffic, output_tokens=np.array([3, 3, 0, 18, 3]))
    assert by_spans(unknown, [1, 2, 3, 4], rule, RESET)["at_most"] == [0] * 5
