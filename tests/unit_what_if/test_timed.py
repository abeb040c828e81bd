"""Fleets with a clock, against a plain simulation of pools and events, and by hand."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.clock import MICROSECOND, Clock, Tier
from replay.clockwork import run
from replay.pools import FREE, IDLE, UNKNOWN, Pools, empty_pools
from replay.routers import ROUTERS, Router
from replay.rules import RULES
from replay.timed import serve_timed
from replay.traffic import Moments
from tests.unit_what_if.fleets import CLOCK, Requests, at, cached, conversations, fleet, ttft
from tests.unit_what_if.reference_fleet import PlainFleet

FULL, PARTIAL = RULES["full"], RULES["partial"]


@settings(max_examples=120, deadline=None)
@given(conversations(), st.data(), st.integers(1, 3), st.integers(1, 24),
       st.sampled_from([None, 8, 40]))  # fmt: skip
def test_every_request_is_served_as_plain_pools_serve_it(
    requests: Requests,
    data: st.DataObject,
    replicas: int,
    capacity: int,
    batched: int | None,
) -> None:
    count = len(requests)
    gaps = data.draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    outputs = data.draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    short = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    requests = [
        (tokens - less, chain) for (tokens, chain), less in zip(requests, short, strict=True)
    ]
    arrivals = np.cumsum(gaps).tolist()
    prompts = at(requests, [moment * MICROSECOND for moment in arrivals], outputs)
    clock = Clock(
        prefill_tokens_per_second=1e6 / 2, decode_seconds_per_token=3e-6, batched_tokens=batched
    )
    served = serve_timed(prompts, FULL, fleet("round-robin", replicas, capacity, clock=clock))
    plain = PlainFleet(replicas, capacity, 4, 2, 3, batched or 0)
    expected = plain.run(requests, arrivals, outputs)
    for number, outcome in enumerate(expected):
        if outcome.ttft is None:
            assert served.refused[number]
            continue
        assert served.cached_tokens[number] == outcome.cached_tokens
        assert round(served.ttft_seconds[number] / MICROSECOND) == outcome.ttft


@settings(max_examples=60, deadline=None)
@given(conversations(), st.sampled_from(ROUTERS), st.integers(1, 4), st.integers(4, 30),
       st.sampled_from([0.0, 0.5, None]), st.lists(st.sampled_from([0, 3, 50]), max_size=3),
       st.booleans(), st.sampled_from([None, 20]))  # fmt: skip
def test_a_replay_is_repeatable_and_within_its_bounds(
    requests: Requests,
    router: str,
    replicas: int,
    capacity: int,
    lag: float | None,
    below: list[int],
    through: bool,
    batched: int | None,
) -> None:
    clock = replace(
        CLOCK, summary_lag_seconds=lag, decode_seconds_per_token=0.1, batched_tokens=batched
    )
    tiers = tuple(
        Tier(name="below", capacity_blocks=size, tokens_per_second=1e4, writes_through=through)
        for size in below
    )
    prompts = at(requests, [0.01 * number for number in range(len(requests))], [3] * len(requests))
    wanted = fleet(router, replicas, capacity, clock=clock, tiers=tiers)
    served, again = (serve_timed(prompts, FULL, wanted) for _ in range(2))
    assert cached(served) == cached(again)
    assert served.replica.tolist() == again.replica.tolist()
    unlimited = serve_timed(prompts, FULL, fleet("round-robin", 1, 10**4))
    assert (served.cached_tokens <= FULL.of_blocks(4).ceiling_tokens(prompts.prompt_tokens)).all()
    assert (served.loaded_tokens <= served.cached_tokens).all()
    least = (prompts.prompt_tokens - served.cached_tokens) / 1000
    assert (served.prefill_seconds[~served.refused] >= least[~served.refused] - 1e-6).all()
    assert (unlimited.ttft_seconds >= 0).all()


@settings(max_examples=80, deadline=None)
@given(conversations(), st.sampled_from(ROUTERS), st.integers(1, 3), st.integers(4, 30),
       st.sampled_from([None, 20]),
       st.lists(st.floats(0, 0.5), max_size=3))  # fmt: skip
def test_t103_no_slot_is_lost_and_none_is_used_twice(
    requests: Requests,
    router: str,
    replicas: int,
    capacity: int,
    batched: int | None,
    resets: list[float],
) -> None:
    """At the end nothing runs: every slot is free, or idle with a block that is found in it or
    was generated."""
    made: list[Pools] = []

    def kept(*sizes: int) -> Pools:
        made.append(empty_pools(*sizes))
        return made[-1]

    moments = Moments.of([(number % replicas, moment) for number, moment in enumerate(resets)])
    wanted = fleet(router, replicas, capacity, resets=moments,
                   clock=replace(CLOCK, batched_tokens=batched))  # fmt: skip
    prompts = at(requests, [0.01 * number for number in range(len(requests))], [6] * len(requests))
    with patch("replay.timed.empty_pools", kept):
        serve_timed(prompts, FULL, wanted)
    (pools,) = made
    assert (pools.holders == 0).all()
    slots = pools.block.shape[1]
    assert (pools.counts[:, FREE] + pools.counts[:, IDLE] == slots).all()
    for replica in range(replicas):
        named = np.flatnonzero(pools.block[replica] >= 0)
        answers = np.count_nonzero(pools.block[replica] == UNKNOWN)
        assert len(named) + answers == pools.counts[replica, IDLE] <= capacity
        assert (pools.slot[pools.block[replica][named], replica] == named).all()
        assert (pools.slot[:, replica] >= 0).sum() == len(named)


def test_t101_blocks_can_be_found_once_their_prefill_ends() -> None:
    """1,025 tokens take 1.025 s. The same prompt 0.1 s later waits for it, and then finds all but
    the last token; on another replica at that time, it finds nothing."""
    chain = list(range(65))
    prompts = at([(1025, chain), (1025, chain)], [0.0, 0.1], block=16)
    served = serve_timed(prompts, FULL, fleet())
    assert cached(served) == [0, 1024]
    assert ttft(served) == [1.025, 0.926]
    assert cached(serve_timed(prompts, FULL, fleet(replicas=2))) == [0, 0]


def test_two_that_wait_together_share_what_the_first_computes() -> None:
    """Prefill is one by one: the second looks up when the first is done."""
    prompts = at([(9, [0, 1, 2]), (9, [0, 1, 3])], [0.0, 0.0])
    assert cached(serve_timed(prompts, FULL, fleet())) == [0, 8]


def test_prompts_that_wait_are_computed_in_one_step_and_ready_together() -> None:
    """8 tokens are under way until 10 ms, 2 of which every step costs. 8 and 4 go into the next
    step, to 24 ms, and 8 more are too many for it: 34 ms. The 4 are what is left of 8, whose first
    block is computed in the same step."""
    clock = replace(CLOCK, prefill_overhead_seconds=0.002, batched_tokens=16)
    prompts = at([(8, [0, 1]), (8, [2, 3]), (8, [2, 6]), (8, [4, 5])], [0.0, 0.001, 0.002, 0.003])
    served = serve_timed(prompts, FULL, fleet(clock=clock))
    assert ttft(served) == [0.01, 0.023, 0.022, 0.031]
    assert cached(served) == [0, 0, 4, 0]
    assert [round(own, 6) for own in served.prefill_seconds] == [0.01, 0.01, 0.004, 0.01]


def test_prompts_that_are_found_whole_go_one_after_the_other_too() -> None:
    """8 tokens until 10 ms, 2 of which every prefill costs. The same three times, all of it found,
    takes 2 ms each; where steps take several prompts, all three together."""
    prompts = at([(8, [0, 1])] * 4, [0.0, 0.001, 0.002, 0.003])
    for batched, expected in ((None, [0.01, 0.011, 0.012, 0.013]), (8, [0.01, 0.011, 0.01, 0.009])):
        clock = replace(CLOCK, prefill_overhead_seconds=0.002, batched_tokens=batched)
        served = serve_timed(prompts, PARTIAL, fleet(clock=clock))
        assert cached(served) == [0, 8, 8, 8]
        assert ttft(served) == expected


def test_a_prefill_holds_up_what_decodes_beside_it() -> None:
    """A decodes 4 tokens of 10 ms from 4 ms on. B's prefill, until 104 ms, lets it have one of them
    in that time, so that it ends at 134 instead of 44 ms. Only two run at once: C, 8 tokens, waits
    for that from 50 ms on. In steps of 50 tokens A gets two of them there, and ends at 124 ms."""
    prompts = at([(4, [0]), (100, list(range(10, 35))), (8, [1, 2])], [0.0, 0.0, 0.05], [5, 99, 0])
    for batched, expected in ((None, 0.092), (50, 0.082)):
        clock = replace(
            CLOCK, decode_seconds_per_token=0.01, most_running=2, batched_tokens=batched
        )
        assert ttft(serve_timed(prompts, FULL, fleet(clock=clock)))[2] == expected


def test_an_answer_takes_memory_until_its_turn_comes() -> None:
    """Four blocks fit. A leaves its block and the two it filled with its answer; B takes the free
    one; C pushes out the end of A's answer, being released first, and then A is still found."""
    prompts = at([(4, [0]), (4, [1]), (4, [2]), (5, [0])], [0.0, 1.0, 2.0, 3.0], [9, 0, 0, 0])
    served = serve_timed(prompts, FULL, fleet(capacity=4))
    assert cached(served) == [0, 0, 0, 4]
    assert served.evicted_blocks.tolist() == [2]  # the last request needs a block too


