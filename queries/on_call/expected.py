"""What was expected of each judged window: the band under the ratio."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.on_call.words import Rows, moment, number


@dataclass(frozen=True)
class Expected:
    """The band of one judged window."""

    since: datetime
    until: datetime
    low: float
    high: float
    ratio: float


def bands(judged: Rows, window: timedelta) -> tuple[Expected, ...]:
    """The expectation of each judged window, in time order; windows without one are left out."""
    found = []
    for row in sorted(judged, key=lambda row: moment(row["ts"])):
        low, high, ratio = (
            number(row, f"expected_{which}ratio") for which in ("low_", "high_", "")
        )
        if low is not None and high is not None and ratio is not None:
            since = moment(row["ts"])
            found.append(Expected(since, since + window, low, high, ratio))
    return tuple(found)
