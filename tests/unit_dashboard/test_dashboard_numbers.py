"""Numbers and names as people read them."""

from datetime import timedelta

import pytest

from dashboard.figures import numbers
from dashboard.figures.safe import chart_text, code_span, plain
from tests.unit_dashboard.loopback import HOSTILE


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.71249, "71.2 %"), (0.0, "0.0 %"), (1.0, "100.0 %"), (None, "–"),
     (0.0001, "< 0.1 %"), (0.9999, "> 99.9 %"), (0.9994, "99.9 %"), (0.0005, "0.1 %")],
)  # fmt: skip
def test_percent_never_rounds_to_nothing_or_all(ratio: float | None, text: str) -> None:
    assert numbers.percent(ratio) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [(-0.031, "-3.1 points"), (0.5, "+50.0 points"), (0.0001, "0.0 points"),
     (-0.0001, "0.0 points"), (None, "–")],
)  # fmt: skip
def test_points(change: float | None, text: str) -> None:
    assert numbers.points(change) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0012, "1.2 ms"), (0.084, "84 ms"), (0.9994, "999 ms"), (0.9996, "1.00 s"),
     (1.844, "1.84 s"), (12.34, "12.3 s"), (132.4, "132 s"), (4321.0, "4,321 s"), (None, "–")],
)  # fmt: skip
def test_seconds(value: float | None, text: str) -> None:
    assert numbers.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.4, "1,234,567 tokens/s"), (0.0787, "0.08 tokens/s"), (0.0, "0 tokens/s"),
     (None, "–")],
)  # fmt: skip
def test_rate(value: float | None, text: str) -> None:
    assert numbers.rate(value) == text


def test_whole_has_separators() -> None:
    assert numbers.whole(43832) == "43,832"
    assert numbers.whole(None) == "–"


@pytest.mark.parametrize(
    ("now", "before", "change"),
    [(150, 100, "+50 %"), (100, 100, "0 %"), (5, 100, "-95 %"), (5, 0, "–"), (None, 5, "–"),
     (5, None, "–")],
)  # fmt: skip
def test_relative_change_needs_a_base(now: float | None, before: float | None, change: str) -> None:
    assert numbers.signed_percent(numbers.relative(now, before)) == change


@pytest.mark.parametrize(
    ("length", "text"),
    [(timedelta(hours=6), "6 h"), (timedelta(hours=24), "24 h"), (timedelta(days=7), "7 d"),
     (timedelta(days=2, hours=4, minutes=9), "2 d 4 h"), (timedelta(seconds=90), "90 s"),
     (timedelta(minutes=61), "1 h 1 min")],
)  # fmt: skip
def test_span(length: timedelta, text: str) -> None:
    assert numbers.span(length) == text


def test_names_are_one_bounded_line() -> None:
    assert plain(None) == plain("") == "(not given)"
    assert plain("a\nb\u202ec\x00d") == "a\ufffdb\ufffdc\ufffdd"
    assert plain("x" * 500) == "x" * 59 + "…"


def test_names_in_charts_have_no_tags() -> None:
    assert chart_text("<a href=x>&lt;") == "&lt;a href=x&gt;&amp;lt;"


def test_names_in_markdown_cannot_leave_their_code_span() -> None:
    span = code_span(HOSTILE + "``` `")
    assert span.count("`") == 2
    assert span.startswith("`")
    assert span.endswith("`")