@pytest.mark.parametrize("capacity", [None, 10**6, 8_000])
def test_a_cache_that_is_never_full_loses_nothing_to_answers(capacity: int | None) -> None:
    """300 answers of 100 tokens fill 25 blocks each, 7,500 in all, behind prompts of one block."""
    requests: Requests = [(5, [number]) for number in [*range(300), 0]]
    prompts = at(requests, [float(number) for number in range(301)], [100] * 301)
    wanted = replace(fleet(clock=replace(CLOCK, most_running=1)), capacity_blocks=capacity)
    served = serve_timed(prompts, FULL, wanted)
    assert cached(served)[-1] == 4
    assert served.evicted_blocks.tolist() == [0]
    smaller = serve_timed(prompts, FULL, replace(wanted, capacity_blocks=7_000))
    assert cached(smaller)[-1] == 0


def test_columns_that_cannot_be_written_are_compiled_for_no_more_than_others() -> None:
    """Arrow's columns are such, and Numba compiles all of the clock anew for another type."""
    prompts = at([(9, [0, 1, 2]), (9, [0, 1, 2])], [0.0, 1.0])
    assert cached(serve_timed(prompts, FULL, fleet())) == [0, 8]
    known = len(run.signatures)  # type: ignore[attr-defined]
    for column in (prompts.arrived, prompts.prompt_tokens, prompts.output_tokens, prompts.blocks,
                   prompts.starts):  # fmt: skip
        column.flags.writeable = False
    assert cached(serve_timed(replace(prompts), FULL, fleet())) == [0, 8]
    assert len(run.signatures) == known  # type: ignore[attr-defined]


