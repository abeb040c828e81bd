"""Real runs of two vLLM replicas behind two routers, three arms each, against the model.

48 requests of about 1,580 tokens, two at a time, eight system prompts; a replica holds about five
of them (260 blocks of 32, one of which is never used).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from replay.clock import Clock
from replay.lru import modelled_cached_tokens
from replay.routers import Router
from replay.rules import RULES
from replay.timed import Fleet, Timed, serve_timed
from replay.traffic import Numbers
from tests.unit_causes.captured import BLOCK_TOKENS, cached_of, rows_of, traffic_of
from tests.unit_what_if.captured_prompts import prompts_of_rows

USABLE_BLOCKS = 259
RUNS = ("vllm-0.32.0-x2-sglang-router-0.3.2", "vllm-0.32.0-x2-vllm-router-0.1.17")
FULL = RULES["full"].of_blocks(BLOCK_TOKENS)
# Both real routers go by the longest match and look at load only where nothing matches or where it
# is very uneven: the weight of a token of load is small.
CACHE_FIRST = Router(name="round-robin", load_weight=0.1)
ARMS = {"off": "round-robin", "round-robin": "round-robin", "cache-aware": "scored"}

Row = dict[str, Any]


def predicted(rows: list[Row]) -> Numbers:
    """Cached tokens if each replica is a pool by itself, asked in the order of sending."""
    replica = np.array([row["replica"] for row in rows])
    return modelled_cached_tokens(traffic_of(rows, replica), FULL, USABLE_BLOCKS)


def ratio(cached: Numbers, rows: list[Row]) -> float:
    return int(cached.sum()) / sum(row["usage"]["prompt_tokens"] for row in rows)


@pytest.mark.parametrize("run", RUNS)
def test_given_the_replica_every_request_of_the_cache_aware_run_is_predicted(run: str) -> None:
    rows = rows_of(f"{run}/cache-aware")
    observed = np.array([cached_of(row) for row in rows])
    assert len(rows) == 48
    assert (predicted(rows) == observed).all()


@pytest.mark.parametrize("run", RUNS)
def test_given_the_replica_round_robin_is_predicted_within_a_point_and_a_half(run: str) -> None:
    """Two requests are under way at a time, so order alone cannot tell every one."""
    rows = rows_of(f"{run}/round-robin")
    observed = np.array([cached_of(row) for row in rows])
    assert ratio(predicted(rows), rows) == pytest.approx(ratio(observed, rows), abs=0.015)


def calibrated(off: list[Row]) -> Clock:
    """From the run without caching alone. A generated token takes the median of the time behind the
    first, and is what one step of the engine costs whatever it computes: a prefill takes at least
    that, and the rest of the median time to the first token is its tokens'. Both routers remember
    what they sent where (their trees are of texts and tokens they saw), so they guess."""
    tokens = float(np.median([row["usage"]["prompt_tokens"] for row in off]))
    first = float(np.median([row["ttft_s"] for row in off]))
    step = float(np.median([(row["total_s"] - row["ttft_s"])
                            / (row["usage"]["completion_tokens"] - 1) for row in off]))  # fmt: skip
    return Clock(
        prefill_tokens_per_second=tokens / (first - step),
        prefill_overhead_seconds=step,
        decode_seconds_per_token=step,
        summary_lag_seconds=None,
    )


def modelled(run: str) -> dict[str, Timed]:
    """The arms, routed and timed by the model: what it knows are the prompts and the arm without
    caching."""
    off = rows_of(f"{run}/off")
    prompts = prompts_of_rows(sorted(off, key=lambda row: int(row["index"])))
    fleets = {
        arm: Fleet(replicas=2, capacity_blocks=USABLE_BLOCKS, clock=calibrated(off),
                   router=replace(CACHE_FIRST, name=router), caches=arm != "off", clients=2)
        for arm, router in ARMS.items()
    }  # fmt: skip
    return {arm: serve_timed(prompts, FULL, fleet) for arm, fleet in fleets.items()}


def test_told_how_a_router_counts_and_ties_the_model_goes_where_it_went() -> None:
    """vllm-router goes by requests under way and takes the first of equals. Who is first answered
    differs from the model's clock in time, so that not every later request goes where it went."""
    run = RUNS[1]
    real, off = (sorted(rows_of(f"{run}/{arm}"), key=lambda row: int(row["index"]))
                 for arm in ("cache-aware", "off"))  # fmt: skip
    router = Router(name="scored", counts_requests=True, takes_turns=False)
    fleet = Fleet(replicas=2, capacity_blocks=USABLE_BLOCKS, clock=calibrated(off), router=router,
                  clients=2)  # fmt: skip
    found = serve_timed(prompts_of_rows(off), FULL, fleet)
    replicas = [row["replica"] for row in real]
    assert found.replica[:14].tolist() == replicas[:14]
    assert np.bincount(found.replica).tolist() == np.bincount(replicas).tolist() == [24, 24]
    assert found.cached_tokens.sum() == sum(cached_of(row) for row in real)


@pytest.mark.parametrize("run", RUNS)
def test_routed_and_timed_by_the_model_the_arms_come_out_as_they_ran(run: str) -> None:
    """Hit ratio within three points an arm, arms in their order by time to first token, and what
    each wins within half of it again on average, and within a factor of two on its median: the
    servers stalled for about a second in many of their steps, whatever these computed, so that
    really a hit takes a tenth of a second or a whole one. A speed calibrated without hits cannot
    tell a stall from computing."""
    found = modelled(run)
    real = {arm: rows_of(f"{run}/{arm}") for arm in ARMS}
    for arm, rows in real.items():
        observed = ratio(np.array([cached_of(row) for row in rows]), rows)
        assert ratio(found[arm].cached_tokens, rows) == pytest.approx(observed, abs=0.03), arm
    for middle, factor in ((np.mean, 1.5), (np.median, 2.0)):
        model = {arm: float(middle(each.ttft_seconds)) for arm, each in found.items()}
        seen = {arm: float(middle([row["ttft_s"] for row in real[arm]])) for arm in ARMS}
        for order in (model, seen):
            assert sorted(order, key=order.__getitem__) == ["cache-aware", "round-robin", "off"]
        for arm in ("round-robin", "cache-aware"):
            won, really = (each["off"] - each[arm] for each in (model, seen))
            assert really / factor < won < really * factor, (arm, model, seen)
