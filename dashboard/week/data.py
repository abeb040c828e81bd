"""What the page Week draws: the weekly report, made from answers that all readers share.

The headline needs three questions and comes at once; the whole report needs some forty.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import streamlit as st

from dashboard.answers import asked, data_version, last_data, table, version_time
from dashboard.client import exporter_url
from dashboard.figures.rows import Row
from dashboard.report import Week, WeekReport, build
from dashboard.report.asking import Asking
from dashboard.report.span import basis_of, headline
from dashboard.report.week import Headline

MOST_WEEKS = 26
# How many data versions a report is kept: one of a week that is over changes with late rows only.
OVER_VERSIONS, RUNNING_VERSIONS = 40, 8


class SharedAnswers:
    """Questions to the exporter through the page's cache."""

    def __init__(self, versions: int) -> None:
        self._versions = versions

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        """The answer, which may be `versions` data versions old."""
        return table(name, params, versions=self._versions)


def weeks(state: Row, zone: str) -> list[Week]:
    """Weeks with data, newest first, at most MOST_WEEKS; none where the store is empty."""
    last, first = last_data(state), _first_data(state)
    if last is None or first is None:
        return []
    newest = Week.of(last, zone)
    found = [newest.back(number) for number in range(MOST_WEEKS)]
    return [week for week in found if week.until > first]


def usual(choices: list[Week]) -> Week:
    """The newest week that is over, else the one under way."""
    over = [week for week in choices if week.until <= version_time()]
    return (over or choices)[0]


def lead(week: Week) -> Headline:
    """The sentence of the week, before all the rest."""
    ask = Asking(SharedAnswers(_versions(week)), week)
    return headline(ask, basis_of(ask))


def report(week: Week) -> WeekReport:
    """The whole report of a week."""
    version = data_version() // _versions(week)
    made: WeekReport = _report(exporter_url(), week.name, week.zone, version)
    return made


@st.cache_data(ttl=900, max_entries=30, show_spinner=False)
def _report(url: str, name: str, zone: str, version: int) -> WeekReport:  # noqa: ARG001 - the key
    """Kept by exporter, week and data version. A failure is not kept."""
    week = Week.parse(name, zone)
    return build(SharedAnswers(_versions(week)), week)


def _versions(week: Week) -> int:
    return OVER_VERSIONS if week.until <= version_time() else RUNNING_VERSIONS


def state() -> Row:
    """What the store holds; an empty row for no answer at all."""
    return next(iter(asked("store_state")), {})


def _first_data(state: Row) -> datetime | None:
    times = [state.get(column) for column in ("first_ts", "engine_first_ts")]
    known = [moment.replace(tzinfo=UTC) for moment in times if isinstance(moment, datetime)]
    return min(known, default=None)
