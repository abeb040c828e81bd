"""Asks questions with the window and the filters of the screen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from queries.on_call.words import Rows
from queries.registry import questions

Ask = Callable[[str, Mapping[str, object]], Rows]

WINDOW = timedelta(hours=1)


@dataclass(frozen=True)
class Asking:
    """The end of the window, the zone and the filters; a question gets those it knows."""

    ask: Ask
    until: datetime
    zone: ZoneInfo
    filters: Mapping[str, str]

    def rows(self, name: str, length: timedelta = WINDOW, **params: object) -> Rows:
        """The answer over the window of that length, or as `params` say."""
        known = questions()[name].params
        given: dict[str, object] = {
            "since": self.until - length, "until": self.until, "zone": self.zone.key,
            **self.filters,
        }  # fmt: skip
        return self.ask(name, {k: v for k, v in given.items() if k in known} | params)

    def week_before(self, instant: datetime) -> datetime:
        """The same local time a week earlier: another time in UTC where the clocks changed."""
        local = instant.astimezone(self.zone) - timedelta(days=7)
        return local.astimezone(UTC)
