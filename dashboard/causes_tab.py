"""Why, tab Causes: what became of every prompt token, over time, and by whom."""

from datetime import timedelta

import streamlit as st

from dashboard import page, tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.figures import causes
from dashboard.figures.numbers import percent, span, whole
from dashboard.figures.rows import Row, number
from dashboard.why_columns import MISSED, waterfall_columns
from dashboard.words import purpose
from replay.causes import CAUSES

DIMENSIONS = ("template", "route", "tenant", "model", "replica")
_MOST_NAMED = 3


def body(answers: Answers) -> None:
    """The sentence, the waterfall beside the course, and the groups; or what is missing."""
    row = answers.first("waterfall")
    if not number(row, "requests"):
        _nothing(row)
        return
    st.markdown(sentence(row))
    st.caption(f"{caution(row)} {page.window_words(answers)}")
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


def sentence(row: Row) -> str:
    """What the window comes to, its largest causes named."""
    prompt = number(row, "prompt_tokens") or 0.0
    found = sorted(((causes.tokens_of(row, cause), cause) for cause in CAUSES), reverse=True)
    most = [
        f"**{percent(tokens / prompt)} {cause}** ({causes.MEANINGS[cause].says})"
        for tokens, cause in found[:_MOST_NAMED]
        if tokens
    ]
    cached = percent((number(row, "cached_tokens") or 0.0) / prompt)
    missed = f" Missed most: {', '.join(most)}." if most else " Nothing missed."
    return f"Of {whole(prompt)} prompt tokens **{cached} were cached**.{missed}"


def caution(row: Row) -> str:
    """What the figures leave out, and what may only be older than what is remembered."""
    said = [f"{percent(number(row, 'explained_ratio'))} of reported prompt tokens have causes"]
    for column, words in (
        ("chainless_prompt_tokens", "without a chain"),
        ("late_prompt_tokens", "came after their minute was sealed"),
        ("unreported_prompt_tokens", "do not report cached tokens"),
    ):
        if tokens := number(row, column):
            said.append(f"{whole(tokens)} tokens {words}")
    if number(row, "new_warming_tokens"):
        horizon = number(row, "horizon_seconds")
        known = None if horizon is None else span(timedelta(seconds=horizon))
        remembered = "" if known is None else f" ({known} are known)"
        said.append(f"the log is young{remembered}: what is new may only be older than it")
    return "; ".join(said) + ". Minutes are explained two minutes late."


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
        st.info("No explained requests in this window: causes come two minutes late.")


def _groups(answers: Answers) -> None:
    by = choose("Group by", "by", {name: name for name in DIMENSIONS}, "template")
    rows = answers.rows("waterfall", by=by)
    known = [row for row in rows if number(row, "prompt_tokens")]
    if not known:
        st.caption(f"Nothing is kept by {by} with these filters.")
        return
    page.chart(causes.by_group(rows, by), f"why-{by}", f"Causes by {by}")
    tables.show(known, waterfall_columns(by, known), f"why-{by}-table", alt=f"Causes by {by}")
