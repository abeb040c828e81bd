"""Faults people met in public when they priced cached tokens: usage rows in, USD out.

The figures are those of the traps, in USD; the sums are written beside them.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from exporter.store.store import Store
from tests.log_path import NOON, Answer, ask, load
from tests.unit_prices.conftest import Priced

Usage = dict[str, Any]


def message(number: int, model: str, usage: Usage) -> dict[str, Any]:
    """A response of Anthropic's Messages API."""
    return {
        "id": f"msg_{number}", "type": "message", "model": model, "stop_reason": "end_turn",
        "timestamp": NOON, "usage": usage,
    }  # fmt: skip


def anthropic(store: Store, priced: Priced, model: str, usages: Iterable[Usage]) -> Answer:
    rows = [message(number, model, usage) for number, usage in enumerate(usages)]
    load(store, rows, format="anthropic")
    priced()
    (costs,) = ask(store, "costs")
    return costs


def usd(amount: float) -> object:
    return pytest.approx(amount, abs=1e-12)


def test_t30_a_written_token_is_priced_once(store: Store, priced: Priced) -> None:
    """3 x 3 + 12304 x 3.75 + 550 x 15 = 54399 millionths; not 12307 x 3 on top."""
    usage = {
        "input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0,
        "output_tokens": 550,
    }  # fmt: skip
    costs = anthropic(store, priced, "three", [usage])
    assert costs["prompt_tokens"] == costs["priced_prompt_tokens"] == 12307
    assert (costs["uncached_tokens"], costs["written_tokens"], costs["read_tokens"]) == (
        3, 12304, 0,
    )  # fmt: skip
    assert costs["cost_usd"] == usd(0.054399)
    assert costs["input_without_caching_usd"] == usd(12307 * 3 / 1e6)
    # Nothing was read, so caching cost its surcharge: 12304 x 0.75.
    assert costs["write_surcharge_usd"] == usd(0.009228)
    assert costs["net_saved_usd"] == usd(-0.009228)


def test_t33_a_small_exclusive_input_leaves_no_negative_remainder(
    store: Store, priced: Priced
) -> None:
    usage = {
        "input_tokens": 19, "cache_read_input_tokens": 38000, "cache_creation_input_tokens": 1000,
        "output_tokens": 1,
    }  # fmt: skip
    costs = anthropic(store, priced, "three", [usage])
    assert (costs["prompt_tokens"], costs["uncached_tokens"]) == (39019, 19)
    # 19 x 3 + 38000 x 0.3 + 1000 x 3.75
    assert costs["input_usd"] == usd(0.015207)


def test_t34_cached_tokens_inside_the_prompt_are_priced_as_read_only(
    store: Store, priced: Priced
) -> None:
    row = {
        "id": "c1", "object": "chat.completion", "created": 1772452800, "model": "no-writes",
        "usage": {
            "prompt_tokens": 17903, "completion_tokens": 10, "total_tokens": 17913,
            "prompt_tokens_details": {"cached_tokens": 17817},
        },
    }  # fmt: skip
    load(store, [row], format="openai")
    priced()
    (costs,) = ask(store, "costs")
    assert (costs["prompt_tokens"], costs["uncached_tokens"]) == (17903, 86)
    assert costs["input_usd"] == usd((86 * 2 + 17817 * 1) / 1e6)


def test_t38_writes_are_priced_by_their_lifetime(store: Store, priced: Priced) -> None:
    """600000 x 6.25 + 400000 x 10."""
    usage = {
        "input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 1_000_000,
        "cache_creation": {
            "ephemeral_5m_input_tokens": 600_000, "ephemeral_1h_input_tokens": 400_000,
        },
        "output_tokens": 0,
    }  # fmt: skip
    costs = anthropic(store, priced, "five", [usage])
    assert costs["cost_usd"] == usd(7.75)
    assert costs["write_surcharge_usd"] == usd(2.75)
    assert (costs["assumed_5m_write_tokens"], costs["assumptions"]) == (0, None)


