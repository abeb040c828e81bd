"""Arms side by side: sums, differences with their intervals, and whose the gain is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.arms import ROUTER_ARMS, Arm, arm_named
from replay.clock import Clock
from replay.experiment import experiment
from replay.prompts import Prompts
from replay.recorded import Recorded
from replay.routers import Router
from replay.rules import RULES
from replay.setting import Setting
from tests.unit_what_if.fleets import Requests, conversations, prompts_of


def arms(*names: str) -> tuple[Arm, ...]:
    return tuple(map(arm_named, names))


# A token takes a millisecond.
CLOCK = Clock(prefill_tokens_per_second=1000.0)
SETTING = Setting(
    arms=arms("off", "round-robin", "sticky"), rule=RULES["partial"], replicas=2,
    capacity_blocks=100, router=Router(name="round-robin"), clock=CLOCK,
)  # fmt: skip


def two_conversations(turns: int) -> Prompts:
    """By turns. Turn t has t + 1 blocks of 4 tokens, the turn before and one more."""
    requests: Requests = [
        (4 * (turn + 1), list(range(first, first + turn + 1)))
        for turn in range(turns)
        for first in (0, 1000)
    ]
    return prompts_of(requests, 4)


def test_caching_and_routing_add_up_to_what_both_save() -> None:
    """A and B, and then A and B the other way round: on two replicas by turns nothing is found,
    by prefix all of the second two: 8 of 16 tokens, a token a millisecond."""
    prompts = prompts_of([(4, [0]), (4, [1]), (4, [1]), (4, [0])], 4)
    found = experiment(Recorded(prompts=prompts), SETTING)
    seconds = {each.arm: each.prefill_seconds for each in found.results}
    ratios = {each.arm: each.token_hit_ratio for each in found.results}
    assert seconds == pytest.approx({"off": 0.016, "round-robin": 0.016, "sticky": 0.008})
    assert ratios == {"off": 0.0, "round-robin": 0.0, "sticky": 0.5}
    assert found.gain is not None
    assert found.gain.best == "sticky"
    assert found.gain.caching_seconds == pytest.approx(0.0)
    assert found.gain.routing_seconds == pytest.approx(0.008)
    assert found.bound_ratio == 0.5
    assert found.days == 3 / 86_400


def test_differences_are_told_against_round_robin_with_an_interval() -> None:
    prompts = two_conversations(60)
    found = experiment(Recorded(prompts=prompts), replace(SETTING, arms=arms("off", "round-robin")))
    told = {each.figure: each for each in found.differences}
    assert {each.arm for each in found.differences} == {"off"}
    saved = told["prefill_seconds"]
    by_arm = {each.arm: each.prefill_seconds or 0.0 for each in found.results}
    assert saved.change == pytest.approx(by_arm["off"] - by_arm["round-robin"])
    assert saved.low < saved.change < saved.high
    assert told["ttft_p50_seconds"].change > 0
    again = experiment(Recorded(prompts=prompts), replace(SETTING, arms=arms("off", "round-robin")))
    assert again.differences == found.differences


def test_two_equal_arms_differ_by_nothing() -> None:
    """One replica: every router sends everything there."""
    prompts = two_conversations(20)
    found = experiment(
        Recorded(prompts=prompts), replace(SETTING, arms=arms("round-robin", "scored"), replicas=1)
    )
    assert all((each.change, each.low, each.high) == (0, 0, 0) for each in found.differences)


def test_t102_what_warms_the_caches_is_in_no_figure() -> None:
    prompts = prompts_of([(8, [0, 1]), (8, [0, 1]), (8, [0, 1])], 4)
    for clock in (CLOCK, None):
        wanted = replace(SETTING, replicas=1, clock=clock, warm_up_requests=1)
        result = experiment(Recorded(prompts=prompts), wanted).results[1]
        assert (result.requests, result.prompt_tokens, result.cached_tokens) == (2, 16, 16)


@settings(max_examples=30, deadline=None)
@given(conversations(), st.integers(1, 3), st.integers(8, 30))
def test_every_arm_conserves_tokens_and_stays_below_the_bound(
    requests: Requests, replicas: int, capacity: int
) -> None:
    prompts = replace(prompts_of(requests, 4), arrived=np.zeros(len(requests)))
    for clock in (CLOCK, None):
        wanted = replace(
            SETTING,
            arms=arms(*ROUTER_ARMS),
            replicas=replicas,
            capacity_blocks=capacity,
            clock=clock,
        )
        found = experiment(Recorded(prompts=prompts), wanted)
        assert [each.arm for each in found.results] == list(ROUTER_ARMS)
        for each in found.results:
            if each.refused_requests == 0:
                assert each.prompt_tokens == prompts.prompt_tokens.sum()
            assert 0 <= each.cached_tokens <= each.prompt_tokens
            if clock is None:
                assert (each.token_hit_ratio or 0) <= (found.bound_ratio or 0)
        assert found.results[0].cached_tokens == 0


def test_never_full_loses_nothing() -> None:
    found = experiment(
        Recorded(prompts=two_conversations(12)), replace(SETTING, capacity_blocks=None)
    )
    assert all(each.evicted_blocks == 0 for each in found.results)


def test_every_assumption_is_in_words() -> None:
    words = " / ".join(SETTING.words())
    for said in ("the last one may be partial", "2 replicas alike", "100 blocks", "1,000 tokens/s"):
        assert said in words
    assert "upper bound" in " ".join(replace(SETTING, clock=None).words())


def test_an_experiment_needs_an_arm() -> None:
    with pytest.raises(ValueError, match="at least one arm"):
        experiment(Recorded(prompts=two_conversations(1)), replace(SETTING, arms=()))
