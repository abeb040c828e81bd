"""Why, tab Causes: what became of every prompt token, over time, and by whom."""

from datetime import timedelta

import streamlit as st

from dashboard import page, tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.figures import causes
from dashboard.figures.rows import Row, number
from dashboard.filters import Window
from dashboard.missed_words import caution, sentence
from dashboard.why.columns import MISSED, waterfall_columns
from dashboard.words import purpose

DIMENSIONS = ("template", "route", "tenant", "model", "replica")
# Kept by whole hours, which count by their start.
BY_HOUR = ("template", "tenant")
RESOLUTION = timedelta(microseconds=1)


def body(answers: Answers) -> None:
    """The sentence, the waterfall beside the course, and the groups; or what is missing."""
    row = answers.first("waterfall")
    if not number(row, "requests"):
        _nothing(row)
        return
    st.markdown(sentence(row, "**"))
    late = "Minutes are explained two minutes late."
    st.caption(f"{caution(row)} {late} {page.window_words(answers)}")
    left, right = st.columns(2)
    with left:
        st.markdown("##### Every prompt token", help=purpose("waterfall"))
        page.chart(causes.waterfall(row), "why-waterfall", "Cached and missed tokens by cause")
    with right:
        st.markdown("##### Over time", help=purpose("missed_tokens_over_time"))
        figure = causes.over_time(
            answers.over_time("missed_tokens_over_time"), step_seconds=answers.step_seconds,
            since=answers.window.since, until=answers.window.until,
        )  # fmt: skip
        page.time_chart(figure, "why-over-time", "Missed tokens by cause over time")
    tables.show(answers.rows("missed_tokens"), MISSED, "missed", alt="Missed tokens by cause")
    _groups(answers)
    st.caption("A cause says where a token was lost. What undoing it would win, only a replay "
               "says: of what another replica computed much would have been evicted here "
               "too.")  # fmt: skip


def _nothing(row: Row) -> None:
    if number(row, "chainless_prompt_tokens"):
        st.info("Requests in this window carry no chains of block hashes, so nobody can tell what "
                "was seen before. One step adds them: put the tap before the engine, or send "
                "token ids or prompts with the log (docs/chains.md).")  # fmt: skip
    elif number(row, "late_prompt_tokens"):
        st.info("All requests of this window came after their minutes were sealed. "
                "`prefixscope attribute --store …` explains them.")  # fmt: skip
    elif number(row, "unreported_prompt_tokens"):
        st.info("No request in this window reports its cached tokens, so nothing can be explained.")
    else:
        st.info("No explained requests in this window: causes are named two minutes late, of "
                "request rows with hashes of their prompts. Where no such rows come, one step adds "
                "them: put the tap before the engine (`prefixscope tap`), or send token ids or "
                "prompts with the log (docs/chains.md).")  # fmt: skip


def _no_groups(by: str, window: Window) -> str:
    """Why nothing is shown by a dimension although causes are known."""
    first_hour = (window.since - RESOLUTION + timedelta(hours=1)).replace(
        minute=0, second=0, microsecond=0
    )
    if by in BY_HOUR and first_hour >= window.until:
        return (
            f"Causes by {by} are kept by the hour, and none begins in this window: choose a longer "
            "one, or group by route, model or replica."
        )
    return f"Nothing is kept by {by} with these filters."


def _groups(answers: Answers) -> None:
    by = choose("Group by", "by", {name: name for name in DIMENSIONS}, "template")
    rows = answers.rows("waterfall", by=by)
    known = [row for row in rows if number(row, "prompt_tokens")]
    if not known:
        st.caption(_no_groups(by, answers.window))
        return
    page.chart(causes.by_group(rows, by), f"why-{by}", f"Causes by {by}")
    tables.show(known, waterfall_columns(by, known), f"why-{by}-table", alt=f"Causes by {by}")
