"""Where a page's figures come from: which logs, whose counters, and how they came."""

from datetime import datetime, timedelta

import streamlit as st

from dashboard import columns, tables
from dashboard.answers import Answers
from dashboard.figures.rows import Row, Rows
from dashboard.figures.safe import code_span
from dashboard.words import purpose
from queries import source_words

TITLE = "Where these figures come from"
MOST_COMPARED = 20
# Ids of all calls are compared: over weeks that would take seconds at every refresh.
COMPARED_TIME = timedelta(hours=24)


def show(answers: Answers) -> None:
    """One quiet line of names, everything else behind it; what counts twice is said aloud."""
    rows = answers.rows("figure_sources")
    if not rows:
        return
    pairs = answers.rows("source_pairs", since=_compared_since(answers))
    for pair in pairs:
        if pair["added"]:
            st.warning(twice(pair))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(summary(rows), width="content")
        opened = st.popover(TITLE, type="tertiary", key="figure-sources", on_change="rerun")
    if opened.open:
        with opened:
            _everything(rows, pairs)


def _compared_since(answers: Answers) -> datetime:
    """The window, or its last day."""
    return max(answers.window.since, answers.window.until - COMPARED_TIME)


def _everything(rows: Rows, pairs: Rows) -> None:
    st.markdown("\n".join(f"- {line(row)}" for row in rows))
    if not pairs:
        st.caption("No two of them tell of the same thing.")
        return
    st.markdown("**Told by two sources, and compared** (at most the last 24 h of the window)",
                help=purpose("source_pairs"))  # fmt: skip
    told = (source_words.compared(pair, code_span) for pair in pairs[:MOST_COMPARED])
    st.markdown("\n".join(f"- {text}" for text in told))
    tables.show(pairs, columns.SOURCE_PAIRS, "source-pairs", alt="Sources compared")


def came_from(answers: Answers, kind: str) -> str:
    """For hovers: the sources of one kind (log or engine), a few of them by name; '' if none."""
    told = [row for row in answers.rows("figure_sources")
            if row["kind"] == kind and source_words.in_figures(row)]  # fmt: skip
    names = source_words.listed([source_words.name(row, code_span) for row in told])
    return f"From {names}." if names else ""


def summary(rows: Rows) -> str:
    """The sources of all figures, in one sentence; '' where there are none."""
    named = source_words.summary(rows, code_span)
    return f"From {named}." if named else ""


def line(row: Row) -> str:
    """A source with all that is known of it, as Markdown."""
    known = source_words.details(row)
    named = f"**{source_words.counted(row, code_span)}**"
    return f"{named}: {known}" if known else named


def twice(pair: Row) -> str:
    """What is added twice, and what to do about it."""
    shared = f" ({pair['shared']:,} calls)" if pair["shared"] else ""
    told = source_words.compared(pair, code_span)
    return f"Counted twice{shared}: {told}. Remedy: {source_words.remedy(pair)}."
