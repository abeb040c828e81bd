"""The weekly cache report: built from questions alone, shown as HTML, Markdown, JSON or text."""

from collections.abc import Callable, Mapping
from datetime import datetime

from dashboard.figures.rows import Row
from dashboard.report import as_json, html, markdown
from dashboard.report.asking import Answers
from dashboard.report.build import build
from dashboard.report.span import first_data, last_data
from dashboard.report.summary import summary
from dashboard.report.week import WeekReport
from dashboard.report.weeks import Week

__all__ = [
    "FORMATS", "Answers", "Week", "WeekReport", "build", "default_week", "last_full_week",
    "render", "summary",
]  # fmt: skip

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


def default_week(answers: Answers, now: datetime, zone: str) -> Week:
    """The latest full week, or the last one with data where that is earlier; where data only began
    after it, the week it began in."""
    week = last_full_week(now, zone)
    state: list[Row] = answers.ask("store_state", {}).to_pylist()
    last, first = (last_data(state[0]), first_data(state[0])) if state else (None, None)
    if last is not None:
        week = min(week, Week.of(last, zone))
    return week if first is None else max(week, Week.of(first, zone))


def last_full_week(now: datetime, zone: str) -> Week:
    """The latest week that is over by the zone's clocks."""
    return Week.of(now, zone).back(1)
