"""The verdict on simulated traffic whose truth is known: pays, does not pay, cannot be told."""

import random
import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.unit_offload.conftest import Store
from tests.unit_offload.simulation import Replica, Row, Traffic, counters, simulate

PAYS, DOES_NOT, UNKNOWN = "pays", "does not pay", "cannot be told"


def waited(row: Row) -> float:
    return float(row["ttft_seconds"] - row["queue_seconds"])


def naive_difference(rows: list[Row]) -> float:
    """What comparing plain means says: requests served from the tier less misses."""
    served = [waited(row) for row in rows if row["cached_host"]]
    missed = [waited(row) for row in rows if not row["cached_tokens"]]
    return sum(served) / len(served) - sum(missed) / len(missed)


def true_gain(replica: Replica, rows: list[Row]) -> float:
    """What loads saved on average, had each request been alone."""
    served = [row["cached_host"] for row in rows if row["cached_host"]]
    return sum(map(replica.gain_seconds, served)) / len(served)


def test_pays_where_loads_are_faster_than_prefill(store: Store) -> None:
    replica = Replica(crowding=0.0)
    rows = simulate(replica, Traffic())
    store.load(rows)
    verdict = store.one("offload_verdict")
    assert (verdict["verdict"], verdict["basis"]) == (PAYS, "requests")
    gain = -verdict["difference_seconds"]
    assert gain == pytest.approx(true_gain(replica, rows), rel=0.06)
    assert verdict["low_seconds"] < verdict["difference_seconds"] < verdict["high_seconds"] < 0
    assert verdict["sentence"].startswith("pays: requests served from host memory had their first")
    # What engines would have counted is not known here, and said so.
    assert "time of loads from host memory" in verdict["missing"]


def test_more_hits_but_no_sooner_first_token_does_not_pay(new_store: Callable[[], Store]) -> None:
    """The hit ratio doubles and more, and nobody waits less: loads take as long as prefill."""
    without, with_tier = new_store(), new_store()
    without.load(simulate(Replica(), Traffic(in_tier=lambda busy: 0.0)))
    with_tier.load(simulate(Replica(load_seconds_per_token=250e-6), Traffic()))
    before = without.one("hit_ratio")["token_hit_ratio"]
    after = with_tier.one("hit_ratio")["token_hit_ratio"]
    assert after > 3 * before
    verdict = with_tier.one("offload_verdict")
    assert (verdict["verdict"], verdict["basis"]) == (DOES_NOT, "requests")
    assert verdict["low_seconds"] < 0 < verdict["high_seconds"]
    assert "had their first token no sooner (difference " in verdict["sentence"]
    assert without.ask("offload_verdict") == []


def test_slower_loads_do_not_pay(store: Store) -> None:
    store.load(simulate(Replica(load_seconds_per_token=400e-6), Traffic()))
    verdict = store.one("offload_verdict")
    assert verdict["verdict"] == DOES_NOT
    assert verdict["low_seconds"] > 0
    assert " later (95 % interval " in verdict["sentence"]
    assert verdict["gained_seconds"] == 0


def test_load_confounded_comparison_says_the_opposite(new_store: Callable[[], Store]) -> None:
    """Hits come when the replica is idle: plain means praise a tier that costs, and the reverse."""
    cases = (
        (Replica(load_seconds_per_token=300e-6, crowding=0.3),
         Traffic(in_tier=lambda busy: 0.1 if busy else 0.9), DOES_NOT),
        (Replica(load_seconds_per_token=190e-6, crowding=0.3),
         Traffic(in_tier=lambda busy: 0.9 if busy else 0.1), PAYS),
    )  # fmt: skip
    for replica, traffic, right in cases:
        rows, store = simulate(replica, traffic), new_store()
        store.load(rows)
        naive = naive_difference(rows)
        assert (naive < 0) == (right == DOES_NOT), "the case must mislead"
        assert (true_gain(replica, rows) > 0) == (right == PAYS)
        assert store.one("offload_verdict")["verdict"] == right


SLOW_TIER = Replica(fixed_seconds_per_load=0.3, load_seconds_per_token=100e-6, crowding=0.0)