@pytest.mark.parametrize(("moment", "replica"), [(2.1, 0), (2.5, 1), (3.0, 1)])
def test_a_router_hears_late_of_what_was_lost_too(moment: float, replica: int) -> None:
    """Three prompts by turns, each with a block; the third pushes that of the first out of replica
    0 at 2 s. Until half a second later it is believed to be there still."""
    prompts = at([(5, [0]), (5, [1]), (5, [2]), (5, [0])], [0.0, 1.0, 2.0, moment])
    clock = replace(CLOCK, summary_lag_seconds=0.5)
    served = serve_timed(prompts, FULL, fleet("longest-prefix", 2, 2, clock=clock))
    assert served.replica.tolist() == [0, 1, 0, replica]
    assert cached(served) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("lag", "moment", "replica"),
    [(0.0, 1.005, 0), (0.0, 1.006, 1), (0.5, 1.006, 0), (0.5, 1.505, 0), (0.5, 1.506, 1)],
)
def test_a_router_hears_late_of_what_expired_too(lag: float, moment: float, replica: int) -> None:
    """A's block is there from 5 ms on and idle for a second. Until half a second later it is
    believed to be there still; then replicas are alike, and it is the turn of 1."""
    prompts = at([(5, [0]), (5, [0])], [0.0, moment])
    clock = replace(CLOCK, summary_lag_seconds=lag)
    wanted = fleet("longest-prefix", 2, 9, clock=clock, lifetime_seconds=1.0)
    served = serve_timed(prompts, FULL, wanted)
    assert served.replica.tolist() == [0, replica]
    assert cached(served) == [0, 4 if moment == 1.005 else 0]
    assert served.evicted_blocks.tolist() == [0, 0]  # none had to make room


