"""Arms side by side: sums, differences with their intervals, and whose the gain is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.replayed.words import answer
from replay.arms import ROUTER_ARMS, Arm, NotAnArm, arm_named
from replay.clock import USUAL_HOST, Clock, Tier
from replay.experiment import experiment
from replay.gain import Gain
from replay.gain_words import split_words
from replay.prompts import Prompts
from replay.recorded import Labels, Recorded
from replay.routers import Router
from replay.rules import RULES
from replay.serving import Moved
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


def test_the_bound_holds_for_every_arm_whichever_requests_it_refuses() -> None:
    """A prompt of ten blocks, one of one block three times, the first one again: those of ten fit
    only five times the memory. 8 of 12 tokens are found, or 48 of 92, and of 52 behind the first
    request, which warms. Where the short ones are not the same, nothing, or 40 of 92."""
    long = (40, list(range(10, 20)))
    wanted = replace(SETTING, arms=arms("round-robin", "memory:5"), replicas=1, capacity_blocks=3)
    for short, warm_up, ratios in (
        ([0, 0, 0], 0, [8 / 12, 48 / 92]),
        ([0, 0, 0], 1, [8 / 12, 48 / 52]),
        ([0, 1, 2], 0, [0.0, 40 / 92]),
    ):
        requests: Requests = [long, *((4, [block]) for block in short), long]
        told = Recorded(prompts=prompts_of(requests, 4))
        found = experiment(told, replace(wanted, warm_up_requests=warm_up))
        assert [each.token_hit_ratio for each in found.results] == ratios
        assert found.bound_ratio == max(ratios)


def test_refused_requests_are_in_no_group() -> None:
    """Three of 4 tokens fit, two of 40 do not; one of each label has either."""
    requests: Requests = [(4, [0])] * 3 + [(40, list(range(10, 20)))] * 2
    labels = Labels(np.array([0, 0, 1, 0, 1]), ["a", "b"])
    setting = replace(SETTING, arms=arms("round-robin"), replicas=1, capacity_blocks=3)
    found = experiment(Recorded(prompts=prompts_of(requests, 4), tenant=labels), setting)
    assert [(each.group, each.requests, each.cached_tokens, each.ttft_mean_seconds)
            for each in found.by["tenant"]] == [("a", 2, 4, 0.002), ("b", 1, 4, 0.0)]  # fmt: skip


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


def turned(prompts: Prompts) -> Recorded:
    """A and B, and A and B the other way round, of two templates: the second is of 12 tokens."""
    labels = Labels(np.array([0, 1, 1, 0]), ["short", "long"])
    tenant = Labels(np.array([0, -1, 0, -1]), ["acme"])
    return Recorded(prompts=prompts, template=labels, tenant=tenant)


def test_groups_are_told_by_arm_those_of_most_tokens_first() -> None:
    """Prompts of 4, 12, 12 and 4 tokens a minute apart; by prefix the second of each is found."""
    prompts = prompts_of([(4, [0]), (12, [1, 2, 3]), (12, [1, 2, 3]), (4, [0])], 4, 60.0)
    found = experiment(turned(prompts), SETTING).by["template"]
    told = [(each.group, each.arm, each.requests, each.prompt_tokens, each.cached_tokens,
             each.token_hit_ratio) for each in found]  # fmt: skip
    assert told == [
        ("long", "off", 2, 24, 0, 0.0), ("long", "round-robin", 2, 24, 0, 0.0),
        ("long", "sticky", 2, 24, 12, 0.5), ("short", "off", 2, 8, 0, 0.0),
        ("short", "round-robin", 2, 8, 0, 0.0), ("short", "sticky", 2, 8, 4, 0.5),
    ]  # fmt: skip
    seconds = {(each.group, each.arm): each.prefill_seconds for each in found}
    assert seconds["long", "off"] == pytest.approx(0.024)
    assert seconds["long", "sticky"] == pytest.approx(0.012)
    ttft = {(each.group, each.arm): each.ttft_seconds for each in found}
    assert ttft["long", "sticky"] == pytest.approx({50: 0.0, 90: 0.012, 99: 0.012})
    mean = {(each.group, each.arm): each.ttft_mean_seconds for each in found}
    assert mean["short", "sticky"] == pytest.approx(0.002)


def test_who_has_no_label_is_a_group_too_and_what_warms_is_in_none() -> None:
    prompts = prompts_of([(4, [0]), (12, [1, 2, 3]), (12, [1, 2, 3]), (4, [0])], 4, 60.0)
    wanted = replace(SETTING, arms=arms("sticky"), warm_up_requests=1, clock=None)
    found = experiment(turned(prompts), wanted).by["tenant"]
    assert [(each.group, each.requests, each.prompt_tokens) for each in found] == [
        ("(none)", 2, 16), ("acme", 1, 12),
    ]  # fmt: skip
    assert found[0].prefill_seconds is None


def test_beyond_twenty_groups_are_one() -> None:
    """Of 25 tenants, tenant n with n + 1 prompts, the five smallest have 1 + … + 5."""
    codes = np.repeat(np.arange(25), np.arange(25) + 1)
    prompts = prompts_of([(4, [n]) for n in range(len(codes))], 4)
    labels = Labels(codes, [f"t{n}" for n in range(25)])
    found = experiment(Recorded(prompts=prompts, tenant=labels), replace(SETTING, clock=None))
    rows = [each for each in found.by["tenant"] if each.arm == "off"]
    assert [each.group for each in rows] == [*(f"t{n}" for n in range(24, 4, -1)), "(others)"]
    assert rows[-1].requests == 15
    assert sum(each.requests for each in rows) == len(codes)


@pytest.mark.parametrize("clock", [CLOCK, None])
def test_evicted_blocks_are_told_by_whose_they_were(clock: Clock | None) -> None:
    """Room for three blocks. B's two and A's again push out what was used first: A's two, then C's
    one and B's last. The first request only warms the cache, and its blocks are lost too."""
    prompts = prompts_of([(8, [0, 1]), (4, [4]), (8, [2, 3]), (8, [0, 1])], 4)
    labels = Labels(np.array([0, 2, 1, 0]), ["a", "b", "c"])
    wanted = replace(SETTING, arms=arms("off", "round-robin"), replicas=1, capacity_blocks=3,
                     clock=clock, warm_up_requests=1)  # fmt: skip
    found = experiment(Recorded(prompts=prompts, template=labels), wanted)
    lost = {(each.arm, each.group): each.evicted_blocks for each in found.by["template"]}
    assert {group: lost["round-robin", group] for group in "abc"} == {"a": 2, "b": 1, "c": 1}
    assert [each.evicted_blocks for each in found.results] == [0, 4]
    assert {lost["off", group] for group in "abc"} == {0}


