"""The weekly cache report: built from questions alone, shown as HTML, Markdown, JSON or text."""

from collections.abc import Callable, Mapping
from datetime import datetime

from dashboard.report import as_json, html, markdown
from dashboard.report.asking import Answers
from dashboard.report.build import build
from dashboard.report.summary import summary
from dashboard.report.week import WeekReport
from dashboard.report.weeks import Week

__all__ = ["FORMATS", "Answers", "Week", "WeekReport", "build", "last_full_week", "render",
           "summary"]  # fmt: skip

FORMATS: Mapping[str, Callable[[WeekReport], bytes]] = {
    "html": html.render,
    "md": markdown.render,
    "json": as_json.render,
}


def render(report: WeekReport, format: str) -> bytes:
    """The report as "html", "md" or "json"; ValueError names them for anything else."""
    if format not in FORMATS:
        raise ValueError(f"a report is written as {', '.join(FORMATS)}, not as {format!r}")
    return FORMATS[format](report)


def last_full_week(now: datetime, zone: str) -> Week:
    """The latest week that is over by the zone's clocks."""
    return Week.of(now, zone).back(1)
