"""The question `costs`: parts add up, unknown stays unknown, freed GPU hours stay apart."""

import json
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.prices import ModelPrices, PriceSettings
from exporter.store.store import Store
from tests.log_path import NOON, SMALL, Answer, ask, load
from tests.unit_prices.conftest import PRICES, Priced

ROW = {"ts": NOON, "model": "three", "prompt_tokens": 1000}


def one(store: Store, **params: object) -> Answer:
    (row,) = ask(store, "costs", **params)
    return row


def test_no_traffic_is_no_data(store: Store, priced: Priced) -> None:
    priced()
    row = one(store)
    assert {name: value for name, value in row.items() if value} == {"gpus_per_replica": 1}
    assert row["input_usd"] is row["net_saved_usd"] is row["freed_gpu_hours"] is None
    assert ask(store, "costs", by="tenant") == []


def test_tokens_without_a_price_are_counted_by_reason(store: Store, priced: Priced) -> None:
    load(store, [
        {**ROW, "cached_tokens": 400, "output_tokens": 10},
        {**ROW, "model": "nobody-knows", "cached_tokens": 0, "output_tokens": 7},
        {**ROW, "cached_tokens": None, "prompt_tokens": 200, "output_tokens": 1},
        # It has a price, but none for cached tokens; without any it can be priced.
        {**ROW, "model": "no-reads", "cached_tokens": 30, "prompt_tokens": 40},
        {**ROW, "model": "no-reads", "cached_tokens": 0, "prompt_tokens": 5},
        {"ts": NOON, "prompt_tokens": 3, "cached_tokens": 0},
    ])  # fmt: skip
    priced()
    row = one(store)
    assert row["prompt_tokens"] == 1000 + 1000 + 200 + 40 + 5 + 3
    assert row["priced_prompt_tokens"] == 1005
    assert row["unpriced_prompt_tokens"] == 1243
    assert (row["unknown_price_tokens"], row["unknown_cached_tokens"]) == (1043, 200)
    assert row["priced_ratio"] == pytest.approx(1005 / 2248)
    # 600 x 3 + 400 x 0.3 + 5 x 1; what a row generated has a price of its own.
    assert row["input_usd"] == pytest.approx(0.001925)
    assert row["output_usd"] == pytest.approx(11 * 15 / 1e6)
    assert row["unpriced_output_tokens"] == 7
    unknown = one(store, model="nobody-knows")
    assert (unknown["input_usd"], unknown["priced_ratio"]) == (None, 0)


def test_rows_a_cache_could_not_serve_are_plain_input(store: Store, priced: Priced) -> None:
    load(store, [{**ROW, "prompt_logprobs": 1}])
    priced()
    assert one(store)["input_usd"] == pytest.approx(0.003)


def test_rows_that_name_no_writes_are_marked_where_writes_cost_more(
    store: Store, priced: Priced
) -> None:
    load(store, [
        {**ROW, "cached_tokens": 100},
        {**ROW, "cached_tokens": 100, "cache_write_tokens": 0},
        {**ROW, "cached_tokens": 100, "model": "no-writes"},
    ])  # fmt: skip
    priced()
    row = one(store)
    assert row["assumed_unwritten_tokens"] == 900
    assert row["assumptions"] == "assumes no writes where rows name none"


def test_long_prompts_are_marked_where_they_have_another_price(
    store: Store, priced: Priced
) -> None:
    tiered = {**ROW, "model": "tiered", "cached_tokens": 0}
    load(store, [
        {**tiered, "prompt_tokens": 200_000}, {**tiered, "prompt_tokens": 200_001},
    ])  # fmt: skip
    priced()
    row = one(store)
    assert row["above_tier_tokens"] == 200_001
    assert row["assumptions"] == "assumes the base price for long prompts"
    assert row["input_usd"] == pytest.approx(0.400001)


def test_writes_of_other_lifetimes_have_the_price_of_a_plain_write(
    store: Store, priced: Priced
) -> None:
    written = {"cache_write_tokens": 600, "cache_write_other": 600, "cached_tokens": 0}
    load(store, [{**ROW, **written}])
    priced()
    assert one(store)["input_usd"] == pytest.approx((400 * 3 + 600 * 3.75) / 1e6)