@settings(max_examples=20, deadline=None)
@given(conversations(), st.data())
def test_groups_add_up_to_their_arm(requests: Requests, data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(-1, 2), min_size=len(requests), max_size=len(requests)))
    # And a group of its own with a prompt that has no token.
    labels = Labels(np.array([*codes, 3]), ["a", "b", "c", "empty"])
    told = Recorded(prompts=prompts_of([*requests, (0, [])], 4), template=labels)
    setting = replace(SETTING, capacity_blocks=12)
    found = experiment(told, setting if data.draw(st.booleans()) else replace(setting, clock=None))
    for result in found.results:
        rows = [each for each in found.by["template"] if each.arm == result.arm]
        assert rows[-1].group == "empty"
        names = ["requests", "prompt_tokens", "cached_tokens", "evicted_blocks"]
        for name in names + ["prefill_seconds"] * (found.setting.clock is not None):
            assert sum(getattr(each, name) for each in rows) == pytest.approx(getattr(result, name))


def test_the_gain_of_layout_is_that_of_the_best_router_with_mended_prompts() -> None:
    """As recorded nothing is shared: 16 ms each. Mended all share a block, which by prefix is
    found but for the first time: 3 of 16 ms."""
    told = Recorded(
        prompts=prompts_of([(4, [n]) for n in range(4)], 4),
        mended=prompts_of([(4, [0])] * 4, 4),
        mended_words=["clock in system[0]"],
    )
    found = experiment(told, SETTING)
    assert [each.arm for each in found.results] == ["off", "round-robin", "sticky", "mended"]
    assert found.gain is not None
    assert found.gain.best == "mended"
    by_arm = {each.arm: each.prefill_seconds or 0.0 for each in found.results}
    assert by_arm["off"] == by_arm["round-robin"] == pytest.approx(0.016)
    # Round robin, the first of equals: each of two replicas computes the block once.
    assert by_arm["mended"] == pytest.approx(0.008)
    gain = found.gain
    assert (gain.caching_seconds, gain.routing_seconds) == (0, 0)
    assert gain.layout_seconds == pytest.approx(0.008)


def test_mended_prompts_that_take_more_are_not_the_best_arm() -> None:
    """The reverse: what all shared is gone, so that round robin alone computes half as much."""
    told = Recorded(
        prompts=prompts_of([(4, [0])] * 4, 4), mended=prompts_of([(4, [n]) for n in range(4)], 4)
    )
    found = experiment(told, replace(SETTING, arms=(Arm(caches=False), Arm())))
    by_arm = {each.arm: each.prefill_seconds or 0.0 for each in found.results}
    assert by_arm["round-robin"] == pytest.approx(0.008)
    assert by_arm["mended"] == pytest.approx(0.016)
    assert found.gain == Gain("round-robin", pytest.approx(0.008), 0, 0)
    assert split_words(found, 1) == (
        "Saved by round-robin: caching 0.01 + routing 0 = 0.01 GPU-seconds of prefill."
    )
    assert "Mending the layout of prompts saves no prefill beside round-robin." in answer(found, 1)


