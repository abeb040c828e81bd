"""The first page of the weekly report on the page Week: what a platform owner needs on Monday.

Names come from outside: sentences that hold some are shown as text, never as Markdown.
"""

from collections.abc import Iterable
from functools import partial

import streamlit as st

from dashboard import page
from dashboard.figures.numbers import points
from dashboard.figures.safe import NOT_GIVEN, code_span
from dashboard.figures.week import hours_map, weeks_bars
from dashboard.filters import DIMENSIONS, iso
from dashboard.report import FORMATS, Week, WeekReport, render, words
from dashboard.report.week import Change, Headline, Mover, Peak
from dashboard.tiles import tile

MIME = {"html": "text/html", "md": "text/markdown", "json": "application/json"}


def headline(week: Week, lead: Headline) -> None:
    """The sentence: it is drawn before the rest is known."""
    st.markdown(f"#### Cache report {week.name}")
    st.markdown(f"##### {lead.sentence}")


def show(report: WeekReport) -> None:
    """All of page one below the sentence."""
    _marks(report)
    told = (words.span_words(report), words.data_words(report), words.engine_words(report),
            words.response_cache_words(report))  # fmt: skip
    st.caption("  \n".join(line for line in told if line))
    _downloads(report)
    missing(report, "headline")
    if report.headline.token_hit_ratio is None:
        return
    _figures(report)
    _lines("Can it be trusted?", words.trust_lines(report))
    _weeks(report)
    _movers(report)
    _changes(report)
    _peak(report)
    _hours(report)


def missing(report: WeekReport, section: str) -> None:
    """What a section cannot say, and the step that would change it."""
    for gap in report.missing_of(section):
        st.caption(gap.what)
        _next_step(gap.step)


def _next_step(step: str) -> None:
    if step:
        st.code(step, language="shell", wrap_lines=True)


def _marks(report: WeekReport) -> None:
    """What makes the report less than it seems."""
    for mark in words.marks(report):
        if report.data.demo and mark == words.marks(report)[0]:
            st.info(f"{mark} It is no traffic of yours.")
        else:
            st.warning(mark)


def _downloads(report: WeekReport) -> None:
    """The report as files: made when somebody asks for one."""
    with st.container(horizontal=True):
        for name in FORMATS:
            st.download_button(
                name.upper(), partial(render, report, name), on_click="ignore",
                file_name=f"cache-report-{report.week.name}.{name}", mime=MIME[name],
                key=f"download-{name}", help=f"The report of {report.week.name} as one file.",
            )  # fmt: skip


def _figures(report: WeekReport) -> None:
    for figure, column in zip(words.figures(report), st.columns(3), strict=True):
        with column:
            tile(figure.label, figure.value, figure.note)
            st.caption(figure.note)
            _next_step(figure.step)
    st.caption(words.NOT_ADDED)


def _lines(title: str, lines: Iterable[str]) -> None:
    told = [line for line in lines if line]
    if told:
        st.markdown(f"##### {title}")
    for line in told:
        st.text(line)


def _weeks(report: WeekReport) -> None:
    st.markdown("##### Thirteen weeks")
    said = "; ".join(words.week_words(point) for point in report.weeks)
    page.chart(weeks_bars(report.weeks), "week-weeks", f"Token hit ratio by week: {said}")


def _movers(report: WeekReport) -> None:
    up, down = st.columns(2)
    for column, title, movers in ((up, "Up", report.up), (down, "Down", report.down)):
        with column:
            st.markdown(f"##### {title}")
            if not movers:
                st.caption("Nothing, by its own ratio.")
            for mover in movers:
                _mover(report, mover)
    missing(report, "movers")


def _mover(report: WeekReport, mover: Mover) -> None:
    st.markdown(f"{mover.by.capitalize()} {code_span(mover.name)}")
    st.text(words.mover_words(mover))
    st.page_link("views/who.py", label="Look into it", query_params=who_address(report, mover))


def who_address(report: WeekReport, mover: Mover) -> dict[str, str]:
    """The page Who over the week, compared with the week before, on the mover alone."""
    found = {"since": iso(report.week.since), "until": iso(report.week.until), "compare": "week"}
    name = "" if mover.name == NOT_GIVEN else mover.name
    if mover.by in DIMENSIONS and not name.endswith("…"):  # a name that was cut finds nothing
        found[mover.by] = name
    return found


def _changes(report: WeekReport) -> None:
    if not report.changes:
        return
    st.markdown("##### Changes to make")
    for number, change in enumerate(report.changes, 1):
        _change(number, change)
    st.caption("Lower and upper bound of what each could win; they are not to be added up.")


def _change(number: int, change: Change) -> None:
    with st.container(border=True):
        st.text(f"{number}. {change.sentence}")
        st.markdown(f"**{words.change_tokens(change)}**")
        told = f"{change.evidence} {change.overlaps.capitalize()}." if change.overlaps else (
            change.evidence
        )  # fmt: skip
        st.text(told)
        st.code(change.next_step, language="shell", wrap_lines=True)


def _peak(report: WeekReport) -> None:
    st.markdown("##### The hour that cost most")
    if report.peak is None:
        missing(report, "peak")
        return
    st.text(report.peak.sentence)
    st.page_link("views/now.py", label="Look at that time", query_params=_peak_address(report.peak))


def _peak_address(peak: Peak) -> dict[str, str]:
    """The page Now from three hours before it to three hours after."""
    around = 3 * (peak.until - peak.ts)
    return {"since": iso(peak.ts - around), "until": iso(peak.until + around), "compare": "week"}


def _hours(report: WeekReport) -> None:
    st.markdown("##### The week by hour")
    change = report.headline.change_ratio
    said = f"Token hit ratio by day and hour; the week's change is {points(change)}."
    page.chart(hours_map(report.hours, report.week.zone), "week-hours", said)