def test_more_read_and_written_than_the_prompt_has_no_price(store: Store, priced: Priced) -> None:
    load(store, [{**ROW, "cached_tokens": 700, "cache_write_tokens": 700}])
    priced()
    row = one(store)
    assert row["input_usd"] is None
    assert row["unpriced_prompt_tokens"] == 1000


def test_hours_kept_in_roll_ups_only_have_tokens_but_no_price(store: Store, priced: Priced) -> None:
    load(store, [{**ROW, "cached_tokens": 400, "tenant": "a"}, {**ROW, "cached_tokens": 0}])
    priced()
    before = one(store)
    store.fold()
    with store.write() as cursor:
        cursor.execute("INSERT INTO hot_since VALUES ('2026-03-03')")
        cursor.execute("DELETE FROM requests")
    row = one(store)
    assert row["older_tokens"] == row["unpriced_prompt_tokens"] == before["prompt_tokens"] == 2000
    assert row["input_usd"] is None
    by_tenant = ask(store, "costs", by="tenant")
    assert {r["tenant"]: r["older_tokens"] for r in by_tenant} == {"a": 1000, "": 1000}
    assert one(store, replica="r1")["older_tokens"] == 0


def own_and_hosted(store: Store) -> None:
    """100 requests of a model of ours at 1000 tokens a second, and 100 of a billed one."""
    rows: list[dict[str, Any]] = []
    for i in range(100):
        times = {"prompt_tokens": 1000 + 10 * i, "cached_tokens": 500}
        own = {**times, "model": "ours", "replica": "r1", "route": "chat", "tenant": "t",
               "prefill_seconds": (500 + 10 * i) / 1000}  # fmt: skip
        billed = {**times, "model": "three", "replica": "api", "route": "batch", "tenant": "t",
                  "ttft_seconds": 1 + (500 + 10 * i) / 1000, "stream": True}  # fmt: skip
        rows += [{"ts": NOON, **own}, {"ts": NOON, **billed}]
    load(store, rows)


def test_freed_gpu_hours_are_a_line_of_their_own(store: Store, priced: Priced) -> None:
    own_and_hosted(store)
    priced(gpu_hour_price=3.6, gpus_per_replica=4)
    row = one(store)
    # 100 x 500 tokens at 1000 a second are 50 seconds, on 4 GPUs.
    assert row["gpus_per_replica"] == 4
    assert row["freed_gpu_hours"] == pytest.approx(50 * 4 / 3600)
    assert row["freed_gpu_usd"] == pytest.approx(0.2)
    # The billed model alone: 50000 cached tokens at 0.3 instead of 3.
    assert row["net_saved_usd"] == pytest.approx(50_000 * 2.7 / 1e6)
    by_model = {r["model"]: r for r in ask(store, "costs", by="model")}
    assert by_model["three"]["freed_gpu_hours"] is None
    assert by_model["ours"]["net_saved_usd"] is None
    assert by_model["ours"]["freed_gpu_usd"] == pytest.approx(0.2)


def test_gpu_prices_can_be_asked_for_and_are_not_invented(store: Store, priced: Priced) -> None:
    own_and_hosted(store)
    priced()
    row = one(store)
    assert row["freed_gpu_hours"] == pytest.approx(50 / 3600)
    assert row["freed_gpu_usd"] is None
    asked = one(store, gpu_hour_price=36, gpus_per_replica=2)
    assert asked["freed_gpu_usd"] == pytest.approx(1)


@pytest.mark.parametrize("by", [None, "model", "route", "template", "tenant"])
def test_freed_hours_are_the_saved_seconds_of_prefill(
    store: Store, priced: Priced, by: str | None
) -> None:
    own_and_hosted(store)
    priced()
    saved = {row.get(by or "", ""): row for row in ask(store, "prefill", by=by, model="ours")}
    for row in ask(store, "costs", by=by, model="ours"):
        seconds = saved[row.get(by or "", "")]["saved_seconds"]
        assert seconds == pytest.approx(50)
        assert row["freed_gpu_hours"] == pytest.approx(seconds / 3600)


