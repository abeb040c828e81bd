"""The figures behind the verdict, against plain Python and against sums made by hand."""

import math
import random
from collections import defaultdict
from datetime import timedelta
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import empty_store
from tests.unit_offload.conftest import Store
from tests.unit_offload.simulation import START, Replica, Row, Traffic, simulate

Key = tuple[Any, ...]


def token_class(tokens: int) -> int:
    """Half powers of two from 64 on."""
    return 0 if tokens < 64 else math.ceil(2 ** (math.floor(2 * math.log2(tokens)) / 2))


def running_at_start(rows: list[Row]) -> list[int]:
    """How many requests its replica serves when each one leaves the queue, by trying all pairs."""
    spans = []
    for row in rows:
        started = row["ts"] + timedelta(seconds=row["queue_seconds"])
        ended = row["ts"] + timedelta(seconds=row["e2e_seconds"])
        spans.append((row["replica"], started, ended))
    return [
        sum(where == replica and s <= started < e for where, s, e in spans)
        for replica, started, _ in spans
    ]


def by_hand(rows: list[Row], tier: str) -> dict[str, float] | None:
    """The comparison as docs/offload.md describes it, the long way."""
    served: dict[Key, list[tuple[float, int]]] = defaultdict(list)
    computed: dict[Key, list[tuple[float, int]]] = defaultdict(list)
    for row, running in zip(rows, running_at_start(rows), strict=True):
        lower = row["cached_host"] + row["cached_disk"] + row["cached_remote"]
        otherwise = row["prompt_tokens"] - row["cached_tokens"] + lower
        key = (row["replica"], token_class(row["prompt_tokens"]), token_class(otherwise),
               math.floor(2 * math.log2(max(running, 1))))  # fmt: skip
        seconds = row["ttft_seconds"] - row["queue_seconds"]
        if not lower:
            computed[key].append((seconds, otherwise))
        elif row[f"cached_{tier}"]:
            served[key].append((seconds, otherwise))
    slopes = _slopes(computed)
    total = difference = variance = 0.0
    for key, ours in served.items():
        theirs = computed.get(key, [])
        if len(ours) < 10 or len(theirs) < 10:
            continue
        levels = [sorted(s - slopes[key[0]] * o for s, o in arm) for arm in (ours, theirs)]
        total += len(ours)
        difference += len(ours) * (median(levels[0]) - median(levels[1]))
        variance += len(ours) ** 2 * sum(_median_error(level) ** 2 for level in levels)
    if not total:
        return None
    return {
        "served_requests": total,
        "difference_seconds": difference / total,
        "half_width": 1.96 * math.sqrt(variance) / total,
    }


def _slopes(computed: dict[Key, list[tuple[float, int]]]) -> dict[Any, float]:
    """Seconds on tokens, within strata, one slope per replica; never negative."""
    products: dict[Any, float] = defaultdict(float)
    squares: dict[Any, float] = defaultdict(float)
    for key, arm in computed.items():
        seconds, tokens = fmean(s for s, _ in arm), fmean(o for _, o in arm)
        products[key[0]] += sum((s - seconds) * (o - tokens) for s, o in arm)
        squares[key[0]] += sum((o - tokens) ** 2 for _, o in arm)
    return defaultdict(float, {
        replica: max(products[replica] / square, 0.0)
        for replica, square in squares.items() if square > 0
    })  # fmt: skip


def _median_error(ordered: list[float]) -> float:
    rank = max(1, math.floor((len(ordered) + 1) / 2 - 0.98 * math.sqrt(len(ordered))))
    return (ordered[len(ordered) - rank] - ordered[rank - 1]) / (2 * 1.96)


