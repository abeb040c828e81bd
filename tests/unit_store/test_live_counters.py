"""Counters for Prometheus: live rows only, bounded, never falling, and exact."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.store import fold, live
from exporter.store.counters import TTFT_BOUNDS, CounterRow, Snapshot
from exporter.store.store import Store, StoreSettings
from tests import strategies
from tests.log_path import SMALL, ask, hit_ratio, load, requests

_numbers = itertools.count()


def now(**ago: float) -> str:
    return (datetime.now(UTC) - timedelta(**ago)).isoformat()


def row(**more: object) -> dict[str, object]:
    return {"request_id": f"live-{next(_numbers)}", "ts": now(), "prompt_tokens": 100,
            "cached_tokens": 64, **more}  # fmt: skip


def counters(store: Store) -> Snapshot:
    store.fold()
    return store.counters.snapshot()


def total(snapshot: Snapshot, name: str) -> int:
    return sum(getattr(series, name) for series in snapshot.requests.values())


def test_t47_hostile_names_reach_the_counters_as_they_are(store: Store) -> None:
    tenants = ['ACME "West" \\ prod\nx', "a,b=c", "tab\there", " spaced ", "日本語 🗾", "\\n", '"']
    routes = ["C:\\prompts\\new", "%s{}$1';--", "\u202eright to left"]
    rows = [row(tenant=tenant, route=route) for tenant in tenants for route in routes]
    load(store, rows, origin="http")
    series = counters(store).requests
    assert {(route, tenant) for _, route, _, tenant in series} == {
        (route, tenant) for tenant in tenants for route in routes
    }
    assert {row["tenant"] for row in ask(store, "hit_ratio", by="tenant")} == set(tenants)


def test_t49_every_label_is_bounded_and_totals_stay_right(store: Store) -> None:
    moment = now()
    line = ('{"request_id":"%d","ts":"' + moment + '","tenant":"tenant-%05d",'
            '"prompt_tokens":%d,"cached_tokens":%d}')  # fmt: skip
    rows = [line % (n, n % 10_000, 100 + n % 10_000, n % 100) for n in range(100_000)]
    for start in range(0, 100_000, 25_000):
        load(store, rows[start : start + 25_000], origin="http")
    snapshot = counters(store)
    tenants = {series[3] for series in snapshot.requests}
    assert len(tenants) <= 201
    assert "other" in tenants
    assert snapshot.folded["tenant"] == 9_800
    outcomes = ("miss_requests", "partial_requests", "hit_requests", "unknown_requests")
    assert sum(total(snapshot, name) for name in outcomes) == 100_000
    prompt = sum(100 + n % 10_000 for n in range(100_000))
    cached = sum(n % 100 for n in range(100_000))
    assert total(snapshot, "prompt_tokens") == prompt
    assert total(snapshot, "cached_tokens") == cached
    rolled = store.cursor().execute(
        "SELECT count(DISTINCT tenant), sum(requests), sum(prompt_tokens) FROM hour_rollup"
    ).fetchone()  # fmt: skip
    assert rolled is not None
    assert rolled[0] <= 201
    assert rolled[1:] == (100_000, prompt)
    by_tenant = ask(store, "hit_ratio", by="tenant")
    assert len(by_tenant) == 10_000
    assert {r["tenant"]: (r["requests"], r["prompt_tokens"]) for r in by_tenant} == {
        f"tenant-{n:05}": (10, 10 * (100 + n)) for n in range(10_000)
    }


def test_t49_label_combinations_are_bounded_as_well(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", StoreSettings(memory_limit="256MB", max_series=5))
    rows = [row(tenant=f"t{n}", route=f"r{n}") for n in range(20)]
    load(store, rows, origin="http")
    snapshot = counters(store)
    assert len(snapshot.requests) <= 6
    assert ("other", "other", "other", "other") in snapshot.requests
    assert total(snapshot, "prompt_tokens") == 2000
    store.close()


def test_t53_a_new_series_starts_with_all_its_values_and_history_is_no_growth(
    store: Store,
) -> None:
    assert counters(store).requests == {}
    assert counters(store).late_tokens == 0
    history = [row(ts=now(days=3), tenant="old", prompt_tokens=10_000_000) for _ in range(3)]
    load(store, history)
    assert counters(store).requests == {}, "a back-fill is not growth of a counter"
    load(store, [row(tenant="old", prompt_tokens=15, cached_tokens=0)], origin="http")
    (series,) = counters(store).requests.values()
    assert series == CounterRow(miss_requests=1, prompt_tokens=15, reported_prompt_tokens=15)


def test_counters_go_on_after_a_restart_where_they_stood(tmp_path: Path) -> None:
    rows = [row(tenant="a", ttft_s=0.3, e2e_s=1.0), row(tenant="b", cached_tokens=None),
            row(ts=now(days=1))]  # fmt: skip
    store = Store.open(tmp_path / "store", SMALL)
    load(store, rows, origin="http")
    store.close()
    before = store.counters.snapshot()
    again = Store.open(tmp_path / "store", SMALL)
    assert again.counters.snapshot() == before
    with again.write() as cursor:
        live.compact(cursor)
    again.close()
    third = Store.open(tmp_path / "store", SMALL)
    assert third.counters.snapshot() == before
    load(third, rows, origin="http")
    assert counters(third) == before, "known rows add nothing after a restart either"
    third.close()
    assert total(before, "prompt_tokens") == 200


def test_counters_survive_a_fold_that_was_interrupted_and_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    row_of = {tenant: row(tenant=tenant) for tenant in ("a", "b")}
    load(store, row_of.values(), origin="http")
    late = [row(tenant="c"), row(tenant="a")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "set_folded", _fail)
        with pytest.raises(ZeroDivisionError):
            load(store, late)
    before = counters(store)
    assert {series[3]: one.prompt_tokens for series, one in before.requests.items()} == {
        "a": 200, "b": 100, "c": 100,
    }  # fmt: skip
    store.close()
    again = Store.open(tmp_path / "store", SMALL)
    assert again.counters.snapshot().requests == before.requests
    again.close()


def _fail(*_: object) -> None:
    raise ZeroDivisionError


def test_rows_that_are_not_accepted_move_no_counter(store: Store) -> None:
    good = row()
    load(store, [good], origin="http")
    before = counters(store)
    conflict = {**good, "prompt_tokens": 999}
    load(store, [good, conflict, "broken"], origin="http")
    after = counters(store)
    assert after.requests == before.requests
    assert (after.late_tokens, after.ttft) == (before.late_tokens, before.ttft)
    assert after.rejected == {("log", "conflicting"): 1, ("log", "invalid_json"): 1}


def test_corrections_raise_counters_by_the_difference_only(store: Store) -> None:
    created = int(datetime.now(UTC).timestamp())

    def response(name: str, *, full: bool) -> dict[str, object]:
        usage: dict[str, object] = {"prompt_tokens": 100}
        if full:
            usage |= {"completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
        metrics = {"time_to_first_token_ms": 200.0, "queue_time_ms": 100.0}
        return {"id": name, "created": created, "usage": usage, "metrics": metrics}

    load(store, [response("a", full=False)], format="openai", origin="http")
    before = counters(store)
    assert (total(before, "prompt_tokens"), total(before, "reported_prompt_tokens")) == (100, 0)
    others = [response(f"b{n}", full=True) for n in range(5)]
    load(store, [response("a", full=True), *others], format="openai", origin="http")
    after = counters(store)
    assert fallen(before, after) == []
    assert total(after, "prompt_tokens") == 600
    assert total(after, "reported_prompt_tokens") == 600
    assert total(after, "cached_tokens") == 6 * 64
    first_tokens = sum(sum(one.buckets) for one in after.ttft.values())
    assert first_tokens >= 6, "rows beside a correction keep their first-token times"
    seconds = sum(one.seconds for one in after.ttft.values())
    assert seconds == pytest.approx(0.3 * first_tokens)


def test_a_tier_that_is_named_later_adds_no_cached_tokens(tmp_path: Path) -> None:
    """The gateway counts 64 cached tokens, the engine's row tells later that 48 came from the host.
    By tier no more were cached, and those of no tier, the rest, are no fewer than before."""
    folder, at_once = tmp_path / "store", SMALL.model_copy(update={"join_wait_seconds": 0})
    store = Store.open(folder, at_once)
    load(store, [row(request_id="other", side="engine")], origin="http")
    load(store, [row(request_id="call", side="gateway")], origin="http")
    before = counters(store)
    engines = row(request_id="call", side="engine", cached_device=16, cached_host=48)
    load(store, [engines], origin="http")
    after = counters(store)
    assert [total(snapshot, "cached_tokens") for snapshot in (before, after)] == [128, 128]
    assert (total(after, "cached_device"), total(after, "cached_host")) == (0, 0)
    # What comes with its tier is counted by it.
    load(store, [row(cached_host=64)], origin="http")
    assert total(counters(store), "cached_host") == 64
    store.close()
    store = Store.open(folder, at_once)
    assert (total(counters(store), "cached_tokens"), total(counters(store), "cached_host")) == (
        192,
        64,
    )
    store.close()


def test_a_correction_does_not_hide_first_tokens_of_its_outcome(store: Store) -> None:
    created = int(datetime.now(UTC).timestamp())

    def response(name: str, output: int) -> dict[str, object]:
        usage = {"prompt_tokens": 100, "completion_tokens": output,
                 "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip
        metrics = {"time_to_first_token_ms": 200.0, "queue_time_ms": 100.0}
        return {"id": name, "created": created, "usage": usage, "metrics": metrics}

    load(store, [response("a", 1)], format="openai", origin="http")
    load(store, [response("a", 2), *(response(f"b{n}", 1) for n in range(5))],
         format="openai", origin="http")  # fmt: skip
    (first_tokens,) = counters(store).ttft.values()
    assert sum(first_tokens.buckets) == 6
    assert first_tokens.seconds == pytest.approx(1.8)
    miss = total(counters(store), "miss_requests")
    assert miss == 6


def expected(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], CounterRow]:
    """Series of the live rows, added up in plain Python."""
    series: dict[tuple[str, ...], CounterRow] = {}
    for stored in rows:
        if stored["replica_role"] == "decode":
            continue
        if (stored["arrived"] - stored["ts"]).total_seconds() > 600:
            continue
        key = tuple(stored[label] or "" for label in ("model", "route", "template", "tenant"))
        one = series.setdefault(key, CounterRow())
        setattr(one, name := f"{stored['outcome']}_requests", getattr(one, name) + 1)
        one.prompt_tokens += stored["prompt_tokens"]
        if stored["ineligible_reason"] is not None:
            one.ineligible_prompt_tokens += stored["prompt_tokens"]
        if stored["cached_tokens"] is None or stored["ineligible_reason"] is not None:
            continue
        one.reported_prompt_tokens += stored["prompt_tokens"]
        for name in ("cached_tokens", "cached_device", "cached_host"):
            setattr(one, name, getattr(one, name) + (stored[name] or 0))
    return series


def fallen(before: Snapshot, after: Snapshot) -> list[object]:
    """Every counter that is lower than it was."""
    found: list[object] = []
    for key, old in before.requests.items():
        new = after.requests.get(key, CounterRow())
        found += [(key, name) for name in vars(old) if getattr(new, name) < getattr(old, name)]
    for outcome, old_times in before.ttft.items():
        new_times = after.ttft[outcome]
        found += [outcome for a, b in zip(old_times.buckets, new_times.buckets, strict=True)
                  if b < a]  # fmt: skip
        found += [outcome] if new_times.seconds < old_times.seconds else []
    found += ["late"] if after.late_tokens < before.late_tokens else []
    return found


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_counters_never_fall_and_equal_a_plain_sum_of_live_rows(
    shared_store: Store, data: st.DataObject
) -> None:
    ages = st.sampled_from([0.0, 1.0, 300.0, 900.0, 90_000.0])
    batches = st.lists(st.lists(strategies.ndjson_rows(), min_size=1, max_size=6), max_size=3)
    sent: list[dict[str, Any]] = []
    for batch in data.draw(batches):
        fresh = [{**one, "ts": now(seconds=data.draw(ages)),
                  "request_id": f"p{next(_numbers)}"} for one in batch]  # fmt: skip
        repeated = data.draw(st.lists(st.sampled_from(sent), max_size=3)) if sent else []
        before = counters(shared_store)
        load(shared_store, [*fresh, *repeated], origin="http")
        assert fallen(before, counters(shared_store)) == []
        sent += fresh
    stored = requests(shared_store)
    snapshot = counters(shared_store)
    assert snapshot.requests == expected(stored)
    alive = [r for r in stored if (r["arrived"] - r["ts"]).total_seconds() <= 600
             and r["replica_role"] != "decode" and r["ttft_seconds"] is not None]  # fmt: skip
    assert sum(sum(t.buckets) for t in snapshot.ttft.values()) == len(alive)
    for (model, route, outcome), times in snapshot.ttft.items():
        own = [
            r["ttft_seconds"]
            for r in alive
            if (r["model"] or "", r["route"] or "", r["outcome"]) == (model, route, outcome)
        ]
        assert times.seconds == pytest.approx(sum(own))
        for place, bound in enumerate(TTFT_BOUNDS):
            below = TTFT_BOUNDS[place - 1] if place else 0.0
            assert times.buckets[place] == sum(below < one <= bound for one in own)
    late = sum(r["prompt_tokens"] for r in stored
               if (r["arrived"] - r["ts"]).total_seconds() > 600)  # fmt: skip
    assert snapshot.late_tokens == late


def test_totals_agree_with_the_question(store: Store) -> None:
    load(store, [row(), row(cached_tokens=0), row(cached_tokens=None)], origin="http")
    snapshot, figures = counters(store), hit_ratio(store)
    for name in ("prompt_tokens", "reported_prompt_tokens", "cached_tokens"):
        assert total(snapshot, name) == figures[name]
