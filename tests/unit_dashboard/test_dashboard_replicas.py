"""The state of a replica in words."""

import pytest

from dashboard.replicas import state


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"up": False, "error": "timed out"}, "down: timed out"),
        ({"up": False, "error": None}, "down: no answer"),
        ({"up": True, "frozen": True}, "frozen: its counters stand still"),
        ({"up": True, "caching_enabled": False}, "prefix caching is off"),
        ({"up": True, "missing_metrics": ["x", "y"]}, "missing: x, y"),
        ({"up": True, "missing_metrics": []}, "up"),
        ({"up": None}, "not scraped"),
        ({"up": True, "observer": "engine"}, "up"),
        ({"up": True, "observer": "router"}, "up, a router and no replica"),
        ({"up": True, "observer": "kv_store"}, "up, a KV store and no replica"),
    ],
)
def test_state_of_a_replica_in_words(row: dict[str, object], said: str) -> None:
    assert state(row) == said