def test_slow_tier_pays_above_its_break_even_length(new_store: Callable[[], Store]) -> None:
    """0.3 s each and 100 µs a token against 250 µs: 0.3 / 150e-6 = 2,000 tokens."""
    mixed = new_store()
    mixed.load(simulate(SLOW_TIER, Traffic(count=6000)))
    row = mixed.one("offload_ttft")
    assert row["break_even_tokens"] == pytest.approx(2000, rel=0.1)
    assert row["fixed_seconds"] == pytest.approx(0.3, rel=0.1)
    assert row["load_seconds_per_token"] == pytest.approx(100e-6, rel=0.15)
    assert row["prefill_seconds_per_token"] == pytest.approx(250e-6, rel=0.05)
    said = re.search(
        r"a load pays from ([\d,]+) tokens on", mixed.one("offload_verdict")["sentence"]
    )
    assert said is not None
    assert float(said[1].replace(",", "")) == pytest.approx(2000, rel=0.1)

    for shortest, longest, right in ((512, 2048, DOES_NOT), (6000, 16_000, PAYS)):
        store = new_store()
        store.load(simulate(SLOW_TIER, Traffic(shortest_tokens=shortest, longest_tokens=longest)))
        assert store.one("offload_verdict")["verdict"] == right


def test_classes_of_length_show_where_a_slow_tier_begins_to_pay(store: Store) -> None:
    store.load(simulate(SLOW_TIER, Traffic(count=6000)))
    classes = store.ask("offload_ttft", within="computed")
    assert [row["within_from"] for row in classes] == sorted(row["within_from"] for row in classes)
    # 50 to 95 % of the tokens are loaded: 2,000 of them at 2,105 to 4,000 tokens to compute.
    for row in classes:
        if row["within_to"] <= 2105:
            assert row["low_seconds"] > 0
        if row["within_from"] >= 4000:
            assert row["high_seconds"] < 0


def test_fast_median_with_slow_loads_cannot_be_told(store: Store) -> None:
    """One load in five takes 3 s longer: most gain, the mean does not."""
    rows = simulate(Replica(crowding=0.0), Traffic())
    chance = random.Random(5)
    for row in rows:
        if row["cached_host"] and chance.random() < 0.2:
            row["ttft_seconds"] += 3.0
    store.load(rows)
    verdict = store.one("offload_verdict")
    assert verdict["high_seconds"] < 0 < store.one("offload_ttft")["mean_difference_seconds"]
    assert verdict["verdict"] == UNKNOWN
    assert "agreement of medians and means" in verdict["missing"]


def test_what_others_lose_while_transfers_run_is_weighed(new_store: Callable[[], Store]) -> None:
    """Loads save some 0.14 s each; where transfers cost others 0.6 s each, that is no gain."""

    def odd_minute(moment: datetime) -> bool:
        return moment.minute % 2 == 1

    for slowdown, right in ((0.0, PAYS), (0.6, DOES_NOT)):
        replica = Replica(load_seconds_per_token=190e-6, crowding=0.0, transfer_slowdown=slowdown)
        rows = simulate(replica, Traffic(in_tier=lambda busy: 0.25, transfers=odd_minute))
        store = new_store()
        store.load(rows)
        first = rows[0]["ts"].replace(second=0, microsecond=0)
        minutes = int((rows[-1]["ts"] - first).total_seconds() // 60) + 2
        store.add("engine_samples", [
            {"since": first + timedelta(minutes=n), "ts": first + timedelta(minutes=n + 1),
             "replica": "a", "model": "m",
             "offload_bytes": {"load/host": 1000 * ((first.minute + n) % 2)}}
            for n in range(minutes)
        ])  # fmt: skip
        (slow,) = [r for r in store.ask("offload_ttft") if r["comparison"] == "transfers"]
        assert slow["difference_seconds"] == pytest.approx(slowdown, abs=0.02)
        verdict = store.one("offload_verdict")
        assert verdict["verdict"] == right
        missed = sum(not r["cached_host"] and odd_minute(r["ts"] + timedelta(
            seconds=r["queue_seconds"])) for r in rows)  # fmt: skip
        assert verdict["lost_seconds"] == pytest.approx(missed * slowdown, rel=0.05)
        if slowdown:
            said = re.search(r"while transfers ran waited (\d+) ms longer", verdict["sentence"])
            assert said is not None
            assert float(said[1]) == pytest.approx(600, rel=0.03)
        else:
            assert "computed waited no longer while transfers ran" in verdict["sentence"]


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        pytest.param(
            "DELETE FROM requests", "request rows with cached tokens", id="no_rows"),
        pytest.param(
            "UPDATE requests SET cached_device = NULL, cached_host = NULL, cached_disk = NULL,"
            " cached_remote = NULL", "cached tokens by tier on request rows", id="no_tiers"),
        pytest.param(
            "UPDATE requests SET cached_device = cached_tokens, cached_host = 0",
            "request rows served from host memory", id="never_served"),
        pytest.param(
            "UPDATE requests SET ttft_seconds = NULL",
            "time to first token of requests served from host memory", id="no_ttft"),
        pytest.param(
            "UPDATE requests SET queue_seconds = NULL",
            "queue time of requests served from host memory", id="no_queue"),
        pytest.param(
            "DELETE FROM requests WHERE cached_tokens = 0",
            "50 requests served from host memory and 50 that computed as many tokens",
            id="nothing_to_compare"),
        pytest.param(
            "UPDATE requests SET ttft_point = CASE WHEN cached_host > 0 THEN 'client'"
            " ELSE 'engine_arrival' END",
            "50 requests served from host memory and 50", id="points_never_mixed"),
        pytest.param(
            "UPDATE requests SET replica = CASE WHEN cached_host > 0 THEN 'a' ELSE 'b' END",
            "50 requests served from host memory and 50", id="replicas_never_mixed"),
    ],
)  # fmt: skip
def test_each_missing_thing_is_named(store: Store, damage: str, missing: str) -> None:
    """Counters tell of loads without times; the requests lack one thing each."""
    rows = simulate(Replica(), Traffic(count=1500))
    store.load(rows)
    samples = counters(rows, 0.0)
    for sample in samples:
        del sample["offload_seconds"]
    store.add("engine_samples", samples)
    assert store.one("offload_verdict")["verdict"] == PAYS
    store.execute(damage)
    verdict = store.one("offload_verdict")
    assert (verdict["verdict"], verdict["basis"]) == (UNKNOWN, None)
    assert missing in verdict["missing"].split("; ")[0]
    assert "time of loads from host memory" in verdict["missing"]
    assert "time of writes to host memory" in verdict["missing"]
    assert verdict["sentence"].startswith(f"cannot be told (missing: {verdict['missing']})")


