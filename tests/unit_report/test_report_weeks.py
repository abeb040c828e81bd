"""Weeks by the clocks of a zone: borders, hours, daylight saving, what people may write."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dashboard.report import last_full_week
from dashboard.report.weeks import Slot, Week, a_week_earlier

ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe")


def test_t78_a_week_is_of_a_named_zone() -> None:
    """Monday 00:00 in Berlin is Sunday 23:00 UTC in winter, 22:00 in summer."""
    week = Week.parse("2026-W48", "Europe/Berlin")
    assert week.since == datetime(2026, 11, 22, 23, tzinfo=UTC)
    assert week.until == datetime(2026, 11, 29, 23, tzinfo=UTC)
    assert Week.parse("2026-W30", "Europe/Berlin").since == datetime(2026, 7, 19, 22, tzinfo=UTC)
    assert Week.parse("2026-W48", "UTC").since == datetime(2026, 11, 23, tzinfo=UTC)


def test_weeks_with_a_change_of_the_clocks() -> None:
    """29 March 2026 has no 02:00 in Berlin, 25 October has it twice."""
    spring, autumn = (Week.parse(name, "Europe/Berlin") for name in ("2026-W13", "2026-W43"))
    assert (spring.hours, autumn.hours) == (167, 169)
    assert Slot(6, 2) not in set(spring.slots())
    assert {Slot(6, 2), Slot(6, 2, again=True)} < set(autumn.slots())
    assert [len(list(week.slots())) for week in (spring, autumn)] == [167, 169]
    first = autumn.slot(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    second = autumn.slot(datetime(2026, 10, 25, 1, 30, tzinfo=UTC))
    assert (first, second) == (Slot(6, 2), Slot(6, 2, again=True))


def test_the_last_weeks_of_a_year_have_their_own_year() -> None:
    assert Week.of(datetime(2027, 1, 1, tzinfo=UTC), "UTC").name == "2026-W53"
    assert Week.parse("2026-W53", "UTC").back(1).name == "2026-W52"
    assert Week.parse("2026W01", "UTC").monday == date(2025, 12, 29)


def test_the_last_full_week_is_over_by_the_zones_clocks() -> None:
    """Sunday 23:30 UTC is Monday in Berlin: there the week is over."""
    moment = datetime(2026, 11, 29, 23, 30, tzinfo=UTC)
    assert last_full_week(moment, "Europe/Berlin").name == "2026-W48"
    assert last_full_week(moment, "UTC").name == "2026-W47"


@pytest.mark.parametrize("text", ["2026-W54", "2026-48", "W48", "2026-W00", "next", "2025-W53"])
def test_what_is_no_week_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 2026-W48"):
        Week.parse(text, "UTC")


@pytest.mark.parametrize("zone", ["Berlin", "", "../etc/passwd", "Europe", "/etc/localtime"])
def test_what_is_no_zone_is_refused_with_an_example(zone: str) -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        Week.parse("2026-W48", zone)


@settings(max_examples=40)
@given(st.dates(date(1990, 1, 1), date(2037, 1, 1)), st.sampled_from(ZONES))
@example(date(2000, 10, 23), "America/St_Johns")
def test_weeks_lie_end_to_end_and_hold_their_moments(day: date, zone: str) -> None:
    week = Week.of(datetime(day.year, day.month, day.day, 12, tzinfo=UTC), zone)
    assert week.until == week.back(-1).since
    assert Week.of(week.since, zone) == week == Week.of(week.until - timedelta(minutes=1), zone)
    assert Week.parse(week.name, zone) == week
    slots = list(week.slots())
    assert len(slots) == len(set(slots))
    # One hour more or less; two more where clocks went back at a minute past midnight, as they did
    # in Newfoundland: hours 23 and 0 then come twice, the first 0 for that minute.
    assert 167 <= len(slots) <= 170
    # In order of time; where a day comes twice in part, clocks alone cannot tell it.
    if len(slots) < 170:
        assert slots == sorted(slots, key=lambda slot: (slot.day, slot.hour, slot.again))


@given(st.dates(date(2000, 1, 1), date(2037, 1, 1)), st.integers(4, 23), st.sampled_from(ZONES))
def test_a_week_earlier_the_clocks_show_the_same(day: date, hour: int, zone: str) -> None:
    """Hours that a change of the clocks may skip or repeat are left out: 0 to 3."""
    week = Week.of(datetime(day.year, day.month, day.day, 12, tzinfo=UTC), zone)
    moment = week.local(week.since).replace(hour=hour).astimezone(UTC)
    earlier = week.local(a_week_earlier(moment, zone))
    assert (earlier.weekday(), earlier.hour) == (0, hour)
    assert earlier.date() == week.monday - timedelta(days=7)