@settings(max_examples=20, deadline=None)
@given(conversations(), conversations(), st.integers(3, 30))
def test_gains_add_up_to_off_less_the_best(
    requests: Requests, others: Requests, capacity: int
) -> None:
    """Whatever the mended prompts are, and even where they do not fit."""
    count = min(len(requests), len(others))
    told = Recorded(prompts=prompts_of(requests[:count], 4), mended=prompts_of(others[:count], 4))
    found = experiment(told, replace(SETTING, capacity_blocks=capacity))
    assert found.gain is not None
    whole = found.gain.caching_seconds + found.gain.routing_seconds + found.gain.layout_seconds
    by_arm = {each.arm: each for each in found.results}
    if not any(each.refused_requests for each in found.results):
        saved = (by_arm["off"].prefill_seconds or 0.0) - (
            by_arm[found.gain.best].prefill_seconds or 0.0
        )
        assert whole == pytest.approx(saved, abs=1e-9)


def test_each_arm_serves_its_own_variant_of_the_traffic() -> None:
    """Two prompts of two blocks; what they share, apart in two scopes, they share when merged. Of
    one replica: a block of 8 tokens is shared only where both of its halves are."""
    requests: Requests = [(8, [0, 1]), (8, [2, 3])]
    told = Recorded(
        prompts=prompts_of(requests, 4),
        merged=prompts_of([(8, [0, 1]), (8, [0, 3])], 4),
        mended=prompts_of([(8, [0, 1]), (8, [0, 1])], 4),
    )
    wanted = arms("round-robin", "merged", "mended", "merged+block:8", "mended+block:8", "off")
    for clock in (CLOCK, None):
        setting = replace(SETTING, arms=wanted, replicas=1, clock=clock)
        found = {each.arm: each.cached_tokens for each in experiment(told, setting).results}
        assert found == {"round-robin": 0, "merged": 4, "mended": 8, "block:8+merged": 0,
                         "block:8+mended": 8, "off": 0}  # fmt: skip


def test_the_end_of_a_prompt_is_a_partial_block_of_larger_ones_too() -> None:
    """Of 12 tokens in three blocks, two of 8 tokens. Where the third is not told (14 tokens, whose
    last two have no name) what is left of the larger one is not known to be the same."""
    for tokens, cached in ((12, 12), (14, 8)):
        told = Recorded(prompts=prompts_of([(tokens, [0, 1, 2])] * 2, 4))
        setting = replace(SETTING, arms=arms("round-robin", "block:8"), replicas=1, clock=None)
        found = [each.cached_tokens for each in experiment(told, setting).results]
        assert found == [12, cached]


def test_an_arm_has_its_own_memory_and_replicas() -> None:
    """Three prompts of a block by turns: two blocks of memory lose each before it comes again,
    four do not; on three replicas each has one prompt only."""
    prompts = prompts_of([(4, [n % 3]) for n in range(6)], 4)
    wanted = arms("round-robin", "memory:2", "replicas:3", "off+memory:2")
    for clock in (CLOCK, None):
        setting = replace(SETTING, arms=wanted, replicas=1, capacity_blocks=2, clock=clock)
        found = experiment(Recorded(prompts=prompts), setting)
        cached = {each.arm: each.cached_tokens for each in found.results}
        assert cached == {"round-robin": 0, "memory:2": 12, "replicas:3": 12, "off+memory:2": 0}
        assert found.results[0].evicted_blocks == 4


def test_a_host_tier_gives_back_what_the_device_lost() -> None:
    """As above; with twice the device's memory below it nothing is computed again: each of three
    blocks is written there once, and stays there when it is loaded."""
    prompts = prompts_of([(4, [n % 3]) for n in range(6)], 4)
    setting = replace(SETTING, arms=arms("round-robin", "host:2", "host:0"), replicas=1,
                      capacity_blocks=2)  # fmt: skip
    plain, host, none = experiment(Recorded(prompts=prompts), setting).results
    assert (plain.cached_tokens, plain.loaded_tokens, plain.stored_tokens) == (0, 0, 0)
    assert (host.cached_tokens, host.loaded_tokens) == (12, 12)
    assert host.stored_tokens == 12
    assert none == replace(plain, arm="host:0")
    disk = Tier(name="disk", capacity_blocks=3, tokens_per_second=1000.0)
    below = replace(setting, arms=arms("round-robin", "host:1"), tiers=(disk,))
    one, both = experiment(Recorded(prompts=prompts), below).results
    assert (list(one.moved), list(both.moved)) == (["disk"], ["host", "disk"])
    assert one.moved["disk"] == Moved(loaded_tokens=12, stored_tokens=12)
    assert both.loaded_tokens == both.cached_tokens == 12
    labels = Labels(np.array([0, 1, 1, 0, 0, 0]), ["a", "b"])
    by = experiment(Recorded(prompts=prompts, tenant=labels), below).by["tenant"]
    assert [(each.group, each.arm, each.loaded_tokens) for each in by] == [
        ("a", "round-robin", 12), ("a", "host:1", 12), ("b", "round-robin", 0), ("b", "host:1", 0),
    ]  # fmt: skip


