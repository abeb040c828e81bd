"""Now: did the hit ratio really drop, where, since when, and does it hurt?"""

import streamlit as st

from dashboard import columns, on_call, page, tables, tiles
from dashboard.answers import Answers
from dashboard.figures.over_time import ratio_with_load
from dashboard.figures.rows import Rows
from dashboard.headline import Headline, beside, headline, ratio_over_time
from dashboard.pain import Load, Ttft, load, ttft
from dashboard.replicas import table_rows
from queries.on_call.screen import Screen


def body(answers: Answers) -> None:
    """Draw the page from top to bottom, the most urgent first."""
    screen = on_call.on_call(answers)
    on_call.head(screen)
    on_call.pain(screen)
    lead, delay = headline(answers), ttft(answers)
    replicas = answers.rows("replicas")
    _tiles(lead, delay, load(answers, lead), replicas)
    st.caption(f"{beside(lead)} {page.window_words(answers)} {_against(answers)}")
    page.engine_filter_note(answers.filters)
    _chart(answers, lead, screen)
    on_call.marks(screen, answers.window.since)
    on_call.contributors(screen.contributors)
    on_call.missed(screen)
    if replicas:
        st.markdown("##### Replicas, outliers first")
        tables.show(table_rows(replicas), columns.REPLICAS, "replicas", alt="Replicas")
    on_call.below(screen)


def _against(answers: Answers) -> str:
    """What the tiles compare with, and what the verdict does."""
    words = page.comparison_words(answers)
    changes = f" Changes are against {words}." if words else ""
    return f"The verdict is on its last hour, against the same hours and load.{changes}"


def _tiles(lead: Headline, delay: Ttft, prefill: Load, replicas: Rows) -> None:
    ratio, coverage, delays, computed, queue = st.columns([1.3, 1, 2, 1.2, 1])
    with ratio:
        tiles.ratio_tile(lead)
    with coverage:
        tiles.coverage_tile(lead)
    with delays:
        tiles.ttft_tiles(delay)
    with computed:
        tiles.load_tile(lead, prefill)
    with queue:
        tiles.waiting_tile(lead, replicas)


def _chart(answers: Answers, lead: Headline, screen: Screen) -> None:
    drawn = screen.chart
    figure = ratio_with_load(
        ratio_over_time(answers, lead),
        answers.over_time("load_over_time"),
        step_seconds=answers.step_seconds, since=answers.window.since, until=answers.window.until,
        label=lead.label.lower(), before=ratio_over_time(answers, lead, before=True),
        shift=answers.filters.shift(answers.window),
        bands=drawn.bands if drawn else (), marks=drawn.marks if drawn else (),
    )  # fmt: skip
    page.time_chart(figure, "now-over-time", drawn.words if drawn else lead.label)


page.show("now", body)
