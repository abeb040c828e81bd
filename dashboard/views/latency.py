"""Latency: what a hit saves, compared only where hits and misses are alike."""

import streamlit as st

from dashboard import columns, page, tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.figures.latency import (
    at_equal_length,
    at_point,
    distribution,
    dose_line,
    in_order,
    points_of,
    ttft_over_time,
)
from dashboard.figures.numbers import percent
from dashboard.words import NEXT_STEP_ROWS, point_name, purpose


def body(answers: Answers) -> None:
    """Summary, distributions, equal lengths, dose line; the engines' histogram otherwise."""
    spread = answers.rows("ttft_distribution")
    points = points_of(spread)
    if not points:
        _engine_only(answers)
        return
    point = points[0]
    if len(points) > 1:
        names = {name: point_name(name) for name in points}
        point = choose("Measured at", "point", names, points[0])
    threshold = percent(answers.state.get("hit_threshold_ratio"))
    st.caption(
        f"TTFT measured at the {point_name(point)}. A hit has at least {threshold} of its eligible "
        f"tokens cached, a miss none. {page.window_words(answers)}"
    )
    _overall(answers, point)
    _equal_lengths(answers, point)
    _dose(answers, point)


def _overall(answers: Answers, point: str) -> None:
    st.markdown("##### All lengths together", help="Hits have other lengths than misses: do not "
                "read these medians as what a hit saves. The next two charts compare like with "
                "like.")  # fmt: skip
    outcomes = at_point(answers.rows("ttft_by_outcome"), point)
    tables.show(in_order(outcomes), columns.OUTCOMES, "outcomes", alt="TTFT by outcome")
    left, right = st.columns(2)
    with left:
        rows = at_point(answers.rows("ttft_distribution"), point)
        page.chart(distribution(rows, keep=answers.view), "latency-spread", "TTFT distributions")
    with right:
        over_time = at_point(answers.over_time("ttft_over_time"), point)
        figure = ttft_over_time(over_time, step_seconds=answers.step_seconds, keep=answers.view,
                                since=answers.window.since, until=answers.window.until)  # fmt: skip
        page.chart(figure, "latency-over-time", "TTFT over time")


def _equal_lengths(answers: Answers, point: str) -> None:
    for column, within in zip(st.columns(2), ("prompt", "computed"), strict=True):
        rows = at_point(answers.rows("ttft_by_outcome", within=within), point)
        with column:
            st.markdown(f"##### At equal {within} length", help="Mark: median. Line: up to p95. "
                        "Hollow: fewer than 20 requests.")  # fmt: skip
            page.chart(at_equal_length(rows, within, keep=answers.view), f"latency-{within}",
                       f"TTFT by outcome at equal {within} length")  # fmt: skip


def _dose(answers: Answers, point: str) -> None:
    st.markdown("##### TTFT against computed tokens", help=purpose("ttft_dose"))
    rows = at_point(answers.rows("ttft_dose"), point)
    page.chart(dose_line(rows, keep=answers.view), "latency-dose", "TTFT against computed tokens")
    speed = answers.rows("prefill_speed")
    if speed:
        tables.show(speed, columns.SPEED, "speed", alt="Estimated prefill speed by replica")


def _engine_only(answers: Answers) -> None:
    rows = answers.rows("engine_ttft", by="replica")
    st.info("No request row in this window carries a TTFT. What follows is the engines' own "
            "histogram: it cannot tell hits from misses. One step adds that: "
            f"`{NEXT_STEP_ROWS}`")  # fmt: skip
    page.engine_filter_note(answers.filters)
    st.caption(page.window_words(answers))
    tables.show(rows, columns.ENGINE_TTFT, "engine-ttft", alt="TTFT by replica")


page.show("latency", body)
