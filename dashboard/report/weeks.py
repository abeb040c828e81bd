"""ISO weeks in a named time zone: their borders in UTC, their hours, the weeks before.

A week with a change of the clocks has 167 or 169 hours. Nothing here reads the clock.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_WEEK = re.compile(r"(\d{4})-?W(\d{2})")
_HOUR = timedelta(hours=1)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, order=True)
class Week:
    """One ISO week, Monday 00:00 to Monday 00:00 of the zone's clocks."""

    monday: date
    zone: str

    @classmethod
    def parse(cls, text: str, zone: str) -> "Week":
        """From "2026-W48"; ValueError says what to write instead."""
        zone_of(zone)
        found = _WEEK.fullmatch(text.strip())
        try:
            if found is None:
                raise ValueError
            monday = date.fromisocalendar(int(found[1]), int(found[2]), 1)
        except ValueError:
            raise ValueError(f"{text!r} is not a week; write it like 2026-W48") from None
        return cls(monday, zone)

    @classmethod
    def of(cls, moment: datetime, zone: str) -> "Week":
        """The week a moment lies in by the zone's clocks."""
        day = moment.astimezone(zone_of(zone)).date()
        return cls(day - timedelta(days=day.weekday()), zone)

    @property
    def name(self) -> str:
        """The week as people write it: "2026-W48"."""
        year, number, _ = self.monday.isocalendar()
        return f"{year}-W{number:02}"

    @property
    def since(self) -> datetime:
        """Its first moment, in UTC."""
        return _midnight(self.monday, self.zone)

    @property
    def until(self) -> datetime:
        """The first moment after it, in UTC."""
        return _midnight(self.monday + timedelta(days=7), self.zone)

    @property
    def hours(self) -> float:
        """Its length: 168, or 167 and 169 where the clocks change by an hour."""
        return (self.until - self.since) / _HOUR

    def back(self, weeks: int) -> "Week":
        """So many weeks earlier."""
        return Week(self.monday - timedelta(weeks=weeks), self.zone)

    def local(self, moment: datetime) -> datetime:
        """A moment by the zone's clocks."""
        return moment.astimezone(zone_of(self.zone))

    def slots(self) -> Iterator["Slot"]:
        """The hours its clocks show, in order; one that is shown twice is there twice."""
        seen: set[Slot] = set()
        moment = self.since
        while moment < self.until:
            slot = self.slot(moment)
            if slot not in seen:
                seen.add(slot)
                yield slot
            moment += timedelta(minutes=15)

    def slot(self, moment: datetime) -> "Slot":
        """The hour of its clocks a moment lies in."""
        shown = self.local(moment)
        return Slot(shown.weekday(), shown.hour, shown.fold == 1)


@dataclass(frozen=True, order=True)
class Slot:
    """An hour of the week as clocks show it: day 0 is Monday. `again`: the second time that day."""

    day: int
    hour: int
    again: bool = False


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that IANA name; ValueError says what to write instead."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name!r} is not a time zone; write an IANA name like Europe/Berlin or UTC"
        ) from None


def a_week_earlier(moment: datetime, zone: str) -> datetime:
    """The moment seven days before at which the zone's clocks show the same, in UTC."""
    shown = moment.astimezone(zone_of(zone)) - timedelta(days=7)
    return shown.astimezone(UTC)


def _midnight(day: date, zone: str) -> datetime:
    """When the day begins there, in UTC; where the clocks skip midnight, right after."""
    return datetime.combine(day, time(), zone_of(zone)).astimezone(UTC)
