"""What `/now` is asked for, read from its address: `?model=…&replica=…&at=2026-11-30T03:00Z`."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from exporter.errors import PrefixscopeError
from queries.on_call.screen import FILTERS, Looking
from queries.on_call.words import plain
from queries.times import as_utc

KNOWN = (*FILTERS, "at", "zone")
LONGEST = 300


class WrongAddress(PrefixscopeError):
    """A parameter of the page is unknown or cannot be read; the message says what can."""


def looking(params: Sequence[tuple[str, str]], clock: datetime) -> Looking:
    """Checked parameters. An empty one is not set: alerts link with labels they may not have."""
    given: dict[str, str] = {}
    for name, value in params:
        if name not in KNOWN:
            raise WrongAddress(f"unknown parameter {plain(name)}; known: {', '.join(KNOWN)}")
        if name in given:
            raise WrongAddress(f"{name} is given twice")
        if len(value) > LONGEST:
            raise WrongAddress(f"{name} is longer than {LONGEST} characters")
        if value:
            given[name] = value
    return Looking(
        at=_at(given.pop("at", None), clock), zone=_zone(given.pop("zone", None)), filters=given
    )


def address(looked_at: Looking, **change: str | None) -> dict[str, str]:
    """The parameters that give this view again, with some filters changed (None = not set)."""
    found: dict[str, str | None] = {**looked_at.filters, **change}
    if looked_at.at is not None:
        found["at"] = looked_at.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    if looked_at.zone is not None:
        found["zone"] = looked_at.zone.key
    return {name: value for name, value in found.items() if value}


def _at(text: str | None, clock: datetime) -> datetime | None:
    """A moment that has been; without a zone of its own it is UTC."""
    if text is None:
        return None
    try:
        # A plus sign in an address is a space once it is decoded.
        at = as_utc(datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text))
    except (ValueError, OverflowError):
        raise WrongAddress(f"at={plain(text)} is no time; write at=2026-11-30T03:00Z") from None
    if at > clock:
        raise WrongAddress(f"at={plain(text)} has not come yet; it is {clock:%Y-%m-%dT%H:%MZ}")
    return at


def _zone(text: str | None) -> ZoneInfo | None:
    if text is None:
        return None
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise WrongAddress(
            f"zone={plain(text)} is no time zone; write UTC or Europe/Berlin"
        ) from None