def test_too_few_rows_cannot_be_told_and_the_sentence_counts_them(store: Store) -> None:
    rows = simulate(Replica(), Traffic(count=120, shortest_tokens=1024, longest_tokens=1100))
    store.load(rows)
    served = sum(row["cached_host"] > 0 for row in rows)
    assert 40 <= served <= 70
    verdict = store.one("offload_verdict")
    assert verdict["verdict"] == UNKNOWN
    assert f"comparable of {served} served)" in verdict["missing"]


def test_a_wide_interval_cannot_be_told(store: Store) -> None:
    """A true gain of 4 % under noise of a factor of 2, in few rows: both answers would fit."""
    rows = simulate(
        Replica(load_seconds_per_token=235e-6, noise=0.7, crowding=0.0), Traffic(count=700)
    )
    store.load(rows)
    verdict = store.one("offload_verdict")
    assert verdict["served_requests"] >= 50
    assert verdict["verdict"] == UNKNOWN
    assert verdict["missing"].startswith("more requests")


def test_counters_alone_tell_where_loads_and_writes_take_less_than_computing(store: Store) -> None:
    """100 µs a token against 250 µs, 60 s of writes; rows of the tap name no tiers."""
    rows = simulate(Replica(crowding=0.0), Traffic())
    for row in rows:  # no tier, and only what was computed can tell the prefill speed
        row["cached_tokens"] = row["cached_device"]
        row["cached_device"] = row["cached_host"] = row["cached_disk"] = row["cached_remote"] = None
    plain = simulate(Replica(crowding=0.0), Traffic(in_tier=lambda busy: 0.0))
    for row in plain:
        row["cached_device"] = row["cached_host"] = row["cached_disk"] = row["cached_remote"] = None
    store.load(plain)
    loads = simulate(Replica(crowding=0.0), Traffic())
    store.add("engine_samples", counters(loads, 100e-6, store_seconds=60))
    verdict = store.one("offload_verdict")
    assert (verdict["verdict"], verdict["basis"]) == (PAYS, "counters")
    assert verdict["load_seconds_per_token"] == pytest.approx(100e-6)
    assert verdict["prefill_seconds_per_token"] == pytest.approx(250e-6, rel=0.03)
    assert "cached tokens by tier on request rows" in verdict["missing"]
    assert "by counters; no first tokens were compared" in verdict["sentence"]


