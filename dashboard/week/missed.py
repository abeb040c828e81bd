"""Why tokens missed, on the page Week: the same values as in the report's files."""

from dataclasses import asdict

import streamlit as st

from dashboard import page, tables
from dashboard.figures import causes
from dashboard.figures.rows import Row
from dashboard.report import WeekReport
from dashboard.report.missed_shown import beneath, crossed_words, layout_words
from dashboard.report.missed_values import WhyMissed
from dashboard.tables import Column
from dashboard.week.page_one import missing

CAUSES = (
    Column("cause", "cause", "text", "missed_change"),
    Column("meaning", "what it says", "text", meaning="The cause in a few words."),
    Column("tokens", "tokens", "count", "missed_change"),
    Column("prompt_ratio", "of prompt tokens", "ratio", "missed_change"),
    Column("prompt_ratio_before", "before", "ratio", "missed_change"),
    Column("change_ratio", "change", "points", "missed_change"),
)
TEMPLATES = (
    Column("template", "template", "name", meaning="Given or found; most missed tokens first."),
    Column("prompt_tokens", "prompt tokens", "count", "waterfall"),
    Column("missed_tokens", "missed tokens", "count", meaning="Its prompt tokens not cached."),
    Column("missed_ratio", "missed", "bar", meaning="missed tokens / its prompt tokens."),
    Column("cause", "mostly", "text", meaning="The cause of most of them."),
    Column("cause_ratio", "of its prompt tokens", "ratio", meaning="What that cause took."),
)
LAYOUT = (
    Column("template", "template", "name", "layout"),
    Column("kind", "kind", "text", "layout"),
    Column("frequency", "changes", "text", "layout"),
    Column("gain_ratio", "a fix wins about", "ratio", "layout"),
    Column("advice", "what it is, and what to do", "text", "layout"),
    Column("command", "shows the text", "text", "layout"),
)


def show(report: WeekReport) -> None:
    """The waterfall with its tables, or what is missing."""
    made = report.missed
    if not made.prompt_tokens:
        missing(report, "missed")
        return
    st.markdown(made.sentence)
    page.chart(causes.waterfall(_waterfall(made)), "week-waterfall", "What became of the tokens")
    st.caption(beneath(report))
    rows = [asdict(each) for each in made.causes]
    tables.show(rows, CAUSES, "week-causes", alt="Missed tokens by cause")
    if made.templates:
        rows = [asdict(each) for each in made.templates]
        tables.show(rows, TEMPLATES, "week-missed-templates", alt="Templates that missed most")
    if made.layout:
        st.caption(layout_words(report))
        rows = [asdict(each) for each in made.layout]
        tables.show(rows, LAYOUT, "week-layout", alt="Layout findings")
    for each in made.crossed:
        st.text(crossed_words(each))


def _waterfall(made: WhyMissed) -> Row:
    """The sums under the names of the question `waterfall`."""
    return {
        "prompt_tokens": made.prompt_tokens,
        "cached_tokens": made.cached_tokens,
        **{f"{each.cause}_tokens": each.tokens for each in made.causes},
    }
