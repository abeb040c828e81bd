"""The verdict line, case by case."""

import pytest

from dashboard.replicas import down, outliers, state
from dashboard.verdict import Facts, verdict, where_words


def facts(**changes: object) -> Facts:
    base: dict[str, object] = {
        "label": "Token hit ratio", "ratio": 0.712, "ratio_before": 0.743,
        "before_words": "the previous 6 h", "coverage": 1.0,
        "p50_seconds": 0.2, "p50_before_seconds": 0.2,
        "p95_seconds": 1.0, "p95_before_seconds": 1.05,
        "load": 100.0, "load_before": 100.0,
    }  # fmt: skip
    return Facts(**{**base, **changes})  # type: ignore[arg-type]


def test_a_drop_with_an_outlier() -> None:
    assert verdict(facts(outliers=("`r2`",))) == (
        "Token hit ratio 71.2 %, 3.1 points below the previous 6 h; "
        "TTFT unchanged (p95 1.00 s); replica `r2` is the outlier."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ratio_before": 0.714}, "71.2 %, as in the previous 6 h"),
        ({"ratio_before": 0.612}, "10.0 points above the previous 6 h"),
        ({"ratio_before": None}, "(nothing to compare with in the previous 6 h)"),
        ({"ratio": None}, "No token hit ratio in this window"),
        ({"p95_seconds": 2.1}, "TTFT p95 2.10 s, up 100 %"),
        ({"p95_seconds": 0.5}, "TTFT p95 500 ms, down 52 %"),
        ({"p50_seconds": 0.3}, "TTFT p50 300 ms, up 50 % (p95 unchanged)"),
        ({"p95_before_seconds": None}, "; TTFT p95 1.00 s."),
        ({"p95_seconds": None}, "TTFT not known"),
        ({"load": 140.0}, "prompt load up 40 %"),
        ({"coverage": 0.62}, "only 62.0 % of the prompt tokens report a cached count"),
        ({"down": ("`a`",)}, "`a` does not answer"),
        ({"down": ("`a`", "`b`", "`c`", "`d`")}, "`a`, `b`, `c` and 1 more do not answer"),
        ({"outliers": ("`a`", "`b`")}, "outliers: `a`, `b`"),
    ],
)
def test_clauses(changes: dict[str, object], said: str) -> None:
    assert said in verdict(facts(**changes))


def test_without_comparison_nothing_is_compared() -> None:
    line = verdict(facts(before_words="", ratio_before=None, p95_before_seconds=None))
    assert line == "Token hit ratio 71.2 %; TTFT p95 1.00 s."


def mover(name: str, extra: int | None, change: float | None) -> dict[str, object]:
    return {"template": name, "extra_computed_tokens": extra, "change_ratio": change}


@pytest.mark.parametrize(
    ("movers", "said"),
    [
        ([mover("a", 600, -0.12), mover("b", 500, -0.1)], "mostly template `a` (-12.0 points)"),
        ([mover("a", 500, -0.12), mover("b", 500, -0.1)], ""),  # none has more than half
        ([mover("a", -900, 0.3), mover("b", 100, -0.1)], "mostly template `b` (-10.0 points)"),
        ([mover("a", -900, 0.3)], ""),
        ([mover("a", None, None)], ""),
        ([mover("a", 600, -0.001)], ""),
        ([mover("`<b>`", 600, -0.12)], "mostly template `’<b>’` (-12.0 points)"),
        ([], ""),
    ],
)
def test_where_is_said_only_when_one_leads(movers: list[dict[str, object]], said: str) -> None:
    assert where_words("template", movers) == said


def test_where_stands_behind_the_drop() -> None:
    assert "below the previous 6 h, mostly x;" in verdict(facts(where="mostly x"))


def test_quiet_things_are_not_mentioned() -> None:
    assert "load" not in verdict(facts(load=110.0))
    assert "report" not in verdict(facts(coverage=0.97))


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