@pytest.mark.parametrize(
    ("load_seconds_per_token", "store_seconds", "ranks", "right"),
    [
        (400e-6, 60, None, UNKNOWN),  # up to two ranks' time in one sum: 200 µs would be faster
        (400e-6, 60, 1, DOES_NOT),
        (400e-6, 60, 2, PAYS),
        (100e-6, 10_000, None, UNKNOWN),  # written for longer than all loads saved
        (100e-6, 10_000, 1, UNKNOWN),
    ],
)
def test_counters_alone_with_ranks_and_writes(
    store: Store, load_seconds_per_token: float, store_seconds: float, ranks: int | None, right: str
) -> None:
    plain = simulate(Replica(crowding=0.0), Traffic(in_tier=lambda busy: 0.0))
    for row in plain:
        row["cached_device"] = row["cached_host"] = row["cached_disk"] = row["cached_remote"] = None
    store.load(plain)
    loads = simulate(Replica(crowding=0.0), Traffic())
    store.add("engine_samples", counters(loads, load_seconds_per_token, store_seconds))
    verdict = store.one("offload_verdict", ranks=ranks)
    assert verdict["verdict"] == right
    asked_for_ranks = "ranks whose load times the page adds up" in verdict["missing"]
    assert asked_for_ranks == (load_seconds_per_token == 400e-6 and ranks is None)


def test_loads_of_a_replica_that_tells_no_times_are_no_gain(store: Store) -> None:
    """Loads of one take longer than computing; what those of another take nobody knows."""
    plain = simulate(Replica(crowding=0.0), Traffic(in_tier=lambda busy: 0.0))
    for row in plain:
        row["cached_device"] = row["cached_host"] = row["cached_disk"] = row["cached_remote"] = None
    store.load(plain)
    timed = counters(simulate(Replica(crowding=0.0), Traffic()), 400e-6, store_seconds=60)
    store.add("engine_samples", timed)
    more = {"load/host": 100_000_000, "store/host": 1000}
    store.add("engine_samples", [
        {**timed[0], "replica": "b", "offload_tokens": more, "offload_seconds": None}
    ])  # fmt: skip
    verdict = store.one("offload_verdict")
    assert (verdict["verdict"], verdict["basis"]) == (UNKNOWN, None)
    assert verdict["load_seconds_per_token"] == pytest.approx(400e-6)
    assert "ranks whose load times the page adds up" in verdict["missing"]


def test_one_row_a_tier_and_model(store: Store) -> None:
    """Host memory pays on one model, disk does not on another."""
    store.load(simulate(Replica(), Traffic(count=2000)))
    slow = simulate(Replica(load_seconds_per_token=500e-6), Traffic(count=2000, tier="disk"))
    store.load([{**row, "model": "n", "replica": "b"} for row in slow])
    rows = store.ask("offload_verdict", by="model")
    assert [(row["model"], row["tier"], row["verdict"]) for row in rows] == [
        ("m", "host", PAYS), ("n", "disk", DOES_NOT),
    ]  # fmt: skip
    assert [row["tier"] for row in store.ask("offload_verdict", replica="b")] == ["disk"]
    assert [row["tier"] for row in store.ask("offload_verdict", model="m")] == ["host"]


def test_queue_time_and_order_of_rows_do_not_matter(new_store: Callable[[], Store]) -> None:
    """The same queue on top of every row's, and the rows in another order: the same answer."""
    for seed in range(4):
        chance = random.Random(seed)
        rows = simulate(
            Replica(load_seconds_per_token=chance.uniform(50e-6, 300e-6), crowding=0.2),
            Traffic(count=1200, in_tier=lambda busy: 0.7 if busy else 0.4), seed=seed,
        )  # fmt: skip
        added = chance.randrange(1, 8000) / 1000
        later = [
            {**row, **{name: row[name] + added for name in
                       ("queue_seconds", "ttft_seconds", "e2e_seconds")}}
            for row in chance.sample(rows, len(rows))
        ]  # fmt: skip
        plain, queued = new_store(), new_store()
        plain.load(rows)
        queued.load(later)
        ours, theirs = plain.one("offload_verdict"), queued.one("offload_verdict")
        assert ours["verdict"] == theirs["verdict"]
        assert ours["served_requests"] == theirs["served_requests"]
        for name in ("difference_seconds", "low_seconds", "high_seconds"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-6)


def test_a_clock_that_starts_at_scheduling_has_no_queue_in_it(store: Store) -> None:
    """The same traffic measured from scheduling on: queue time is not taken off again."""
    rows = simulate(Replica(crowding=0.0), Traffic(count=1500))
    store.load(rows)
    arrival = store.one("offload_verdict")
    store.execute(
        "UPDATE requests SET ttft_seconds = ttft_seconds - queue_seconds,"
        " ttft_point = 'engine_scheduled'"
    )
    scheduled = store.one("offload_verdict")
    assert scheduled["difference_seconds"] == pytest.approx(arrival["difference_seconds"], abs=1e-6)
