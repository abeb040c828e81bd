"""The report as JSON for programs. The schema is in docs/report.md; a change of it counts it up."""

import json
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime

from dashboard.report.week import WeekReport
from dashboard.report.weeks import Week

SCHEMA = "prefixscope.report/1"


def render(report: WeekReport) -> bytes:
    """UTF-8, two spaces; null = not known. Times are UTC with Z; nothing is not a number."""
    told = {"schema": SCHEMA, **as_object(report)}
    return (json.dumps(told, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode()


def as_object(report: WeekReport) -> dict[str, object]:
    """Objects, lists, texts and numbers under the names of the dataclasses."""
    return {each.name: _value(getattr(report, each.name)) for each in fields(report)}


def _value(value: object) -> object:
    if isinstance(value, Week):
        return {"name": value.name, "zone": value.zone, "hours": value.hours,
                "since": _value(value.since), "until": _value(value.until)}  # fmt: skip
    if is_dataclass(value):
        return {each.name: _value(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [_value(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value
