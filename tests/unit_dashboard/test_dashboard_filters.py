"""Windows and filters: what an address means and how it is written."""

from datetime import UTC, datetime, timedelta

import pytest

from dashboard.filters import Filters, Window, span_length

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 30, hour, minute, tzinfo=UTC)


def test_an_empty_address_is_the_last_six_hours_against_the_six_before() -> None:
    filters = Filters.from_address({})
    window = filters.window(NOW, None)
    assert window == Window(at(6), NOW, live=True)
    assert filters.comparison(window) == Window(at(0), at(6))
    assert filters.to_address() == {}


@pytest.mark.parametrize(
    "address",
    [
        {"range": "90m"},
        {"range": "7d", "compare": "week", "model": "m", "route": "r"},
        {"tenant": ""},
        {"template": "<b>&=?#", "compare": "off"},
        {"since": "2026-11-01T00:00:00Z", "until": "2026-11-02T12:30:15Z"},
    ],
)
def test_an_address_survives_reading_and_writing(address: dict[str, str]) -> None:
    assert Filters.from_address(address).to_address() == address


@pytest.mark.parametrize(
    "address",
    [
        {"range": "banana"},
        {"range": "0h"},
        {"range": "99999d"},
        {"compare": "yesterday"},
        {"since": "2026-11-02T00:00:00Z"},
        {"since": "2026-11-02T00:00:00Z", "until": "2026-11-01T00:00:00Z"},
        {"since": "soon", "until": "later"},
        {"since": "0001-01-01T00:00:00+14:00", "until": "2026-01-01"},
        {"colour": "blue"},
    ],
)
def test_what_cannot_be_understood_counts_as_not_given(address: dict[str, str]) -> None:
    assert Filters.from_address(address) == Filters()


def test_a_time_with_another_zone_is_the_same_instant() -> None:
    given = {"since": "2026-11-30T09:00:00+09:00", "until": "2026-11-30T01:00:00"}
    assert Filters.from_address(given).window(NOW, None) == Window(at(0), at(1))


def test_a_fixed_window_wins_over_a_range_and_does_not_move() -> None:
    given = {"range": "1h", "since": "2026-11-30T01:00:00Z", "until": "2026-11-30T02:00:00Z"}
    filters = Filters.from_address(given)
    assert filters.fixed
    assert filters.window(NOW, NOW) == Window(at(1), at(2))


def test_a_range_counts_back_from_now_while_data_is_inside() -> None:
    assert Filters(range="1h").window(NOW, at(11, 30)) == Window(at(11), NOW, live=True)


def test_a_range_counts_back_from_the_last_data_when_all_is_older() -> None:
    shown = Filters(range="1h").window(NOW, at(9))
    assert shown.until == at(9) + timedelta(seconds=1)
    assert shown.length == timedelta(hours=1)
    assert not shown.live


def test_a_demo_counts_back_from_its_end() -> None:
    assert Filters().window(NOW, at(11), demo=True).until == at(11) + timedelta(seconds=1)


def test_comparison_with_a_week_before_and_with_nothing() -> None:
    window = Window(at(6), NOW)
    assert Filters(compare="off").comparison(window) is None
    week = Filters(compare="week").comparison(window)
    assert week == Window(at(6) - timedelta(days=7), NOW - timedelta(days=7))


def test_not_given_and_all_are_different_filters() -> None:
    assert Filters(tenant="").dimension_filters() == {"tenant": ""}
    assert Filters().dimension_filters() == {}
    assert Filters(tenant="a").with_value("tenant", None) == Filters()


@pytest.mark.parametrize(
    ("hours", "points", "step_seconds"),
    [(1, 300, 60), (6, 300, 120), (6, 150, 300), (24, 150, 600), (24 * 7, 150, 7200),
     (24 * 30, 150, 21600), (24 * 3650, 150, 604800)],
)  # fmt: skip
def test_steps_are_round_and_few(hours: int, points: int, step_seconds: int) -> None:
    assert Window(NOW - timedelta(hours=hours), NOW).step_seconds(points) == step_seconds


@pytest.mark.parametrize(
    ("text", "minutes"), [("90m", 90), ("6h", 360), ("7d", 10080), ("h", None), ("-1h", None)]
)
def test_length_of_a_range(text: str, minutes: int | None) -> None:
    assert span_length(text) == (None if minutes is None else timedelta(minutes=minutes))
