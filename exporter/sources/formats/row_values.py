"""What paths of a table cannot say about values of a row: text that is JSON, spans between times.

For the `reshape` of a format. What it works out stands under the key `worked_out`, so that it
hides nothing the row says itself.
"""

import json
from datetime import UTC, datetime

WORKED_OUT = "worked_out"
# Beyond it nothing is a count of tokens.
_LARGEST = 10**12


def open_texts(row: dict[str, object], *names: str) -> None:
    """Replaces values that are JSON text by what they say; other values stay."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value[:1] in ("{", "["):
            try:
                row[name] = json.loads(value)
            except (ValueError, RecursionError):
                continue


def seconds_between(start: object, end: object) -> float | None:
    """Seconds from one ISO time to another; None where either is none, or the order is wrong."""
    first, last = _moment(start), _moment(end)
    if first is None or last is None or last < first:
        return None
    return (last - first).total_seconds()


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def count(value: object) -> int | None:
    """A whole number that is not negative, or text that is one; None for anything else."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < _LARGEST or value != int(value):  # false for NaN, too
        return None
    return int(value)


def part(holder: object, name: str) -> object:
    """What an object holds under a name; None where there is no object or no such name."""
    return holder.get(name) if isinstance(holder, dict) else None
