"""The on-call screen on the dashboard: the same words as the exporter's page and the terminal."""

import re
from datetime import datetime

import streamlit as st

from dashboard import columns, tables
from dashboard.answers import Answers, asked, version_time
from dashboard.client import exporter_url, runbook
from dashboard.controls import narrow
from dashboard.figures.safe import code_span
from queries.on_call.contributors import Contributors
from queries.on_call.screen import Looking, Screen, look
from queries.on_call.verdict import TONE_WORDS, Tone
from queries.on_call.words import LONGEST, clock, points

# All readers share an answer for so long; a drop is judged by the minute.
ROUND_SECONDS = 60
_COLOURS: dict[Tone, str] = {"page": "red", "ticket": "orange", "good": "green", "unknown": "gray"}


def on_call(answers: Answers) -> Screen:
    """The screen at the end of the page's window, under its filters."""
    window, filters = answers.window, answers.filters.dimension_filters()
    looking = Looking(at=None if window.live else window.until, filters=filters)
    return look(asked, looking, version_time(), _quoted, round_seconds=ROUND_SECONDS)


def _quoted(text: object) -> str:
    """A name or a piece of evidence inside Markdown, of which there is room for all."""
    return code_span(text, LONGEST)


def head(screen: Screen) -> None:
    """Telemetry faults, the verdict, the runbook, the strip."""
    if screen.faults:
        told = "\n".join(f"- {fault}" for fault in screen.faults)
        st.warning(f"**Telemetry faults: what follows may be wrong**\n\n{told}")
    st.markdown(f":{_COLOURS[screen.tone]}-badge[{TONE_WORDS[screen.tone]}]")
    st.markdown(f"#### {screen.verdict}")
    strip = " · ".join(f"{name} {value}" for name, value in screen.strip)
    st.caption(strip)
    if screen.runbook:
        _what_to_do(screen.runbook)


def pain(screen: Screen) -> None:
    """Does it hurt, in a line, with what each figure is compared with."""
    if screen.pain is None:
        return
    told = "; ".join(
        f"{measure.name} {measure.value} ({measure.against})" for measure in screen.pain.measures
    )
    st.markdown(f"**{screen.pain.words}.** {told}.")


def marks(screen: Screen, since: datetime) -> None:
    """What the letters of the chart mean; it may begin later than the six hours of the screen."""
    shown = [mark for mark in screen.chart.marks if mark.at >= since] if screen.chart else []
    if shown:
        st.caption(" · ".join(
            f"**{mark.letter}** {_clock(screen, mark.at)} {mark.words}" for mark in shown
        ))  # fmt: skip


def _clock(screen: Screen, at: datetime) -> str:
    return clock(at, screen.zone, screen.until)


def contributors(told: Contributors) -> None:
    """The largest parts of the drop; a click looks into one."""
    if not told.parts:
        return
    st.markdown("##### Largest contributors")
    for part in told.parts:
        words, button = st.columns([5, 1], vertical_alignment="center")
        words.markdown(
            f"**{points(part.change_ratio)}** {part.dimension} {code_span(part.value)}: {part.why}"
        )
        if part.dimension in _FILTERED:
            button.button("Look into it", key=f"part-{part.dimension}-{part.value}",
                          on_click=narrow, args=(part.dimension, part.value))  # fmt: skip
    st.caption(f"Parts of {points(told.change_ratio)} in all, against {told.against}.")


_FILTERED = ("template", "route", "tenant")


def missed(screen: Screen) -> None:
    """Which causes of missed tokens grew, where that is known."""
    if screen.missed:
        st.markdown(screen.missed)


def below(screen: Screen) -> None:
    """Models, KV memory and alerts."""
    if screen.models:
        st.markdown("##### Models")
        tables.show(screen.models, columns.JUDGED, "now-models", alt="Models, as judged")
    if screen.memory:
        st.markdown("##### KV memory")
        tables.show(screen.memory, columns.sized(columns.MEMORY, screen.memory), "now-memory",
                    alt="KV memory by replica")  # fmt: skip
    if screen.alerts:
        st.markdown("##### Alerts")
        tables.show(screen.alerts, columns.ALERTS, "now-alerts", alt="Alerts")
        for name in dict.fromkeys(str(row["alert"]) for row in screen.alerts):
            if name != screen.runbook:
                _what_to_do(name)


def _what_to_do(alert: str) -> None:
    """The runbook, on the spot: who is woken shall not look for a file. It comes from the exporter,
    as people's browsers may not reach that one."""
    with st.expander(f"What to do: {alert}"):
        st.markdown(_runbook(exporter_url(), alert) or f"See `docs/runbooks/{alert}.md`.")


@st.cache_data(ttl=3600, max_entries=100, show_spinner=False)
def _runbook(url: str, alert: str) -> str:
    """Without its title and links, which lead to files; smaller headings."""
    lines = runbook(url, alert).splitlines()
    kept = [re.sub("^## ", "###### ", line) for line in lines if not line.startswith("# ")]
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", "\n".join(kept)).strip()
