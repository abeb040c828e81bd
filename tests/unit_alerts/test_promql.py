"""What the small reader of PromQL finds, by hand."""

import pytest

from tests.unit_alerts.promql import alternatives, asked


def names(expression: str) -> list[str]:
    return [selector.text for selector in asked(expression).selectors]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("up", ["up"]),
        ("up == 0 and on (job, instance) b[1d]", ["up", "b"]),
        ('sum by (le) (rate(a_bucket{x!="y", z=~"p|q"}[5m] offset 1w))',
         ['a_bucket{x!="y",z=~"p|q"}']),
        ('{__name__=~"a|b", c=""}', ['{__name__=~"a|b",c=""}']),
        ("sum(a) by (b) / ignoring (c) group_left (d) e", ["a", "e"]),
        ("a:b:rate5m > bool 0.5 * x # y", ["a:b:rate5m", "x"]),
        ('label_replace(a, "week", "1", "", "") or absent(b)', ["a", "b"]),
        ("max_over_time(a[2h:5m] @ end()) - -3.5e3", ["a"]),
        ("count_values('v', a) unless vector(1)", ["a"]),
    ],
)  # fmt: skip
def test_selectors(expression: str, found: list[str]) -> None:
    assert names(expression) == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("sum by (a, b) (x) / y", [(("a", "b"), ("x",))]),
        ("y + sum(x) by (a)", [(("a",), ("x",))]),
        ("x and on (a) sum by (a) (y)", [(("a",), ("x", "y")), (("a",), ("y",))]),
        ("x * on () group_left (c) y", [((), ("x", "y")), (("c",), ("x", "y"))]),
    ],
)
def test_labels_and_what_they_stand_over(
    expression: str, found: list[tuple[tuple[str, ...], tuple[str, ...]]]
) -> None:
    told = [(one.names, tuple(s.text for s in one.selectors)) for one in asked(expression).labels]
    assert told == found


def test_what_is_no_promql_is_refused() -> None:
    with pytest.raises(AssertionError, match="not PromQL at"):
        asked("sum(a) ; drop")


def test_alternatives() -> None:
    assert alternatives("(ray_)?vllm[:_]a|(b|c)d|e") == ["(ray_)?vllm[:_]a", "(b|c)d", "e"]