@pytest.mark.parametrize("seed", range(4))
def test_comparison_equals_the_long_way(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    rows = simulate(
        Replica(load_seconds_per_token=chance.uniform(0, 400e-6), crowding=chance.random() / 2),
        Traffic(count=1200, in_tier=lambda busy: 0.7 if busy else 0.3,
                shortest_tokens=1024, longest_tokens=4096), seed=seed,
    )  # fmt: skip
    for number, row in enumerate(rows):
        row["replica"] = "ab"[number % 3 == 0]
    store.load(rows)
    expected = by_hand(rows, "host")
    assert expected is not None
    row = store.one("offload_ttft")
    assert row["served_requests"] == expected["served_requests"]
    assert row["difference_seconds"] == pytest.approx(expected["difference_seconds"], abs=1e-6)
    half = (row["high_seconds"] - row["low_seconds"]) / 2
    assert half == pytest.approx(expected["half_width"], abs=1e-6)


@settings(max_examples=8)
@given(st.data())
def test_any_rows_give_a_verdict_that_hangs_together(data: st.DataObject) -> None:
    """Odd rows too: no tiers, no times, negative waits, more cached than asked for."""
    counts = st.none() | st.integers(0, 3000)
    times = st.none() | st.floats(0, 30) | st.sampled_from([-5.0, 1e15, 1e300])
    one = st.fixed_dictionaries({
        "prompt_tokens": counts, "cached_tokens": counts, "cached_device": counts,
        "cached_host": counts, "cached_disk": counts, "cached_remote": counts,
        "queue_seconds": times, "ttft_seconds": times, "e2e_seconds": times,
        "ttft_point": st.sampled_from([None, "client", "engine_scheduled"]),
    })  # fmt: skip
    rows = data.draw(st.lists(one, min_size=1, max_size=8))
    copies = data.draw(st.sampled_from([1, 60]))
    with empty_store.lent() as connection:
        store = Store(connection)
        store.add("requests", [
            {"ts": START + timedelta(seconds=9 * n), "replica": "a", "model": "m", **row}
            for n, row in enumerate(rows * copies)
        ])  # fmt: skip
        for row in store.ask("offload_verdict"):
            assert row["verdict"] in {"pays", "does not pay", "cannot be told"}
            assert (row["basis"] is None) == (row["verdict"] == "cannot be told")
            assert row["missing"] or row["verdict"] != "cannot be told"
            assert row["sentence"].startswith(row["verdict"])
            if row["difference_seconds"] is not None:
                assert row["low_seconds"] <= row["difference_seconds"] <= row["high_seconds"]
        for row in store.ask("offload_ttft", within="computed"):
            assert row["served_requests"] >= 10
            assert row["computed_requests"] >= 10


@pytest.mark.parametrize("count", [10, 25, 200])
def test_interval_of_a_difference_covers_it_as_often_as_it_says(store: Store, count: int) -> None:
    """Skewed arms: exponential with means 1 and 2, medians ln 2 and 2 ln 2. Of 4,000 pairs at least
    95 % less three standard errors (1.1 points) must be covered."""
    chance = random.Random(count)
    pairs = [
        [sorted(chance.expovariate(rate) for _ in range(count)) for rate in (1, 0.5)]
        for _ in range(4000)
    ]
    store.connection.execute("CREATE TABLE pairs (one DOUBLE[], two DOUBLE[])")
    store.connection.executemany("INSERT INTO pairs VALUES (?, ?)", pairs)
    covered = sum(
        abs(difference + math.log(2)) <= 1.96 * math.hypot(one, two)
        for difference, one, two in store.execute(
            "SELECT middle(one) - middle(two), median_error(one), median_error(two) FROM pairs"
        )
    )
    assert covered / len(pairs) > 0.95 - 0.011


def transfers(minute: int, **more: object) -> Row:
    at = START + timedelta(minutes=minute)
    return {"since": at - timedelta(minutes=1), "ts": at, "replica": "a", "model": "m", **more}


# 2 GB loaded in 4 s as 8,000 tokens, 3 GB stored in 12 s as 20,000; 500 tokens dropped.
MOVED = transfers(
    1,
    offload_tokens={"load/host": 8000, "store/host": 20_000},
    offload_bytes={"load/host": 2_000_000_000, "store/host": 3_000_000_000},
    offload_seconds={"load/host": 4.0, "store/host": 12.0},
    offload_dropped={"host": 500},
)


def test_loads_and_costs_by_hand(store: Store) -> None:
    store.add("engine_samples", [MOVED])
    load, cost = store.one("offload_load"), store.one("offload_cost")
    assert (load["tier"], load["loaded_tokens"], load["tokens_from"]) == (
        "host", 8000, "transfers")  # fmt: skip
    assert load["load_seconds_per_token"] == pytest.approx(4.0 / 8000)
    assert load["bytes_per_second"] == pytest.approx(500e6)
    assert load["prefill_seconds_per_token"] is None
    assert (cost["stored_tokens"], cost["unread_tokens"]) == (20_000, 12_000)
    assert (cost["unread_bytes"], cost["dropped_tokens"]) == (1_000_000_000, 500)
    assert (cost["store_seconds"], cost["counted_seconds"]) == (12.0, 60.0)
    sentence = store.one("offload_verdict")["sentence"]
    assert "of 20,000 tokens written at least 12,000 were not read in this window" in sentence
    assert "500 tokens meant for host memory were dropped" in sentence


def test_t23_writes_and_reads_are_never_mixed(store: Store) -> None:
    """32 tokens stored in one minute, restored in the next."""
    store.add("engine_samples", [
        transfers(1, offload_tokens={"store/host": 32, "load/host": 0}),
        transfers(2, offload_tokens={"store/host": 0, "load/host": 32}),
    ])  # fmt: skip
    rows = store.ask("offload_over_time", step_seconds=60)
    assert [(row["direction"], row["tokens"]) for row in rows] == [
        ("load", 0), ("store", 32), ("load", 32), ("store", 0),
    ]  # fmt: skip
    first_minute = {"until": (START + timedelta(minutes=1)).isoformat() + "Z"}
    assert store.one("offload_cost", **first_minute)["unread_tokens"] == 32
    assert store.one("offload_cost")["unread_tokens"] == 0


def test_over_time_spreads_an_interval_over_its_steps(store: Store) -> None:
    """One sample of 2 minutes falls half into each; speed is bytes by seconds."""
    wide = {**MOVED, "ts": START + timedelta(minutes=2), "since": START}
    store.add("engine_samples", [wide])
    loads = [r for r in store.ask("offload_over_time", step_seconds=60) if r["direction"] == "load"]
    assert [row["bytes"] for row in loads] == [1_000_000_000, 1_000_000_000]
    assert [row["bytes_per_second"] for row in loads] == [500e6, 500e6]


def test_engine_and_kv_store_count_the_same_transfers(store: Store) -> None:
    """LMCache beside its engine: bytes by both, tokens by the store alone. Nothing is added up."""
    theirs = {**MOVED, "observer": "kv_store", "engine": "lmcache"}
    ours = {**MOVED, "offload_tokens": None, "offload_dropped": None}
    store.add("engine_samples", [ours, theirs])
    load = store.one("offload_load")
    assert (load["loaded_tokens"], load["loaded_bytes"], load["load_seconds"]) == (
        8000, 2_000_000_000, 4.0)  # fmt: skip
    assert store.ask("offload_over_time", step_seconds=60)[0]["bytes"] == 2_000_000_000


def test_tokens_of_a_connector_that_names_no_tier_belong_to_the_one_at_work(store: Store) -> None:
    """vLLM before 0.32: bytes and seconds of host memory, tokens as external hits."""
    store.add("engine_samples", [transfers(
        1, prompt_tokens=10_000, cached_tokens=7000, cached_device=3000, cached_remote=4000,
        offload_bytes={"load/host": 4_000_000}, offload_seconds={"load/host": 0.2},
    )])  # fmt: skip
    load = store.one("offload_load")
    assert (load["tier"], load["loaded_tokens"], load["tokens_from"]) == (
        "host", 4000, "cached tokens")  # fmt: skip
    assert load["load_seconds_per_token"] == pytest.approx(50e-6)


def test_counters_that_stand_still_are_no_tier_at_work(store: Store) -> None:
    store.add("engine_samples", [transfers(
        1, prompt_tokens=10, cached_tokens=0, cached_host=0, cached_disk=0, cached_remote=0,
        offload_bytes={"load/host": 0, "store/host": 0},
    )])  # fmt: skip
    assert store.ask("offload_load") == []
    assert store.ask("offload_verdict") == []


def test_prefill_speed_is_not_measured_on_requests_that_also_loaded(store: Store) -> None:
    """Slow loads would make short prefills look long, and so the slope too flat."""
    store.load(simulate(
        Replica(load_seconds_per_token=1e-3, crowding=0.0, noise=0.01), Traffic(count=1500)
    ))  # fmt: skip
    assert store.one("prefill_speed")["tokens_per_second"] == pytest.approx(4000, rel=0.02)
