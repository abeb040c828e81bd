"""Numbers, names and times as people read them. Unknown is a dash, never 0."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from queries.times import as_utc

Row = Mapping[str, Any]
Rows = Sequence[Row]
Quoted = Callable[[object], str]

UNKNOWN = "–"
NOT_GIVEN = "(not given)"
ABOUT = ("model", "route", "template", "tenant", "replica")
LONGEST = 160
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def plain(text: object, longest: int = LONGEST) -> str:
    """A name on one line and of bounded length; '' and None are "(not given)".

    Control and direction characters are replaced, so that a name can neither break nor reorder
    the line it stands in, nor steer a terminal.
    """
    if text is None or text == "":
        return NOT_GIVEN
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def number(row: Row, column: str) -> float | None:
    """A numeric column as a float; None where it is absent, NULL or not finite."""
    value = row.get(column)
    if value is None or isinstance(value, str | bytes):
        return None
    real = float(value)
    return real if real - real == 0 else None  # inf - inf and nan - nan are not 0


def moment(value: object) -> datetime:
    """A time of a row, ISO text or without a zone, as UTC."""
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(time, datetime):
        raise TypeError(f"not a time: {value!r}")
    return as_utc(time)


def about(row: Row) -> str:
    """What an alert is about: "model llama, replica pod-1"; "" if it names nothing."""
    told = [f"{name} {plain(row[name])}" for name in ABOUT if row[name]]
    return ", ".join([*told, plain(row["subject"])] if row["subject"] else told)


def percent(ratio: float | None) -> str:
    """A ratio in whole percent; what is not quite nothing or all never rounds to it."""
    if ratio is None:
        return UNKNOWN
    if 0 < ratio < 0.005:
        return "< 1 %"
    if 0.995 <= ratio < 1:
        return "> 99 %"
    return f"{ratio * 100:.0f} %"


def band(low: float | None, high: float | None) -> str:
    """ "69–74 %"; one figure where both round to it."""
    if low is None or high is None:
        return UNKNOWN
    ends = f"{low * 100:.0f}", f"{high * 100:.0f}"
    return f"{ends[0]} %" if ends[0] == ends[1] else f"{ends[0]}–{ends[1]} %"


def points(change_ratio: float | None) -> str:
    """The difference of two ratios in percentage points, with its sign."""
    if change_ratio is None:
        return UNKNOWN
    change = round(change_ratio * 100, 1)
    return f"{change:+,.1f} points" if change else "0.0 points"


def whole(value: float | None) -> str:
    """A count with thousands marks."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """A latency: milliseconds below one second."""
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 9.995 else f"{value:,.0f} s"


def age(length: timedelta) -> str:
    """Seconds, minutes, hours or days: the largest of which there are two."""
    total = max(round(length.total_seconds()), 0)
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if total >= 2 * size:
            return f"{total // size} {unit}"
    return f"{total} s"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def clock(instant: datetime, zone: ZoneInfo, beside: datetime) -> str:
    """The local time of day; with the weekday where `beside` is on another day."""
    local = instant.astimezone(zone)
    if local.date() == beside.astimezone(zone).date():
        return f"{local:%H:%M}"
    return f"{_DAYS[local.weekday()]} {local:%H:%M}"


def weekday_clock(instant: datetime, zone: ZoneInfo) -> str:
    """ "Sunday 03:00": weekday and time of day, local."""
    local = instant.astimezone(zone)
    return f"{_DAYS[local.weekday()]} {local:%H:%M}"


def date_clock(instant: datetime, zone: ZoneInfo) -> str:
    """ "Sunday 2026-11-29 03:00": the whole local time, without its zone."""
    local = instant.astimezone(zone)
    return f"{_DAYS[local.weekday()]} {local:%Y-%m-%d %H:%M}"
