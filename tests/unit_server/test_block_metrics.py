"""Blocks on /metrics: events where a cache has them, else counters; never both, never falling."""

import bisect
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.block_metrics import AGE_BOUNDS, Continued, MemorySplit, add_blocks, memory_split
from exporter.blocks.snapshot import BlocksSnapshot, CacheSnapshot, StreamSnapshot
from exporter.engine_totals import EngineCounters, EngineTotals
from exporter.metrics import Page
from exporter.records import EngineSample
from tests import empty_store
from tests.unit_server.test_collector import NOON, sample

DEVICE = CacheSnapshot(
    source="kv", replica="a", model="m", tier="device", block_size=16,
    stored_blocks=100, evicted_blocks=20, demoted_blocks=5, promoted_blocks=0, reset_blocks=60,
    resets={"restart": 1, "clear": 2}, resident_blocks=15, resident_tokens=240, uncertain=None,
    lifetime={0: 3, 9: 1}, lifetime_seconds=5.2, evicted_reuse_gap={}, evicted_reuse_gap_seconds=0,
)  # fmt: skip
HOST = replace(DEVICE, tier="host", evicted_blocks=2, demoted_blocks=1, resets={}, lifetime={})
Lines = dict[tuple[str, str], float]


def lines(
    engines: dict[tuple[str, str], EngineCounters],
    blocks: BlocksSnapshot,
    continued: Continued | None = None,
    weights: dict[str, int] | None = None,
) -> Lines:
    """Every series by name (with suffix) and label text."""
    page = Page()
    add_blocks(page, engines, blocks, weights or {}, continued or Continued())
    return {
        (family.name + suffix, labels): value
        for family in page.families()
        for suffix, labels, value in family.lines
    }


def named(found: Lines, name: str) -> dict[str, float]:
    return {labels: value for (family, labels), value in found.items() if family == name}


def totals(*samples: EngineSample) -> dict[tuple[str, str], EngineCounters]:
    engines = EngineTotals(now=lambda: NOON)
    engines.add(samples)
    return engines.snapshot()


A = 'model="m",replica="a"'


def test_t26_t27_events_tell_resets_and_the_page_is_not_added() -> None:
    engines = {("m", "a"): EngineCounters(resets=1), ("m", "b"): EngineCounters(resets=4)}
    found = lines(engines, BlocksSnapshot(caches=[DEVICE]))
    assert named(found, "prefixcache_resets_total") == {
        f'{A},reason="restart"': 1,
        f'{A},reason="clear"': 2,
        f'{A},reason="sleep"': 0,
        f'{A},reason="lost_events"': 0,
        'model="m",replica="b",reason="restart"': 4,
    }


def test_t28_demotions_are_no_evictions_and_tiers_stand_apart() -> None:
    found = lines({}, BlocksSnapshot(caches=[DEVICE, HOST]))
    assert named(found, "prefixcache_evicted_blocks_total") == {
        f'{A},tier="device"': 20,
        f'{A},tier="host"': 2,
    }
    assert named(found, "prefixcache_demoted_blocks_total") == {A: 6}


def test_evictions_of_a_page_count_where_no_event_does() -> None:
    counted = totals(
        sample(-1, evicted={"device/tokens": 320, "disk/chunks": 9}, block_size=16),
        sample(0, evicted={"device/tokens": 8, "host/blocks": 3}, block_size=16,
               demoted={"host/tokens": 64}),
    )  # fmt: skip
    found = lines(counted, BlocksSnapshot())
    assert named(found, "prefixcache_evicted_blocks_total") == {
        f'{A},tier="device"': 20.5,  # 328 tokens in blocks of 16
        f'{A},tier="host"': 3,
    }
    assert named(found, "prefixcache_demoted_blocks_total") == {A: 4}
    # Events of the device tier take its place; the host's counter stays.
    found = lines(counted, BlocksSnapshot(caches=[DEVICE]))
    assert named(found, "prefixcache_evicted_blocks_total") == {
        f'{A},tier="device"': 20,
        f'{A},tier="host"': 3,
    }
    assert named(found, "prefixcache_demoted_blocks_total") == {A: 5}


def test_a_counter_goes_on_when_events_begin_and_end() -> None:
    continued, key = Continued(), ("m", "a")
    engines = {key: EngineCounters(evicted_blocks={"device": 90.0})}

    def shown(blocks: BlocksSnapshot) -> float:
        found = lines(engines, blocks, continued)
        return found["prefixcache_evicted_blocks_total", f'{A},tier="device"']

    def told(evicted: int) -> BlocksSnapshot:
        return BlocksSnapshot(caches=[replace(DEVICE, evicted_blocks=evicted)])

    assert shown(BlocksSnapshot()) == 90
    assert shown(told(20)) == 90
    engines[key].evicted_blocks["device"] = 95.0
    assert shown(told(27)) == 97
    assert shown(BlocksSnapshot()) == 97
    engines[key].evicted_blocks["device"] = 100.0
    assert shown(BlocksSnapshot()) == 102


