"""Times as people write them: ISO 8601, or a span back from now such as 24h."""

import re
from datetime import UTC, datetime, timedelta

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_time(text: str, now: datetime | None = None) -> datetime:
    """The UTC instant meant by `text`; a time without a zone is taken as UTC.

    A span ("90m", "24h", "7d") is counted back from `now`. Raises ValueError with a remedy for
    anything else, the empty string included.
    """
    span = _SPAN.fullmatch(text.strip())
    if span:
        seconds = float(span[1]) * _SECONDS[span[2]]
        return _back(now or datetime.now(UTC), seconds, text)
    try:
        return as_utc(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        raise ValueError(_advice(text)) from None


def as_utc(moment: datetime) -> datetime:
    """The same instant in UTC; a moment without a zone is taken as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_without_zone(moment: datetime) -> datetime:
    """The same instant as columns of the store keep it; without a zone it is taken as UTC."""
    return as_utc(moment).replace(tzinfo=None)


def _back(now: datetime, seconds: float, text: str) -> datetime:
    try:
        return as_utc(now) - timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(_advice(text)) from None


def _advice(text: str) -> str:
    return f"{text!r} is not a time; write 2026-03-02T09:15:00Z or a span back from now like 24h"
