"""Arms on real traffic: the first requests of Mooncake's conversation trace."""

from itertools import pairwise

import numpy as np
import pytest

from prefixscope.traces.file import read_trace
from replay.arms import Arm, arm_named, swept
from replay.clock import Clock
from replay.curve import curve_of_replicas
from replay.experiment import experiment
from replay.recorded import Recorded
from replay.routers import ROUTERS
from replay.rules import RULES
from replay.serving import ArmResult
from replay.setting import Setting
from tests.log_path import SHARED

TRACE = SHARED / "traces" / "mooncake-fast25" / "conversation_trace.jsonl.gz"
REQUESTS, REPLICAS, CAPACITY_BLOCKS = 2_000, 4, 1_000
RULE = RULES["full"].of_blocks(512)
CLOCK = Clock(prefill_tokens_per_second=30_000.0, decode_seconds_per_token=0.02)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    if not TRACE.is_file():
        pytest.skip(f"public traces are not there: {TRACE}")
    prompts = read_trace([TRACE]).prompts
    return Recorded(prompts=prompts.picked(np.arange(len(prompts)) < REQUESTS))


def results(recorded: Recorded, arms: tuple[Arm, ...], clock: Clock | None) -> dict[str, ArmResult]:
    setting = Setting(arms=arms, rule=RULE, replicas=REPLICAS, capacity_blocks=CAPACITY_BLOCKS,
                      clock=clock)  # fmt: skip
    return {each.arm: each for each in experiment(recorded, setting).results}


def test_memory_untimed_is_read_off_the_curve(recorded: Recorded) -> None:
    """By order alone round robin at ½, 1, 2 and 4 times the memory is what stack distances say."""
    found = results(recorded, swept("memory", 512, False), None)
    curve = curve_of_replicas(recorded.prompts, RULE, REPLICAS)
    assert {name: each.cached_tokens for name, each in found.items()} == {
        "round-robin": curve.tokens_at(1_000), "memory:0.5": curve.tokens_at(500),
        "memory:2": curve.tokens_at(2_000), "memory:4": curve.tokens_at(4_000),
    }  # fmt: skip


def test_larger_memory_and_larger_tiers_find_more(recorded: Recorded) -> None:
    found = results(recorded, (*swept("memory", 512, False), *swept("host", 512, False)), CLOCK)
    sizes = ("memory:0.5", "round-robin", "memory:2", "memory:4")
    below = ("round-robin", "host:0.5", "host:1", "host:2", "host:4")
    for names in (sizes, below):
        cached = [found[name].cached_tokens for name in names]
        assert all(less < more for less, more in pairwise(cached)), names
    for name in below[1:]:
        assert 0 < found[name].loaded_tokens <= found[name].stored_tokens


def test_off_finds_nothing_and_no_router_beats_the_bound(recorded: Recorded) -> None:
    arms = (Arm(caches=False), *(Arm(router=router) for router in ROUTERS),
            *map(arm_named, ("off+memory:2", "off+replicas:8", "off+block:1024")))  # fmt: skip
    setting = Setting(arms=arms, rule=RULE, replicas=REPLICAS, capacity_blocks=CAPACITY_BLOCKS,
                      clock=CLOCK)  # fmt: skip
    for clock in (CLOCK, None):
        found = results(recorded, arms, clock)
        assert [found[name].cached_tokens for name in found if name.startswith("off")] == [0] * 4
        assert found["off"].evicted_blocks == 0
    bound = experiment(recorded, setting).bound_ratio or 0.0
    assert all(0 < (found[router].token_hit_ratio or 0) <= bound for router in ROUTERS)


def test_larger_blocks_find_less_where_memory_is_never_full(recorded: Recorded) -> None:
    """In small memory they may find more, as they keep no ends of prompts."""
    setting = Setting(arms=swept("block", 512, False), rule=RULE, replicas=REPLICAS,
                      capacity_blocks=None)  # fmt: skip
    cached = [each.cached_tokens for each in experiment(recorded, setting).results]
    assert len(cached) == 4
    assert all(less > more for less, more in pairwise(cached))