def test_a_counter_whose_source_begins_again_at_0_goes_on() -> None:
    continued = Continued()
    read = [100.0, 120.0, 0.0, 10.0, 30.0, 130.0, 0.0, 1.0]
    shown = [continued.value("n", "l", "events", current) for current in read]
    assert shown == [100, 120, 120, 130, 150, 250, 250, 251]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 9), min_size=1)), max_size=10)
)
def test_every_increase_is_shown_whatever_begins_again(lives: list[tuple[str, list[int]]]) -> None:
    """Each life of a source is read at 0 first, then after every increase."""
    continued, total = Continued(), 0.0
    continued.value("n", "l", "a", 0)
    for basis, increases in lives:
        assert continued.value("n", "l", basis, 0) == total
        for place in range(len(increases)):
            total += increases[place]
            assert continued.value("n", "l", basis, sum(increases[: place + 1])) == total


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=30))
def test_what_is_shown_never_falls(steps: list[tuple[str, int]]) -> None:
    continued, at = Continued(), {"a": 0, "b": 0}
    before = 0.0
    for basis, increase in steps:
        at[basis] += increase
        value = continued.value("n", "l", basis, at[basis])
        assert value >= before
        before = value


def test_t20_memory_by_events_in_tokens_and_bytes() -> None:
    row = EngineCounters(running_tokens=160, capacity_tokens=400, running_requests=3, block_size=16)
    found = lines({("m", "a"): row}, BlocksSnapshot(caches=[DEVICE]), weights={"m": 1000})
    # 240 resident; of the 160 running all but 3 blocks are among them: 112. 240 - 112 = 128.
    assert named(found, "prefixcache_kv_tokens") == {
        f'{A},state="running"': 160,
        f'{A},state="cached"': 128,
        f'{A},state="free"': 112,
    }
    assert named(found, "prefixcache_kv_bytes")[f'{A},state="cached"'] == 128_000
    assert named(found, "prefixcache_kv_capacity_tokens") == {A: 400}
    without = lines({("m", "a"): row}, BlocksSnapshot())
    assert named(without, "prefixcache_kv_tokens") == {f'{A},state="running"': 160}
    assert named(without, "prefixcache_kv_bytes") == {}


def test_an_engines_own_gauges_win() -> None:
    row = EngineCounters(running_tokens=5, kv_cached_tokens=6, free_tokens=7, capacity_tokens=18)
    split = memory_split(row, DEVICE)
    assert (split.running, split.cached, split.free) == (5, 6, 7)


Known = int | None


def asked_and_shown(
    resident: int, running: Known, requests: Known, size: Known, capacity: Known
) -> tuple[tuple[Known, Known], tuple[Known, Known]]:
    """Cached and free tokens by the macros of the question, and by the metric."""
    row = EngineCounters(
        running_tokens=running, running_requests=requests, block_size=size, capacity_tokens=capacity
    )
    device = replace(DEVICE, resident_tokens=resident, block_size=None)
    split = memory_split(row, device)
    asked = MACROS.execute(
        "SELECT cached_by_events($1, $2, $3, $4, $5)::BIGINT AS cached,"
        " free_by_events($1, cached, $5)::BIGINT",
        [running, resident, requests, size, capacity],
    ).fetchone()
    assert asked is not None
    return asked, (split.cached, split.free)


# resident, running, running requests, block size, capacity -> cached, free; worked out by hand.
SPLITS: list[tuple[tuple[int, Known, Known, Known, Known], tuple[Known, Known]]] = [
    # All but 3 blocks of what runs are resident too: 240 - (160 - 48) = 128; 400 - 160 - 128.
    ((240, 160, 3, 16, 400), (128, 112)),
    # Nothing runs: all that is resident is reusable.
    ((240, 0, 0, 16, 400), (240, 160)),
    # What runs holds no whole block, so none of it is resident.
    ((240, 40, 3, 16, 400), (240, 120)),
    # More runs than is resident, and the rest of the room is free.
    ((48, 320, 2, 16, 400), (0, 80)),
    # The room bounds what can be cached.
    ((400, 160, 20, 16, 400), (240, 0)),
    # More runs than there is room for: an engine's gauge is a moment older.
    ((100, 500, 1, 16, 400), (0, 0)),
    # Unknown: how many requests, which block size (then none is taken off), the room, what runs.
    ((240, 160, None, 16, 400), (80, 160)),
    ((240, 160, 3, None, 400), (80, 160)),
    ((240, 160, 3, 16, None), (128, None)),
    ((240, None, 3, 16, 400), (None, None)),
]