@settings(max_examples=40, deadline=None)
@given(conversations(), st.sampled_from(["scored", "longest-prefix"]), st.integers(4, 24),
       st.sampled_from([0.03, 0.1]))  # fmt: skip
def test_who_hears_at_once_goes_where_one_that_sees_does(
    requests: Requests, router: str, capacity: int, lifetime: float
) -> None:
    """Arrivals and what follows from them are 7 microseconds apart at least, and 3 are no time:
    being told of what comes, is lost and expires is worth as much as looking."""
    arrivals = [number * 0.010007 for number in range(len(requests))]
    prompts = at(requests, arrivals, [2] * len(requests))
    told, seeing = (
        serve_timed(prompts, FULL, fleet(router, 3, capacity, lifetime_seconds=lifetime,
                                         clock=replace(CLOCK, summary_lag_seconds=lag)))
        for lag in (3e-6, 0.0)
    )  # fmt: skip
    assert told.replica.tolist() == seeing.replica.tolist()
    assert cached(told) == cached(seeing)


def test_what_a_request_holds_outlives_its_lifetime() -> None:
    """Idle blocks are kept for a second. A decodes until 2.008 s; B finds its prompt at 2 s, and
    C, 1.5 s after both are over, nothing."""
    prompts = at([(8, [0, 1]), (9, [0, 1]), (9, [0, 1])], [0.0, 2.0, 3.509], [3, 0, 0])
    clock = replace(CLOCK, decode_seconds_per_token=1.0)
    served = serve_timed(prompts, FULL, fleet(clock=clock, lifetime_seconds=1.0))
    assert cached(served) == [0, 8, 0]


def test_a_cache_that_is_off_finds_nothing() -> None:
    prompts = at([(9, [0, 1, 2])] * 3, [0.0, 1.0, 2.0])
    served = serve_timed(prompts, FULL, fleet(caches=False))
    assert cached(served) == [0, 0, 0]
    assert ttft(served) == [0.009, 0.009, 0.009]


def test_a_running_request_keeps_its_memory() -> None:
    """Six blocks. A holds three of them for its answer until 0.108 s; B needs four, so it waits."""
    clock = replace(CLOCK, decode_seconds_per_token=0.1)
    prompts = at([(8, [0, 1]), (16, [2, 3, 4, 5])], [0.0, 0.001], [2, 0])
    served = serve_timed(prompts, FULL, fleet(capacity=6, clock=clock))
    assert ttft(served) == [0.008, 0.123]  # 0.108 + 0.016 - 0.001


def test_what_fits_no_replica_is_refused_and_stops_nobody() -> None:
    prompts = at([(40, list(range(10))), (8, [20, 21])], [0.0, 0.0])
    served = serve_timed(prompts, FULL, fleet(capacity=9))
    assert served.refused.tolist() == [True, False]
    assert np.isnan(served.ttft_seconds[0])
    assert ttft(served)[1] == 0.008


