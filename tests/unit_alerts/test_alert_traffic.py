"""The traffic alerts are judged by: repeatable, physical, and worse where a fault was put."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from bench.alerts.faults import KINDS, Fault, Kind, schedule
from bench.alerts.fleet import Fleet, Sample, Served
from bench.alerts.world import BLOCK_TOKENS, START, World

HOUR = 3_600.0
NOON = (START + timedelta(days=1, hours=11)).timestamp()


def served(*faults: Fault, seed: int = 3, days: float = 1.7) -> list[Served]:
    return [seen for seen in Fleet(World(seed), list(faults)).run(days) if isinstance(seen, Served)]


def ratio(requests: list[Served], keep: Callable[[Served], bool] = lambda _: True) -> float:
    kept = [request for request in requests if keep(request)]
    return sum(r.cached_tokens for r in kept) / sum(r.prompt_tokens for r in kept)


def at_noon(request: Served) -> bool:
    return NOON <= request.moment < NOON + 4 * HOUR


@pytest.fixture(scope="module")
def quiet() -> list[Served]:
    return served()


def test_the_same_seed_gives_the_same_traffic(quiet: list[Served]) -> None:
    assert served() == quiet
    assert served(seed=4) != quiet


def test_whole_blocks_are_reused_and_never_the_whole_prompt(quiet: list[Served]) -> None:
    assert len(quiet) > 2_000
    for request in quiet:
        assert request.cached_tokens % BLOCK_TOKENS == 0
        assert 0 <= request.cached_tokens < request.prompt_tokens
        assert request.ttft_seconds > request.queue_seconds >= 0


def test_pages_count_what_was_served() -> None:
    seen = list(Fleet(World(3), []).run(0.5))
    last = max(event.moment for event in seen if isinstance(event, Sample))
    for column in ("prompt_tokens", "cached_tokens"):
        counted, logged = Counter[str](), Counter[str]()
        for event in seen:
            if isinstance(event, Sample):
                counted[event.replica] += getattr(event, column)
            elif event.moment < last:
                logged[event.replica] += getattr(event, column)
        assert counted == logged


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("telemetry", "layout")])
def test_every_fault_of_the_caches_lowers_the_ratio(kind: Kind, quiet: list[Served]) -> None:
    hit = served(Fault(kind, NOON, NOON + 4 * HOUR))
    assert ratio(hit, at_noon) < ratio(quiet, at_noon) - 0.05


def test_time_in_front_hits_one_template(quiet: list[Served]) -> None:
    hit = served(Fault("layout", NOON, NOON + 4 * HOUR, "support"))
    timed = [r for r in hit if r.version.endswith("-timed")]
    assert {r.template for r in timed} == {"support"}
    assert sum(r.cached_tokens for r in timed) == 0
    assert ratio(hit, at_noon) < ratio(quiet, at_noon) - 0.05


def test_faults_are_scheduled_apart_and_each_kind_once_or_twice() -> None:
    for seed in range(1, 41):
        faults = schedule(seed)
        kinds = Counter(fault.kind for fault in faults)
        assert set(kinds) == set(KINDS)
        assert sorted(kinds.values()) == [1] * 6 + [2] * 3
        for before, after in pairwise(faults):
            assert after.since - before.until > 24 * HOUR
