"""Prefill speed is a slope with conditions; saved seconds are nothing without it."""

import random
from collections.abc import Iterator

import duckdb
import pytest

from tests.unit_queries.conftest import Ask, Insert, Row


def requests(count: int, speed: float, **more: object) -> list[Row]:
    """Prompts of 1000 tokens whose 0, 10, 20 … tokens are cached; 0.05 s of fixed work each."""

    def rows() -> Iterator[Row]:
        for number in range(count):
            computed = 1000 - number % 100 * 10
            yield {
                "ts": "10:00", "replica": "a", "model": "m",
                "prompt_tokens": 1000, "cached_tokens": 1000 - computed,
                "prefill_seconds": 0.05 + computed / speed, **more,
            }  # fmt: skip

    return list(rows())


def test_slope_leaves_out_fixed_work(ask: Ask, insert: Insert) -> None:
    insert("requests", requests(100, speed=4000.0))
    (row,) = ask("prefill_speed")
    assert row == {
        "replica": "a", "model": "m", "requests": 100, "tokens_per_second": pytest.approx(4000.0),
        "overhead_seconds": pytest.approx(0.05), "fit": pytest.approx(1.0),
        "min_computed_tokens": 10, "max_computed_tokens": 1000, "basis": "prefill_seconds",
    }  # fmt: skip
    # 0 + 10 + … + 990 cached tokens = 49500, at 4000 tokens a second
    (saved,) = ask("prefill")
    assert saved["saved_tokens"] == 49_500
    assert saved["saved_seconds"] == pytest.approx(12.375)
    assert saved["unpriced_saved_tokens"] == 0


def test_no_figure_below_100_requests(ask: Ask, insert: Insert) -> None:
    insert("requests", requests(99, speed=4000.0))
    assert ask("prefill_speed") == []
    assert ask("prefill")[0]["saved_seconds"] is None


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"cached_tokens": 500}, id="no_spread"),
        pytest.param({"prefill_seconds": 0.2}, id="no_slope"),
        pytest.param({"prefill_seconds": None}, id="no_time"),
        pytest.param({"cached_tokens": None}, id="not_reported"),
        pytest.param({"ineligible_reason": "caching_off"}, id="ineligible"),
        pytest.param({"replica_role": "decode"}, id="decode"),
    ],
)
def test_no_figure_without_its_conditions(
    ask: Ask, insert: Insert, more: dict[str, object]
) -> None:
    insert("requests", requests(200, speed=4000.0, **more))
    assert ask("prefill_speed") == []


def test_negative_slope_is_no_speed(
    cursor: duckdb.DuckDBPyConnection, ask: Ask, insert: Insert
) -> None:
    insert("requests", requests(200, speed=4000.0))
    cursor.execute("UPDATE requests SET prefill_seconds = 1 - prefill_seconds")
    assert ask("prefill_speed") == []


def test_time_to_first_token_less_queue_where_the_engine_gives_no_time(
    cursor: duckdb.DuckDBPyConnection, ask: Ask, insert: Insert
) -> None:
    insert("requests", requests(100, speed=4000.0, queue_seconds=0.7, ttft_point="gateway"))
    cursor.execute(
        "UPDATE requests SET ttft_seconds = prefill_seconds + queue_seconds, prefill_seconds = NULL"
    )
    (row,) = ask("prefill_speed")
    assert row["tokens_per_second"] == pytest.approx(4000.0)
    assert row["basis"] == "ttft_seconds - queue_seconds at gateway"
    assert row["overhead_seconds"] is None, "the way from the gateway would be in it"
    cursor.execute("UPDATE requests SET ttft_point = 'engine_arrival'")
    assert ask("prefill_speed")[0]["overhead_seconds"] == pytest.approx(0.05)
    cursor.execute("UPDATE requests SET queue_seconds = NULL")
    (row,) = ask("prefill_speed")
    assert row["tokens_per_second"] == pytest.approx(4000.0)
    assert row["basis"] == "ttft_seconds, queue unknown at engine_arrival"
    assert row["overhead_seconds"] is None, "so would the queue"


def test_overhead_is_never_below_nothing(
    cursor: duckdb.DuckDBPyConnection, ask: Ask, insert: Insert
) -> None:
    insert("requests", requests(100, speed=4000.0))
    cursor.execute("UPDATE requests SET prefill_seconds = greatest(prefill_seconds - 0.1, 0)")
    assert ask("prefill_speed")[0]["overhead_seconds"] == 0.0


def test_each_replica_is_priced_at_its_own_speed(ask: Ask, insert: Insert) -> None:
    insert("requests", requests(100, speed=4000.0))
    insert("requests", requests(100, speed=1000.0, replica="b"))
    insert("requests", requests(10, speed=1000.0, replica="few", cached_tokens=100))
    assert [
        (row["replica"], row["saved_tokens"], row["saved_seconds"], row["unpriced_saved_tokens"])
        for row in ask("prefill", by="replica")
    ] == [
        ("a", 49_500, pytest.approx(12.375), 0),
        ("b", 49_500, pytest.approx(49.5), 0),
        ("few", 1000, None, 1000),
    ]
    (whole,) = ask("prefill")
    assert whole["saved_seconds"] == pytest.approx(61.875)
    assert whole["unpriced_saved_tokens"] == 1000


def test_speed_survives_noise(ask: Ask, insert: Insert) -> None:
    noise = random.Random(7)
    rows = [
        {**row, "prefill_seconds": float(str(row["prefill_seconds"])) + noise.gauss(0, 0.02)}
        for row in requests(1000, speed=4000.0)
    ]
    insert("requests", rows)
    (row,) = ask("prefill_speed")
    # Standard error of the slope: 0.02 / (288.7 * sqrt(1000)), 0.9 % of 1 / 4000; four of them.
    assert row["tokens_per_second"] == pytest.approx(4000.0, rel=0.035)
    assert 0.9 < float(str(row["fit"])) < 1.0
