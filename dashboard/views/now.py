"""Now: did the hit ratio really drop, where, since when, and does it hurt?"""

import streamlit as st

from dashboard import columns, page, tables, tiles
from dashboard.answers import Answers
from dashboard.figures.over_time import ratio_with_load
from dashboard.figures.rows import Rows, number
from dashboard.figures.safe import code_span
from dashboard.headline import Headline, beside, headline, ratio_over_time, where
from dashboard.pain import Load, Ttft, load, ttft
from dashboard.replicas import down, outliers, table_rows
from dashboard.verdict import Facts, verdict


def body(answers: Answers) -> None:
    """Draw the page from top to bottom, the most urgent first."""
    lead, delay = headline(answers), ttft(answers)
    prefill, replicas = load(answers, lead), answers.rows("replicas")
    st.markdown(f"#### {verdict(_facts(answers, lead, delay, prefill, replicas))}")
    _tiles(lead, delay, prefill, replicas)
    st.caption(f"{beside(lead)} {page.window_words(answers)}")
    page.engine_filter_note(answers.filters)
    _chart(answers, lead)
    if replicas:
        st.markdown("##### Replicas, outliers first")
        tables.show(table_rows(replicas), columns.REPLICAS, "replicas", alt="Replicas")


def _facts(
    answers: Answers, lead: Headline, delay: Ttft, prefill: Load, replicas: Rows
) -> Facts:
    return Facts(
        label=lead.label,
        ratio=lead.ratio,
        ratio_before=number(lead.before, "token_hit_ratio"),
        before_words=page.comparison_words(answers),
        where=where(answers, lead),
        coverage=lead.coverage if lead.basis == "log" else None,
        p50_seconds=delay.p50_seconds,
        p50_before_seconds=delay.p50_before_seconds,
        p95_seconds=delay.p95_seconds,
        p95_before_seconds=delay.p95_before_seconds,
        load=prefill.prompt,
        load_before=prefill.prompt_before,
        outliers=tuple(code_span(name) for name in outliers(replicas)),
        down=tuple(code_span(name) for name in down(replicas)),
    )


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


def _chart(answers: Answers, lead: Headline) -> None:
    figure = ratio_with_load(
        ratio_over_time(answers, lead),
        answers.over_time("load_over_time"),
        step_seconds=answers.step_seconds, since=answers.window.since, until=answers.window.until,
        label=lead.label.lower(), before=ratio_over_time(answers, lead, before=True),
        shift=answers.filters.shift(answers.window),
    )  # fmt: skip
    page.time_chart(figure, "now-over-time", f"{lead.label} over time, with the load beneath it")


page.show("now", body)
