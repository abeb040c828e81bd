"""What a page looks at: time window, comparison and filters, read from and written to its address.

The address is the only place where this is kept, so that a link reproduces the view.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta

from queries.times import as_utc

RANGES = {"1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}
DEFAULT_RANGE = "6h"
COMPARISONS = {"previous": "the time before", "week": "a week earlier", "off": "nothing"}
DIMENSIONS = ("model", "route", "template", "tenant")
# As in queries/views/common.sql: the shortest step that needs at most 300 points.
STEPS_SECONDS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800)
_SPAN = re.compile(r"([1-9]\d{0,4})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Window:
    """[since, until) in UTC. `live` windows move with the clock."""

    since: datetime
    until: datetime
    live: bool = False

    @property
    def length(self) -> timedelta:
        """How long the window is; never 0."""
        return self.until - self.since

    def step_seconds(self, points: int = 300) -> int:
        """The shortest round step that needs at most so many points for this window."""
        wanted = self.length.total_seconds() / points
        return next((step for step in STEPS_SECONDS if step >= wanted), STEPS_SECONDS[-1])

    def earlier(self, by: timedelta) -> "Window":
        """The window of the same length, moved back."""
        return Window(self.since - by, self.until - by)


@dataclass(frozen=True)
class Filters:
    """The shared choices of all pages. None = all values; '' = rows without the value."""

    range: str = DEFAULT_RANGE
    since: datetime | None = None
    until: datetime | None = None
    compare: str = "previous"
    model: str | None = None
    route: str | None = None
    template: str | None = None
    tenant: str | None = None

    @classmethod
    def from_address(cls, address: Mapping[str, str]) -> "Filters":
        """Read a query string. What cannot be understood counts as not given."""
        since, until = _time(address.get("since")), _time(address.get("until"))
        fixed = since is not None and until is not None and since < until
        span, compare = address.get("range", ""), address.get("compare", "")
        return cls(
            range=span if span_length(span) else DEFAULT_RANGE,
            since=since if fixed else None,
            until=until if fixed else None,
            compare=compare if compare in COMPARISONS else "previous",
            **{name: address.get(name) for name in DIMENSIONS},
        )

    def to_address(self) -> dict[str, str]:
        """The query string that gives these filters again; defaults are left out."""
        found: dict[str, str] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default and value is not None:
                found[field.name] = iso(value) if isinstance(value, datetime) else value
        if self.fixed:
            found.pop("range", None)
        return found

    @property
    def fixed(self) -> bool:
        """True when the window has fixed ends and does not move with the clock."""
        return self.since is not None

    def with_value(self, dimension: str, value: str | None) -> "Filters":
        """The same view with one filter changed."""
        changes: dict[str, object] = {dimension: value}
        return replace(self, **changes)  # type: ignore[arg-type]  # names checked by callers

    def window(self, now: datetime, last_data: datetime | None, demo: bool = False) -> Window:
        """The window these filters mean at `now` (already rounded by the caller).

        A range counts back from now. When the last data is older than the whole range, or the
        store is a demo that has ended, it counts back from the last data instead of showing
        an empty page; the page says so.
        """
        if self.since is not None and self.until is not None:
            return Window(self.since, self.until)
        length = span_length(self.range) or timedelta(hours=6)
        ended = last_data is not None and now - last_data > (timedelta(0) if demo else length)
        if last_data is None or not ended:
            return Window(now - length, now, live=True)
        until = last_data.replace(microsecond=0) + timedelta(seconds=1)
        return Window(until - length, until)

    def comparison(self, window: Window) -> Window | None:
        """The window compared with; None when nothing is."""
        if self.compare == "off":
            return None
        return window.earlier(self.shift(window))

    def shift(self, window: Window) -> timedelta:
        """How far back the comparison lies."""
        return timedelta(days=7) if self.compare == "week" else window.length

    def dimension_filters(self) -> dict[str, str]:
        """The filters that are set, by name."""
        values = {name: getattr(self, name) for name in DIMENSIONS}
        return {name: value for name, value in values.items() if value is not None}


def span_length(text: str) -> timedelta | None:
    """Length of a range such as 90m, 6h or 7d, at most 10 years; None if it is not one."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    length = timedelta(**{_UNITS[match[2]]: int(match[1])})
    return length if length <= timedelta(days=3660) else None


def iso(moment: datetime) -> str:
    """A UTC time as addresses and the query API have it: whole seconds, with Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(text: str | None) -> datetime | None:
    """A time from an address as UTC; without a zone it is taken as UTC."""
    if not text:
        return None
    try:
        return as_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None