@pytest.mark.parametrize(("told", "expected"), SPLITS)
def test_the_metric_and_the_question_give_the_same_right_answers(
    told: tuple[int, Known, Known, Known, Known], expected: tuple[Known, Known]
) -> None:
    assert asked_and_shown(*told) == (expected, expected)


tokens = st.integers(0, 5000)


@given(
    resident=tokens, running=st.none() | tokens, requests=st.none() | st.integers(0, 40),
    size=st.none() | st.sampled_from([1, 16, 784]), capacity=st.none() | tokens,
)  # fmt: skip
def test_the_metric_and_the_question_split_alike(
    resident: int, running: Known, requests: Known, size: Known, capacity: Known
) -> None:
    asked, shown = asked_and_shown(resident, running, requests, size, capacity)
    assert asked == shown
    split = MemorySplit(running, *shown)
    for part in (split.cached, split.free):
        assert part is None or part >= 0
    if split.free is not None and running is not None and capacity is not None:
        assert running + (split.cached or 0) + split.free == max(capacity, running)


def test_ages_are_cumulative_under_bounds_of_at_least_their_bucket() -> None:
    found = lines({}, BlocksSnapshot(caches=[DEVICE]))
    name = "prefixcache_block_lifetime_seconds"
    buckets = named(found, f"{name}_bucket")
    # Three blocks of [1, 1.08) and one of [1.999, 2.159): none is surely at most 1 s or 2 s.
    assert [buckets[f'le="{bound}",{A}'] for bound in ("1.0", "2.0", "5.0", "+Inf")] == [0, 3, 4, 4]
    assert found[f"{name}_sum", A] == 5.2
    assert found[f"{name}_count", A] == 4
    assert found["prefixcache_evicted_reuse_gap_seconds_count", A] == 0


@given(st.dictionaries(st.integers(-200, 300), st.integers(1, 5), max_size=20))
def test_every_age_is_in_one_bucket(ages: dict[int, int]) -> None:
    found = lines({}, BlocksSnapshot(caches=[replace(DEVICE, lifetime=ages)]))
    name = "prefixcache_block_lifetime_seconds_bucket"
    for index, bound in enumerate(AGE_BOUNDS):
        ended = sum(n for bucket, n in ages.items() if (bucket + 1) * math.log(1.08)
                    <= math.log(bound) + 1e-9)  # fmt: skip
        assert found[name, f'le="{bound}",{A}'] == ended
        assert bisect.bisect_left(AGE_BOUNDS, bound) == index
    assert found[name, f'le="+Inf",{A}'] == sum(ages.values())


def test_t29_streams_and_copies() -> None:
    blocks = BlocksSnapshot(
        streams=[
            StreamSnapshot("kv", "a", connected=True, missed_batches=3, uncertain="a gap"),
            StreamSnapshot("kv", "b", connected=False, missed_batches=0, uncertain=None),
        ],
        copies={"m": (200, 250), "empty": (0, 0)},
    )
    found = lines({}, blocks)
    a, b = ('source="kv",replica="a"', 'source="kv",replica="b"')
    assert named(found, "prefixscope_event_stream_up") == {a: 1, b: 0}
    assert named(found, "prefixscope_event_batches_missed_total") == {a: 3, b: 0}
    assert named(found, "prefixscope_event_state_uncertain") == {a: 1, b: 0}
    assert named(found, "prefixcache_replica_copies_ratio") == {'model="m"': 1.25}


def test_t50_series_of_caches_and_streams_are_bounded() -> None:
    many = BlocksSnapshot(
        caches=[replace(DEVICE, replica=f"r{n}") for n in range(1500)],
        streams=[StreamSnapshot("kv", f"r{n}", True, 0, None) for n in range(1500)],
    )
    found = lines({}, many)
    assert len(named(found, "prefixcache_evicted_blocks_total")) == 1000
    assert len(named(found, "prefixscope_event_stream_up")) == 1000


def test_offload_by_direction_and_tier() -> None:
    moved = {"offload_bytes": {"store/host": 10}, "offload_seconds": {"load/disk": 0.5}}
    found = lines(totals(sample(-1, **moved), sample(0, **moved)), BlocksSnapshot())
    assert named(found, "prefixcache_offload_bytes_total") == {
        f'{A},direction="store",tier="host"': 20
    }
    assert named(found, "prefixcache_offload_seconds_total") == {
        f'{A},direction="load",tier="disk"': 1.0
    }


def test_events_without_a_model_take_the_pages() -> None:
    blocks = BlocksSnapshot(caches=[replace(DEVICE, model=None)])
    found = lines({("m", "a"): EngineCounters()}, blocks)
    assert named(found, "prefixcache_demoted_blocks_total") == {A: 5}


MACROS = empty_store.in_memory()