def test_least_loaded_goes_where_less_is_to_be_computed() -> None:
    """40 tokens are under way on replica 0, so the next two go to 1, which has 8 and then 16."""
    prompts = at([(40, list(range(10))), (8, [20, 21]), (8, [22, 23])], [0.0, 0.001, 0.002])
    assert serve_timed(prompts, FULL, fleet("least-loaded", 2)).replica.tolist() == [0, 1, 1]


def test_routers_learn_late_and_guess_wrong() -> None:
    """A on replica 0, another prompt on 1. B makes 0 the loaded one, when a router that sees the
    caches sends A again to 0. Told 5 s late it believes both empty and takes the idle 1; guessing,
    it knows where it sent A."""
    requests = [(9, [0, 1, 2]), (4, [7]), (4, [5]), (9, [0, 1, 2])]
    prompts = at(requests, [0.0, 0.5, 1.0, 1.001])

    def replicas(lag: float | None) -> list[int]:
        clock = replace(CLOCK, summary_lag_seconds=lag)
        found = serve_timed(prompts, FULL, fleet("scored", 2, clock=clock))
        return [int(replica) for replica in found.replica]

    assert replicas(0.0) == [0, 1, 0, 0]
    assert replicas(None) == [0, 1, 0, 0]
    assert replicas(5.0) == [0, 1, 0, 1]


def test_a_guess_does_not_know_of_evictions() -> None:
    """Two blocks fit. B pushes A out of replica 0; a router that is told sends A to the other one
    while 0 has work, one that guesses still sends it to 0."""
    requests = [(5, [0]), (4, [7]), (8, [3, 4]), (4, [8]), (2, [9]), (5, [0])]
    prompts = at(requests, [0.0, 0.5, 1.0, 1.5, 2.0, 2.001])

    def last(lag: float | None) -> tuple[int, int]:
        clock = replace(CLOCK, summary_lag_seconds=lag)
        found = serve_timed(prompts, PARTIAL, fleet("scored", 2, 2, clock=clock))
        assert found.replica[:5].tolist() == [0, 1, 0, 1, 0]
        return int(found.replica[5]), int(found.cached_tokens[5])

    assert last(0.0) == (1, 0)
    assert last(None) == (0, 0)


def test_a_reset_forgets_and_a_lifetime_ends() -> None:
    prompts = at([(9, [0, 1, 2])] * 3, [0.0, 10.0, 20.0])
    assert cached(serve_timed(prompts, FULL, fleet())) == [0, 8, 8]
    resets = Moments.of([(0, 15.0)])
    assert cached(serve_timed(prompts, FULL, fleet(resets=resets))) == [0, 8, 0]
    assert cached(serve_timed(prompts, FULL, fleet(lifetime_seconds=5.0))) == [0, 0, 0]
    assert cached(serve_timed(prompts, FULL, fleet(lifetime_seconds=10.0))) == [0, 8, 8]


def test_a_reset_while_a_request_runs_forgets_what_it_holds() -> None:
    """And at its end its blocks are nameless, so that their memory is free."""
    clock = replace(CLOCK, decode_seconds_per_token=1.0)
    prompts = at([(8, [0, 1]), (8, [0, 1])], [0.0, 10.0], [5, 0])
    served = serve_timed(
        prompts, PARTIAL, fleet(capacity=4, clock=clock, resets=Moments.of([(0, 2.0)]))
    )
    assert cached(served) == [0, 0]


def test_what_expired_once_can_be_found_again_when_it_is_computed_anew() -> None:
    prompts = at([(8, [0, 1])] * 4, [0.0, 20.0, 21.0, 22.0])
    served = serve_timed(prompts, PARTIAL, fleet(capacity=5, lifetime_seconds=10.0))
    assert cached(served) == [0, 0, 8, 8]


def test_an_idle_fleet_is_not_piled_onto_its_first_replica() -> None:
    """Four requests, each alone: every one finds all replicas without load."""
    prompts = at([(4, [block]) for block in range(4)], [0.0, 10.0, 20.0, 30.0])
    for router in ("least-loaded", "scored", "longest-prefix"):
        served = serve_timed(prompts, FULL, fleet(router, 4))
        assert sorted(served.replica.tolist()) == [0, 1, 2, 3]


