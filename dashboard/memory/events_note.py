"""The parts of the Memory page that say what events are missing, and what they make uncertain."""

import streamlit as st

from dashboard.answers import Answers
from dashboard.figures.rows import Row, Rows, number
from dashboard.figures.safe import code_span
from dashboard.memory.events_missing import SETTING, flags, silent
from replay.counted import counted

MOST_NAMES = 5


def explain(what: str, answers: Answers) -> None:
    """Say that `what` needs events, and the one step: the engine's flag and our setting."""
    st.info(
        f"Only KV-cache events tell {what}, and none has come. One step: start the engines with "
        "the flag below, and name their streams in prefixscope.yml.",
        title="No KV-cache events",
    )
    show_flags(silent(answers))


def show_flags(rows: Rows) -> None:
    """The flag of each kind of engine among the rows, and the setting."""
    for engine, flag in flags(rows):
        st.caption(f"{engine}, beside its other options:")
        st.code(flag, language="shell", wrap_lines=True)
    st.caption("prefixscope.yml:")
    st.code(SETTING, language="yaml")


def partly(answers: Answers) -> None:
    """Name scraped replicas without events, where others have them."""
    rows = silent(answers)
    if not rows:
        return
    names = ", ".join(code_span(row["replica"]) for row in rows[:MOST_NAMES])
    more = f" and {len(rows) - MOST_NAMES:,} more" if len(rows) > MOST_NAMES else ""
    with st.expander(f"Scraped replicas without KV-cache events: {len(rows):,}"):
        st.caption(f"{names}{more}: what events tell is not in these figures.")
        show_flags(rows)


def uncertain(rows: Rows) -> None:
    """Say which streams may tell wrong things, why, and until when."""
    for row in [r for r in rows if r.get("uncertain")][:MOST_NAMES]:
        st.warning(
            f"What {code_span(row['replica'])} holds is uncertain: {code_span(row['uncertain'])}. "
            "Its figures below may be wrong until a replay, a clear or a restart."
        )


def unmatched(rows: Rows) -> None:
    """Say which streams bear a name that no metrics page has."""
    names = [code_span(r["replica"]) for r in rows if r.get("scraped") is False]
    if names:
        st.warning(
            f"Events of {', '.join(names[:MOST_NAMES])} match no scraped replica: memory cannot be "
            "split. Give the stream the replica's name (events: replica) or scrape its page."
        )


def health(rows: Rows) -> str:
    """One line on the streams: how many are heard, how many batches were missed."""
    connected = sum(bool(row.get("connected")) for row in rows)
    missed = sum(number(row, "missed_batches") or 0.0 for row in rows)
    lost = f", {counted(missed, 'batch', 'batches')} missed" if missed else ", no batch missed"
    return f"{counted(len(rows), 'event stream')}, {connected:,} heard live{lost}."


def reason(row: Row) -> str:
    """The reason in a row for a caption; '' where it is certain."""
    text = row.get("uncertain")
    return f"Uncertain: {code_span(text)}. " if text else ""