def test_t38_writes_without_a_lifetime_are_marked(store: Store, priced: Priced) -> None:
    usage = {
        "input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 1_000_000,
        "output_tokens": 0,
    }  # fmt: skip
    costs = anthropic(store, priced, "five", [usage])
    assert costs["cost_usd"] == usd(6.25)
    assert costs["assumptions"] == "assumes 5-minute writes"
    assert costs["assumed_5m_write_tokens"] == 1_000_000


def test_t39_an_answer_from_a_response_cache_costs_nothing(store: Store, priced: Priced) -> None:
    row = {
        "ts": NOON, "model": "no-writes", "prompt_tokens": 2000, "cached_tokens": 0,
        "output_tokens": 100,
    }  # fmt: skip
    replayed = {
        **row, "request_id": "b", "cached_tokens": 1500, "ineligible_reason": "response_cache"
    }  # fmt: skip
    load(store, [{**row, "request_id": "a"}, replayed])
    priced()
    (costs,) = ask(store, "costs")
    assert (costs["requests"], costs["prompt_tokens"]) == (2, 2000)
    # 2000 x 2 + 100 x 8, once
    assert costs["cost_usd"] == usd(0.0048)
    assert costs["net_saved_usd"] == usd(0)


def test_t42_unknown_usage_has_no_price(store: Store, priced: Priced) -> None:
    rows: list[dict[str, Any]] = [
        {"request_id": "a", "status": 499, "prompt_tokens": 0, "cached_tokens": 0},
        {"request_id": "b", "status": 200, "prompt_tokens": None},
        {"request_id": "c", "status": 200, "prompt_tokens": 1000, "cached_tokens": 700},
    ]
    load(store, [{"ts": NOON, "model": "no-writes", **row} for row in rows])
    priced()
    (costs,) = ask(store, "costs")
    assert (costs["requests"], costs["priced_prompt_tokens"]) == (3, 1000)
    assert costs["input_usd"] == usd((300 * 2 + 700 * 1) / 1e6)
    assert costs["output_usd"] is None  # no row says what was generated
    assert costs["cost_usd"] is None


def test_t44_reads_and_writes_are_priced_beside_the_cost_without_caching(
    store: Store, priced: Priced
) -> None:
    usage = {
        "input_tokens": 3, "cache_read_input_tokens": 100_000, "cache_creation_input_tokens": 5000,
        "output_tokens": 0,
    }  # fmt: skip
    costs = anthropic(store, priced, "three", [usage])
    # 3 x 3 + 100000 x 0.3 + 5000 x 3.75; without caching 105003 x 3
    assert costs["input_usd"] == usd(0.048759)
    assert costs["input_without_caching_usd"] == usd(0.315009)
    assert costs["net_saved_usd"] == usd(0.26625)


def test_t66_lines_of_one_response_are_priced_once(store: Store, priced: Priced) -> None:
    def line(output: int) -> Usage:
        return {
            "input_tokens": 2, "cache_read_input_tokens": 15030,
            "cache_creation_input_tokens": 8655, "output_tokens": output,
        }  # fmt: skip

    load(store, [message(1, "three", line(n)) for n in (9, 9, 159)], format="anthropic")
    priced()
    (costs,) = ask(store, "costs")
    assert (costs["requests"], costs["prompt_tokens"]) == (1, 23687)
    # 2 x 3 + 15030 x 0.3 + 8655 x 3.75 + 159 x 15
    assert costs["cost_usd"] == usd(0.03935625)


def test_a_prefix_that_expired_costs_its_write_less_the_read_it_would_have_been(
    store: Store, priced: Priced
) -> None:
    """50000 x (1.25 - 0.1) x 3 = 0.1725."""
    common = {"ts": NOON, "model": "three", "prompt_tokens": 50000}
    load(store, [
        {**common, "request_id": "read", "route": "kept", "cached_tokens": 50000,
         "cache_write_tokens": 0},
        {**common, "request_id": "written", "route": "expired", "cached_tokens": 0,
         "cache_write_tokens": 50000, "cache_write_5m": 50000},
    ])  # fmt: skip
    priced()
    by_route = {row["route"]: row["input_usd"] for row in ask(store, "costs", by="route")}
    assert by_route["expired"] - by_route["kept"] == usd(0.1725)
