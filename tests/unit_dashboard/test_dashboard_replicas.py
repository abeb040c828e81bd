"""What stands out among replicas, and the state of one in words."""

import pytest

from dashboard.replicas import down, outliers, state


def test_outliers_are_far_and_worst_first() -> None:
    rows = [{"replica": name, "outlier_score": score, "up": up}
            for name, score, up in (("a", 3.4, True), ("b", 4.0, True), ("c", 9.0, False),
                                    ("d", None, None))]  # fmt: skip
    assert outliers(rows) == ["c", "b"]
    assert down(rows) == ["c"]


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
    ],
)
def test_state_of_a_replica_in_words(row: dict[str, object], said: str) -> None:
    assert state(row) == said
