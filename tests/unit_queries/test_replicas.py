"""Replicas: trouble first, and what stands out against its peers."""

import pytest

from tests.unit_queries.conftest import Ask, Insert


def test_outlier_comes_first(ask: Ask, insert: Insert) -> None:
    ratios = {"a": 600, "b": 610, "c": 620, "d": 100, "e": 590}
    insert("engine_samples", [
        {"replica": replica, "model": "m", "since": "10:00", "ts": "10:01",
         "prompt_tokens": 1000, "cached_tokens": cached, "kv_usage_ratio": 0.5}
        for replica, cached in ratios.items()
    ])  # fmt: skip
    rows = ask("replicas")
    assert rows[0]["replica"] == "d"
    # Median 0.6, distances 0, .01, .02, .5, .01: their median 0.01, less than the floor of 0.02.
    assert rows[0]["outlier_score"] == pytest.approx(0.5 / 0.02)
    assert [row["outlier_score"] for row in rows[1:]] == sorted(
        (row["outlier_score"] for row in rows[1:]), reverse=True
    )


def test_two_replicas_have_no_outlier(ask: Ask, insert: Insert) -> None:
    insert("engine_samples", [
        {"replica": replica, "since": "10:00", "ts": "10:01", "prompt_tokens": 10,
         "cached_tokens": cached} for replica, cached in (("a", 9), ("b", 0))
    ])  # fmt: skip
    assert {row["outlier_score"] for row in ask("replicas")} == {None}


def test_down_and_frozen_come_before_outliers(ask: Ask, insert: Insert) -> None:
    insert("targets", [
        {"target": "up", "up": True, "frozen": False},
        {"target": "frozen", "up": True, "frozen": True, "missing_metrics": ["x"]},
        {"target": "down", "up": False, "frozen": False, "error": "timed out"},
        {"target": "never", "up": False, "error": "refused"},
    ])  # fmt: skip
    insert("engine_samples", [
        {"replica": name, "target": name, "since": "10:00", "ts": "10:01", "prompt_tokens": 10,
         "cached_tokens": 5} for name in ("up", "frozen", "down")
    ])  # fmt: skip
    rows = ask("replicas")
    assert [row["replica"] for row in rows] == ["down", "never", "frozen", "up"]
    assert rows[2]["missing_metrics"] == ["x"]
    assert rows[1]["error"] == "refused"
    assert [row["replica"] for row in ask("replicas", replica="up")] == ["up"]


def test_data_parallel_ranks_share_a_target(ask: Ask, insert: Insert) -> None:
    insert("targets", [{"target": "pod", "up": True}])
    insert("engine_samples", [
        {"replica": f"pod/{rank}", "target": "pod", "since": "10:00", "ts": "10:01",
         "prompt_tokens": 10, "cached_tokens": rank} for rank in (0, 1)
    ])  # fmt: skip
    assert [(row["replica"], row["up"], row["cached_tokens"]) for row in ask("replicas")] == [
        ("pod/0", True, 0),
        ("pod/1", True, 1),
    ]