tokens = st.integers(0, 500)


@st.composite
def usage(draw: st.DrawFn) -> dict[str, Any]:
    """A request whose parts fit into its prompt; some say less than all."""
    read, five, hour, other, unsplit = draw(st.lists(tokens, min_size=5, max_size=5))
    plain = 1 + draw(tokens)  # a prompt of 0 tokens is one of unknown length
    row: dict[str, Any] = {
        "model": draw(st.sampled_from(["three", "five", "no-writes", "tiered", "unknown"])),
        "tenant": draw(st.sampled_from(["a", "b"])),
        "prompt_tokens": read + plain + five + hour + other + unsplit,
        "cached_tokens": draw(st.sampled_from([read, read, read, None])),
        "cache_write_tokens": five + hour + other + unsplit,
        "cache_write_5m": five, "cache_write_1h": hour, "cache_write_other": other,
        "output_tokens": draw(st.integers(0, 300)),
    }  # fmt: skip
    return {"ts": NOON, **row}


def worked_out(row: dict[str, Any]) -> tuple[Fraction, Fraction, Fraction]:
    """Input, input without caching and surcharge of one priced request, token by token."""
    costs = {key: Fraction(str(value)) for key, value in PRICES[row["model"]].items()
             if key.endswith(("token", "cost", "1hr"))}  # fmt: skip
    plain = costs["input_cost_per_token"]
    write = costs.get("cache_creation_input_token_cost", plain)
    hour = costs.get("cache_creation_input_token_cost_above_1hr", plain)
    written_hour = row["cache_write_1h"]
    written = row["cache_write_tokens"] - written_hour
    uncached = row["prompt_tokens"] - row["cached_tokens"] - row["cache_write_tokens"]
    read = row["cached_tokens"] * costs["cache_read_input_token_cost"]
    return (
        uncached * plain + read + written * write + written_hour * hour,
        row["prompt_tokens"] * plain,
        written * (write - plain) + written_hour * (hour - plain),
    )


def expected(rows: list[dict[str, Any]]) -> dict[str, Any]:
    known = [r for r in rows if r["model"] != "unknown" and r["cached_tokens"] is not None]
    sums = [sum(parts, Fraction()) for parts in zip(*map(worked_out, known), strict=True)]
    usd = [pytest.approx(float(s), abs=1e-12) for s in sums] if known else [None] * 3
    tokens = sum(r["prompt_tokens"] for r in known)
    return {
        "requests": len(rows),
        "priced_prompt_tokens": tokens,
        "unpriced_prompt_tokens": sum(r["prompt_tokens"] for r in rows) - tokens,
        "input_usd": usd[0], "input_without_caching_usd": usd[1], "write_surcharge_usd": usd[2],
    }  # fmt: skip


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(usage(), min_size=1, max_size=8))
def test_costs_are_the_sums_of_every_token(stores: Path, rows: list[dict[str, Any]]) -> None:
    (stores / "prices.json").write_text(json.dumps(PRICES))
    store = Store.open(stores / f"s{sum(1 for _ in stores.iterdir())}", SMALL)
    load(store, rows)
    ModelPrices(store, PriceSettings(file=stores / "prices.json")).update()
    whole, by_tenant = one(store), ask(store, "costs", by="tenant")
    store.close()
    groups = defaultdict(list)
    for row in rows:
        groups[row["tenant"]].append(row)
    assert {name: whole[name] for name in expected(rows)} == expected(rows)
    assert len(by_tenant) == len(groups)
    for answer in by_tenant:
        wanted = expected(groups[answer["tenant"]])
        assert {name: answer[name] for name in wanted} == wanted
    for answer in (whole, *by_tenant):
        parts = ("uncached_tokens", "read_tokens", "written_tokens")
        assert sum(answer[part] for part in parts) == answer["priced_prompt_tokens"]
        reasons = ("unknown_price_tokens", "unknown_cached_tokens", "older_tokens")
        assert sum(answer[reason] for reason in reasons) == answer["unpriced_prompt_tokens"]