def test_idle_blocks_are_lost_after_their_lifetime() -> None:
    """One prompt every ten seconds: kept for 5 s it is never there, for 20 s always."""
    prompts = prompts_of([(4, [0])] * 4, 4, 10.0)
    wanted = replace(SETTING, arms=arms("round-robin", "ttl:5", "ttl:20"), replicas=1)
    found = experiment(Recorded(prompts=prompts), wanted)
    assert [each.cached_tokens for each in found.results] == [12, 0, 12]


@pytest.mark.parametrize(
    ("text", "change", "said"),
    [
        ("merged", {}, "arm merged: what trust scopes have in common is not known"),
        ("sticky+mended", {}, "arm sticky\\+mended: layout is told of requests of a store"),
        ("block:6", {}, "multiples of the recorded block of 4 tokens"),
        ("host:1", {"clock": None}, "need the clock"),
        ("ttl:9", {"clock": None}, "need the clock"),
        ("host:1", {"capacity_blocks": None}, "Give the capacity of a replica"),
        ("memory:2", {"capacity_blocks": None}, "Give the capacity of a replica"),
        ("ttl:9", {"tiers": (USUAL_HOST,)}, "not modelled together"),
        ("host:1", {"lifetime_seconds": 9.0}, "not modelled together"),
    ],
)
def test_what_traffic_or_setting_do_not_allow_is_told(
    text: str, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(NotAnArm, match=said):
        experiment(Recorded(prompts=two_conversations(1)),
                   replace(SETTING, arms=arms(text), **change))  # fmt: skip


def test_a_radix_tree_loses_whole_leaves_and_goes_untimed_only() -> None:
    """As in the test of trees: of the first prompt, which comes again, one page is left."""
    chains = [[0, 1, 2, 3], [0, 9], [0, 8, 7], [0, 1, 2, 3]]
    prompts = prompts_of([(4 * len(chain), chain) for chain in chains], 4)
    setting = replace(SETTING, arms=arms("off", "sticky"), clock=None, replicas=1,
                      capacity_blocks=6, cache="radix")  # fmt: skip
    found = experiment(Recorded(prompts=prompts), setting)
    assert [each.cached_tokens for each in found.results] == [0, 12]
    assert "whole leaves" in " ".join(setting.words())
    with pytest.raises(ValueError, match="by order of requests alone"):
        experiment(Recorded(prompts=prompts), replace(setting, clock=CLOCK))


def test_clients_send_when_their_last_request_ends() -> None:
    """One client: the second prompt waits for the first, which takes 4 ms, and finds it."""
    prompts = replace(prompts_of([(4, [0]), (4, [0])], 4), arrived=np.zeros(2))
    setting = replace(SETTING, arms=arms("sticky"), replicas=1)
    together = experiment(Recorded(prompts=prompts), setting).results[0]
    one_by_one = experiment(Recorded(prompts=prompts), replace(setting, clients=1)).results[0]
    assert together.ttft_seconds == pytest.approx({50: 0.004, 90: 0.004, 99: 0.004})
    assert one_by_one.ttft_seconds == pytest.approx({50: 0.0, 90: 0.004, 99: 0.004})
    assert "clients: 1" in " ".join(replace(setting, clients=1).words())


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
    more = " / ".join(
        replace(SETTING, arms=arms("host:0.5", "block:8"), lifetime_seconds=9.0).words()
    )
    for said in ("host:0.5 adds a host tier of 50 blocks", "a larger block", "kept for 9 s"):
        assert said in more
    assert "scored" not in more
    routed = replace(SETTING, arms=arms("bounded-load", "scored+memory:2"))
    routed = replace(routed, router=Router(name="sticky", prefix_blocks=3, slack=1.5))
    for setting, load in ((routed, "tokens to be computed"),
                          (replace(routed, clock=None), "tokens computed so far")):  # fmt: skip
        told = " / ".join(setting.words())
        for said in ("the first 3 blocks of a prompt", f"above 1.5 × the mean load ({load})",
                     f"scored goes by uncached tokens + 1 × load ({load})"):  # fmt: skip
            assert said in told


def test_an_experiment_needs_an_arm() -> None:
    with pytest.raises(ValueError, match="at least one arm"):
        experiment(Recorded(prompts=two_conversations(1)), replace(SETTING, arms=()))