def test_or_it_is_where_the_first_of_equals_is_taken() -> None:
    """As it is left without load each time; by turns or by name it is another matter."""
    prompts = at([(4, [block]) for block in range(4)], [0.0, 10.0, 20.0, 30.0])
    for name in ROUTERS:
        turns = fleet(name, 4)
        first = replace(turns, router=Router(name=name, takes_turns=False))
        served, by_turns = (serve_timed(prompts, FULL, each) for each in (first, turns))
        if name in ("least-loaded", "scored", "longest-prefix"):
            assert served.replica.tolist() == [0, 0, 0, 0]
        else:
            assert served.replica.tolist() == by_turns.replica.tolist()


def test_a_prompt_without_tokens_is_served_at_once() -> None:
    served = serve_timed(at([(0, []), (4, [0])], [0.0, 0.0]), FULL, fleet())
    assert served.refused.tolist() == [False, False]
    assert ttft(served) == [0.0, 0.004]


def test_a_router_may_go_by_requests_under_way_until_their_last_token() -> None:
    """A decodes on replica 0 to the end, B is soon over on 1. By tokens to be computed both are
    idle when C comes, which is then the turn of 0; by requests 1 alone is."""
    prompts = at([(4, [0]), (4, [1]), (4, [2])], [0.0, 1.0, 2.0], [100, 0, 0])
    clock = replace(CLOCK, decode_seconds_per_token=0.1)
    for name in ("least-loaded", "scored"):
        by_tokens = fleet(name, 2, clock=clock)
        by_requests = replace(by_tokens, router=Router(name=name, counts_requests=True))
        assert serve_timed(prompts, FULL, by_tokens).replica.tolist() == [0, 1, 0]
        assert serve_timed(prompts, FULL, by_requests).replica.tolist() == [0, 1, 1]


def test_at_most_so_many_run_at_once() -> None:
    """One at a time: the second waits for the answer of the first, 9 tokens after its first."""
    clock = replace(CLOCK, decode_seconds_per_token=0.1, most_running=1)
    prompts = at([(4, [0]), (4, [1])], [0.0, 0.0], [10, 0])
    assert ttft(serve_timed(prompts, FULL, fleet(clock=clock))) == [0.004, 0.908]


def test_clients_send_their_next_request_when_the_last_one_ends() -> None:
    """Two clients, two replicas, prefills of 4 ms: 0 and 1 at once, 2 and 3 at 4 ms, whatever the
    times of the trace; a request that is refused lets its client go on."""
    prompts = at([(4, [0]), (4, [1]), (40, list(range(10, 20))), (4, [2]), (4, [3])], [9.0] * 5)
    served = serve_timed(prompts, FULL, fleet(replicas=2, capacity=5, clients=2))
    assert served.refused.tolist() == [False, False, True, False, False]
    assert [round(seconds, 6) for seconds in served.ttft_seconds[[0, 1, 3, 4]]] == [0.004] * 4
    one = serve_timed(prompts, FULL, fleet(capacity=5, clients=2))
    assert ttft(one)[1] == 0.008  # both clients at once, one replica


def test_wrong_settings_are_refused() -> None:
    for wrong in (
        {"prefill_tokens_per_second": 0.0},
        {"prefill_tokens_per_second": 1.0, "most_running": 0},
    ):
        with pytest.raises(ValueError, match="at least"):
            Clock(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        fleet(capacity=0)
    with pytest.raises(ValueError, match="batched_tokens"):
        replace(CLOCK, batched_tokens=0)
    tier = Tier(name="host", capacity_blocks=1, tokens_per_second=1.0)
    with pytest.raises(ValueError, match="not modelled together"):
        fleet(tiers=(tier,), lifetime_seconds=1.0)
    with pytest.raises(ValueError, match="speed"):
        Tier(name="disk", capacity_blocks=1, tokens_per_second=0.0)
