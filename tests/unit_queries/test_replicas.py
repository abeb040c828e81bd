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


def test_what_a_dead_replica_held_is_not_told_as_now(ask: Ask, insert: Insert) -> None:
    """Its counts stay; of its memory and queue nothing is known after its last answer."""
    insert("targets", [
        {"target": "up", "up": True, "last_success": "10:01"},
        {"target": "down", "up": False, "last_success": "10:01"},
    ])  # fmt: skip
    insert("engine_samples", [
        {"replica": name, "target": name, "since": "10:00", "ts": "10:01", "prompt_tokens": 10,
         "cached_tokens": 5, "kv_usage_ratio": 0.5, "running_requests": 3, "waiting_requests": 2}
        for name in ("up", "down")
    ])  # fmt: skip
    down, up = ask("replicas")
    columns = ("prompt_tokens", "kv_usage_ratio", "running_requests", "waiting_requests")
    assert [down[column] for column in columns] == [10, None, None, None]
    assert [up[column] for column in columns] == [10, 0.5, 3, 2]


def test_of_an_earlier_moment_the_state_of_today_takes_nothing(ask: Ask, insert: Insert) -> None:
    insert("targets", [{"target": "down", "up": False, "last_success": "12:00"}])
    insert("engine_samples", [
        {"replica": "down", "target": "down", "since": "10:00", "ts": "10:01", "prompt_tokens": 10,
         "waiting_requests": 2}
    ])  # fmt: skip
    [row] = ask("replicas", until="10:30")
    assert row["waiting_requests"] == 2


def test_a_router_is_told_apart_and_stands_behind_engines(ask: Ask, insert: Insert) -> None:
    insert("targets", [
        {"target": "a-router", "up": True, "engine": "sglang_router"},
        {"target": "engine", "up": True},
        {"target": "never", "up": False},
    ])  # fmt: skip
    insert("engine_samples", [
        {"replica": name, "target": name, "observer": observer, "since": "10:00", "ts": "10:01",
         "prompt_tokens": 10}
        for name, observer in (("a-router", "router"), ("engine", "engine"))
    ])  # fmt: skip
    assert [(row["replica"], row["observer"]) for row in ask("replicas")] == [
        ("never", None), ("engine", "engine"), ("a-router", "router"),
    ]  # fmt: skip


def test_a_replica_that_is_gone_queues_nothing(ask: Ask, insert: Insert) -> None:
    """A pod that was replaced is no target any more: nothing says that it is down."""
    insert("engine_samples", [
        {"replica": name, "since": since, "ts": ts, "prompt_tokens": 10, "waiting_requests": 2}
        for name, since, ts in (("gone", "10:00", "10:01"), ("late", "10:05", "10:06"),
                                ("now", "10:15", "10:16"))
    ])  # fmt: skip
    assert {row["replica"]: row["waiting_requests"] for row in ask("replicas")} == {
        "gone": None, "late": 2, "now": 2,
    }  # fmt: skip
