"""What follows page one of the weekly report on the page Week, folded."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import streamlit as st

from dashboard import tables
from dashboard.figures.rows import Row
from dashboard.report import WeekReport, words
from dashboard.report.weeks import Week
from dashboard.tables import Column
from dashboard.week import missed
from dashboard.week.columns import (
    ENGINE_TTFT,
    EVICTIONS,
    INCIDENTS,
    INELIGIBLE,
    MEMORY,
    OFFLOAD,
    OUTCOMES,
    PRICES,
    REJECTS,
    SOURCES,
    TTFT_CLASSES,
    segments,
)
from dashboard.week.page_one import missing


def show(report: WeekReport) -> None:
    """Every section that has something to say."""
    for title, draw in _SECTIONS.items():
        with st.expander(title):
            draw(report)


def _happened(report: WeekReport) -> None:
    rows = [_local(report.week, row) for row in _rows(report.incidents)]
    _table("What happened", "week-incidents", rows, INCIDENTS, "Nothing is known to have.")
    if report.more_incidents:
        st.caption(f"And {report.more_incidents:,} more.")


def _local(week: Week, row: Row) -> Row:
    """The time by the clocks of the report; what is of no one part is of all."""
    return {
        **row, "ts": week.local(row["ts"]).replace(tzinfo=None), "subject": row["subject"] or "all",
    }  # fmt: skip


def _who(report: WeekReport) -> None:
    if not report.segments:
        missing(report, "movers")
    for each in report.segments:
        columns = segments(each.by, has_log=report.headline.basis == "log")
        _table(f"By {each.by}", f"week-{each.by}", _rows(each.rows), columns)


def _latency(report: WeekReport) -> None:
    missing(report, "ttft")
    _table("At equal prompt length", "week-ttft", _rows(report.ttft_classes), TTFT_CLASSES)
    _table("All lengths together: hits have other lengths than misses", "week-outcomes",
           _rows(report.outcomes), OUTCOMES)  # fmt: skip
    _table("By the engines' own histogram: hits and misses cannot be told apart",
           "week-engine-ttft", _rows(report.engine_ttft), ENGINE_TTFT)  # fmt: skip


def _memory(report: WeekReport) -> None:
    missing(report, "memory")
    _table("KV memory at the latest sample of the week", "week-memory", _rows(report.memory),
           MEMORY)  # fmt: skip
    _table("KV that left the cache: bases are never added up", "week-evictions",
           _rows(report.evictions), EVICTIONS)  # fmt: skip
    _table("Lower tiers: do they pay?", "week-offload", _rows(report.offload), OFFLOAD,
           "No lower tier was at work.")  # fmt: skip


def _prices(report: WeekReport) -> None:
    _table("What the prompts cost, at list prices", "week-prices", _rows(report.prices), PRICES,
           "No model of these rows has a known price.")  # fmt: skip
    if report.billed is not None and report.billed.price_sources:
        st.text(report.billed.price_sources)


def _quality(report: WeekReport) -> None:
    for line in words.quality_lines(report):
        st.text(line)
    _table("Where the figures come from", "week-sources", _rows(report.quality.sources), SOURCES)
    _table("Left out of every ratio, because no prefix cache could serve it", "week-ineligible",
           _rows(report.quality.ineligible), INELIGIBLE)  # fmt: skip
    _table("Rows that could not be read, of those that arrived in the week", "week-rejects",
           _rows(report.quality.rejects), REJECTS)  # fmt: skip


def _definitions(report: WeekReport) -> None:
    st.caption("Every figure is the answer to one of these questions; nothing else is computed. "
               "docs/definitions.md has every column.")  # fmt: skip
    for each in report.definitions:
        st.text(f"{each.name}: {each.question} ({each.grain})")


def _rows(values: Sequence[Any]) -> list[Row]:
    """Values of the report as rows of a table."""
    return [asdict(value) for value in values]


def _table(
    title: str, key: str, rows: list[Row], columns: Sequence[Column], nothing: str = ""
) -> None:
    if not rows:
        if nothing:
            st.caption(nothing)
        return
    st.markdown(f"**{title}**")
    tables.show(rows, columns, key, alt=title)


_SECTIONS: dict[str, Callable[[WeekReport], None]] = {
    "What happened": _happened,
    "Who": _who,
    "Why tokens missed": missed.show,
    "Latency": _latency,
    "Memory and offload": _memory,
    "Prices": _prices,
    "Data quality": _quality,
    "Definitions": _definitions,
}
