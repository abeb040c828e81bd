"""Who: whose tokens come from cache, whose are computed, and who moved."""

from functools import partial

import streamlit as st

from dashboard import columns, page, single_requests, tables
from dashboard.answers import Answers
from dashboard.controls import choose, drill
from dashboard.explained import NOTHING_TO_COMPARE, change_words, part_words
from dashboard.figures.parts import parts_bars
from dashboard.figures.rows import Row, Rows, group, number
from dashboard.figures.safe import code_span
from dashboard.figures.sparkline import sparkline
from dashboard.headline import against_before, told
from dashboard.words import NEXT_STEP_ROWS, purpose

# What a click leads to: the next finer dimension.
NEXT = {"model": "route", "route": "template", "template": "tenant", "tenant": "route"}
MOST_TRENDS = 200


def body(answers: Answers) -> None:
    """One table for the chosen dimension, then why the ratio moved."""
    if answers.state.get("level") == 0:
        _engines_only(answers)
        return
    by = choose("Group by", "by", {name: name for name in NEXT}, "route")
    rows = answers.rows("hit_ratio", by=by)
    if not rows:
        st.info("No requests in this window with these filters.")
        return
    st.caption(f"Most prompt tokens first. Click a row to look into one {by}. "
               f"{page.window_words(answers)}")  # fmt: skip
    tables.show(_with_trends(answers, "hit_ratio_over_time", rows, by), columns.who(by),
                f"who-{by}", names=by, chosen=partial(drill, by, NEXT[by]),
                alt=f"Token hit ratio by {by}")  # fmt: skip
    _why(answers, by)
    single_requests.show(answers)


def _with_trends(answers: Answers, question: str, rows: Rows, by: str) -> list[Row]:
    """The rows with a small picture of the ratio over time, and their share of all computed."""
    step, window = answers.step(48), answers.window
    series = answers.rows(question, by=by, step_seconds=step) if len(rows) <= MOST_TRENDS else []
    trends = {
        value: sparkline(own, "token_hit_ratio", window.since, window.until, step)
        for value, own in group(series, by).items()
    }
    total = sum(number(row, "computed_tokens") or 0.0 for row in rows)
    return [{**told(row, total), "trend": trends.get(row[by])} for row in rows]


def _why(answers: Answers, by: str) -> None:
    if answers.before is None:
        st.caption("Why the ratio moved needs a comparison: choose one in “Compare with”.")
        return
    rows = against_before(answers, "explain", by)
    told = change_words(rows)
    st.markdown(f"##### Why the ratio moved against {page.comparison_words(answers)}",
                help=purpose("explain"))  # fmt: skip
    st.markdown(f"{told} {part_words(by, rows, code_span)}")
    if told == NOTHING_TO_COMPARE:
        return  # an empty chart beside rows of dashes would say the same, less clearly
    bars, table = st.columns([1, 1.4])
    with bars:
        page.chart(parts_bars(rows, by), "who-parts", "Parts of the change of the ratio")
    with table:
        tables.show(rows, columns.parts(by), f"parts-{by}", alt=f"Parts of the change by {by}")


def _engines_only(answers: Answers) -> None:
    st.caption(f"By model and replica, from engine counters. {page.window_words(answers)} Engines "
               f"know no route, template or tenant: `{NEXT_STEP_ROWS}` adds them.")  # fmt: skip
    for by in ("model", "replica"):
        rows = answers.rows("engine_hit_ratio", by=by)
        if not rows:
            st.info("No prompt was counted in this window with these filters.")
            return
        shown = _with_trends(answers, "engine_hit_ratio_over_time", rows, by)
        tables.show(shown, columns.engine(by), f"who-engine-{by}", alt=f"Engine counters by {by}")


page.show("who", body)
