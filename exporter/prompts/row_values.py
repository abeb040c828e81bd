"""What the table of a format reads from a row, for the few values that naming a prompt needs.

The table stays the one place that says where a value is; here it is read in Python.
"""

import math
import re
from datetime import UTC, datetime

from exporter.prompts.asked import at
from exporter.sources.formats.mapping import LogFormat, Row
from exporter.sources.formats.row_values import count

# Seconds since 1970 until the year 2286; larger ones are of a finer unit.
_SECONDS = 1e10


def text_value(row: Row, log_format: LogFormat, name: str) -> str | None:
    """The first path of a field that holds a text; None where none does."""
    for entry in log_format.fields:
        if entry.name == name:
            values = (at(row, path) for path in entry.paths)
            return next((value for value in values if isinstance(value, str) and value), None)
    return None


def count_value(row: Row, log_format: LogFormat, name: str) -> int | None:
    """The first path of a field, sums included, that gives a count; None where none does."""
    for entry in log_format.fields:
        if entry.name == name:
            values = (_sum(row, path) for path in entry.paths)
            return next((value for value in values if value is not None), None)
    return None


def _sum(row: Row, path: str) -> int | None:
    first, *rest = re.split(r" ([+-]) ", path)
    total = _term(row, first)
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        value = _term(row, term)
        if total is None or value is None:
            return None
        total += value if sign == "+" else -value
    return total


def _term(row: Row, term: str) -> int | None:
    return int(term) if term.isdigit() else count(at(row, term))


def moment(row: Row, log_format: LogFormat) -> datetime:
    """When a row says it was, for templates that write the date; now where it does not say."""
    for entry in log_format.fields:
        if entry.name == "ts":
            found = (_moment(at(row, path)) for path in entry.paths)
            return next((when for when in found if when is not None), datetime.now(UTC))
    return datetime.now(UTC)


def _moment(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        while _SECONDS < value < math.inf:
            value /= 1000
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
