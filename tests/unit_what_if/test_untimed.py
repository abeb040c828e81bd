"""Fleets by order of requests alone, against plain caches and against public figures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixscope.traces.file import read_trace
from replay.curve import curve_of_replicas
from replay.prompts import Prompts
from replay.routers import ROUTERS, Router
from replay.rules import RULES
from replay.untimed import Served, serve
from tests.log_path import SHARED
from tests.unit_curve.test_curve import CAPACITIES, KNOWN
from tests.unit_what_if.fleets import PlainCache, Requests, conversations, prompts_of

TRACE = SHARED / "traces" / "mooncake-fast25" / "conversation_trace.jsonl.gz"
PARTIAL, FULL = RULES["partial"], RULES["full"]


def run(prompts: Prompts, router: str, replicas: int, capacity: int | None) -> Served:
    return serve(prompts, PARTIAL, Router(name=router), replicas, capacity)


@settings(max_examples=80, deadline=None)
@given(conversations(), st.sampled_from(ROUTERS), st.integers(1, 4), st.integers(1, 20))
def test_every_router_serves_what_plain_caches_hold(
    requests: Requests, router: str, replicas: int, capacity: int
) -> None:
    served = run(prompts_of(requests, 4), router, replicas, capacity)
    caches = [PlainCache(capacity) for _ in range(replicas)]
    for number, (_, chain) in enumerate(requests):
        cache = caches[served.replica[number]]
        assert served.cached_tokens[number] == 4 * cache.found(chain)
        if router == "longest-prefix":
            assert cache.found(chain) == max(each.found(chain) for each in caches)
        if router == "round-robin":
            assert served.replica[number] == number % replicas
        cache.keep(chain)


@settings(max_examples=60, deadline=None)
@given(conversations(), st.sampled_from(ROUTERS), st.integers(1, 4), st.integers(1, 20))
def test_tokens_are_conserved_and_a_replay_is_repeatable(
    requests: Requests, router: str, replicas: int, capacity: int
) -> None:
    prompts = prompts_of(requests, 4)
    served, again = (run(prompts, router, replicas, capacity) for _ in range(2))
    assert (served.replica == again.replica).all()
    assert (served.cached_tokens == again.cached_tokens).all()
    whole = int(prompts.prompt_tokens.sum())
    assert served.computed_tokens.sum() + served.cached_tokens.sum() == whole
    assert (served.cached_tokens <= prompts.prompt_tokens).all()


@settings(max_examples=60, deadline=None)
@given(conversations(), st.integers(1, 4), st.integers(1, 20))
def test_round_robin_is_the_curve_of_so_many_replicas(
    requests: Requests, replicas: int, capacity: int
) -> None:
    prompts = prompts_of(requests, 4)
    for rule in (PARTIAL, FULL):
        served = serve(prompts, rule, Router(name="round-robin"), replicas, capacity)
        found = curve_of_replicas(prompts, rule, replicas)
        assert int(served.cached_tokens.sum()) == found.tokens_at(capacity)


def test_t88_one_conversation_loses_to_routing_what_sticky_keeps() -> None:
    """Nine turns of 1,000 to 1,800 tokens, blocks of 100: 10,800 of 12,600 on one replica or by
    session, 7,500 by turns over three."""
    requests = [(100 * turn, list(range(turn))) for turn in range(10, 19)]
    prompts = prompts_of(requests, 100)
    cached = {
        (router, replicas): int(run(prompts, router, replicas, None).cached_tokens.sum())
        for router, replicas in (("round-robin", 1), ("sticky", 3), ("round-robin", 3))
    }
    assert cached == {("round-robin", 1): 10_800, ("sticky", 3): 10_800, ("round-robin", 3): 7_500}


def test_t104_the_unlimited_bound_stands_beside_what_fits() -> None:
    """A and B by turns, five each: 80 % could be found, nothing with room for one of them."""
    chains = [list(range(10)), list(range(10, 20))]
    prompts = prompts_of([(1000, chains[turn % 2]) for turn in range(10)], 100)
    assert run(prompts, "round-robin", 1, None).token_hit_ratio == 0.8
    assert run(prompts, "round-robin", 1, 10).token_hit_ratio == 0.0


def test_t99_a_hit_ends_at_the_first_missing_block() -> None:
    """2, 3 are there behind another block; of 1, 2, 3 nothing is found."""
    prompts = prompts_of([(8, [2, 3]), (12, [1, 2, 3])], 4)
    assert run(prompts, "round-robin", 1, None).cached_tokens.tolist() == [0, 0]


def test_t100_every_request_counts_once() -> None:
    """1,000 tokens of which 400 are found are 1,000 and 400, however many steps computed them."""
    prompts = prompts_of([(400, list(range(4))), (1000, list(range(10)))], 100)
    served = run(prompts, "round-robin", 1, None)
    assert (served.prompt_tokens[1], served.cached_tokens[1]) == (1000, 400)
    assert served.computed_tokens.tolist() == [400 + 600]


@settings(max_examples=60, deadline=None)
@given(conversations(), st.integers(1, 4), st.integers(1, 20))
def test_t103_a_finite_cache_never_beats_an_unlimited_one(
    requests: Requests, replicas: int, capacity: int
) -> None:
    prompts = prompts_of(requests, 4)
    finite = run(prompts, "round-robin", replicas, capacity).cached_tokens
    assert (finite <= run(prompts, "round-robin", replicas, None).cached_tokens).all()


def test_sessions_keep_together_what_prefixes_would_part() -> None:
    requests = [(8, [2 * number, 2 * number + 1]) for number in range(6)]
    sessions = np.array([3, 3, 3, 99, 99, 99], np.uint64)
    served = serve(
        prompts_of(requests, 4), PARTIAL, Router(name="session"), 8, None, sessions=sessions
    )
    assert len(set(served.replica[:3].tolist())) == len(set(served.replica[3:].tolist())) == 1


def test_less_than_one_replica_or_block_is_refused() -> None:
    prompts = prompts_of([(4, [0])], 4)
    for replicas, capacity in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            run(prompts, "random", replicas, capacity)
    with pytest.raises(ValueError, match="lifetime"):
        serve(prompts, RULES["anthropic"], Router(name="random"), 1, 1)


@pytest.mark.skipif(not TRACE.exists(), reason="the public traces are not beside the project")
def test_the_conversation_trace_on_four_replicas_of_5000_blocks() -> None:
    """Known from other implementations: round robin to four digits, every request on one replica
    where the longest prefix decides, and what routing by prefix and load wins."""
    prompts = read_trace([TRACE]).prompts
    found = {name: run(prompts, name, 4, 5_000) for name in ROUTERS}
    ratios = {name: served.token_hit_ratio or 0 for name, served in found.items()}
    spread = {name: served.imbalance_ratio or 0 for name, served in found.items()}
    assert round(ratios["round-robin"], 4) == 0.1239
    assert round(ratios["longest-prefix"], 4) == 0.1140
    assert round(spread["longest-prefix"], 2) == 4.00
    assert ratios["sticky"] == pytest.approx(0.29, abs=0.015)
    assert ratios["scored"] == pytest.approx(0.244, abs=0.006)
    assert min(ratios["bounded-load"], ratios["scored"]) > 0.22
    assert max(spread["sticky"], spread["bounded-load"], spread["scored"]) < 1.2
    full = serve(prompts, FULL, Router(name="round-robin"), 4, 5_000)
    assert round(full.token_hit_ratio or 0, 4) == 0.1260
    for rule, unlimited in ((PARTIAL, 0.1956), (FULL, 0.1955)):
        served = serve(prompts, rule, Router(name="round-robin"), 4, None)
        assert round(served.token_hit_ratio or 0, 4) == unlimited


@pytest.mark.skipif(not TRACE.exists(), reason="the public traces are not beside the project")
@pytest.mark.parametrize("rule", KNOWN)
def test_one_replica_to_six_digits_as_the_curve_has_it(rule: str) -> None:
    prompts = read_trace([TRACE]).prompts
    for capacity, known in zip((None, *CAPACITIES), KNOWN[rule], strict=True):
        served = serve(prompts, RULES[rule], Router(name="round-robin"), 1, capacity)
        assert round(served.token_hit_ratio or 0, 6) == known
