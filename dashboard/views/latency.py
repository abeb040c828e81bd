"""Latency: what a hit saves, compared only where hits and misses are alike."""

import streamlit as st

from dashboard import columns, page, tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.figures import latency
from dashboard.figures.numbers import percent
from dashboard.figures.rows import at_point, points_of
from dashboard.words import NEXT_STEP_ROWS, point_name, purpose


def body(answers: Answers) -> None:
    """Summary, distributions, equal lengths, dose line; the engines' histogram otherwise."""
    points = points_of(answers.rows("ttft_distribution"))
    if not points:
        _engine_only(answers)
        return
    point = points[0]
    if len(points) > 1:
        point = choose("Measured at", "point", {name: point_name(name) for name in points}, point)
    threshold = percent(answers.state.get("hit_threshold_ratio"))
    st.caption(
        f"TTFT measured at the {point_name(point)}. A hit has at least {threshold} of its eligible "
        f"tokens cached, a miss none. {page.window_words(answers)} {page.rows_kept(answers)}"
    )
    _overall(answers, point)
    for column, within in zip(st.columns(2), ("prompt", "computed"), strict=True):
        with column:
            _equal_length(answers, point, within)
    _dose(answers, point)


def _overall(answers: Answers, point: str) -> None:
    st.markdown("##### All lengths together", help="Hits have other lengths than misses: do not "
                "read these medians as what a hit saves. The next two charts compare like with "
                "like.")  # fmt: skip
    outcomes = at_point(answers.rows("ttft_by_outcome"), point)
    tables.show(latency.in_order(outcomes), columns.OUTCOMES, "outcomes", alt="TTFT by outcome")
    left, right = st.columns(2)
    with left:
        rows = at_point(answers.rows("ttft_distribution"), point)
        figure = latency.distribution(rows)
        page.chart(figure, "latency-spread", "TTFT distributions of hits and misses")
    with right:
        figure = latency.ttft_over_time(
            at_point(answers.over_time("ttft_over_time"), point),
            step_seconds=answers.step_seconds,
            since=answers.window.since, until=answers.window.until,
        )  # fmt: skip
        page.time_chart(figure, "latency-over-time", "TTFT of hits and misses over time")


def _equal_length(answers: Answers, point: str, within: str) -> None:
    st.markdown(f"##### At equal {within} length", help="Mark: median. Line: up to p95. Hollow: "
                f"fewer than {latency.FEW_REQUESTS} requests.")  # fmt: skip
    rows = at_point(answers.rows("ttft_by_outcome", within=within), point)
    figure = latency.at_equal_length(rows, within)
    page.chart(figure, f"latency-{within}", f"TTFT by outcome at equal {within} length")


def _dose(answers: Answers, point: str) -> None:
    st.markdown("##### TTFT against computed tokens", help=purpose("ttft_dose"))
    dose = at_point(answers.rows("ttft_dose"), point)
    page.chart(latency.dose_line(dose), "latency-dose", "TTFT by computed count")
    speed = answers.rows("prefill_speed")
    if speed:
        tables.show(speed, columns.SPEED, "speed", alt="Estimated prefill speed by replica")


def _engine_only(answers: Answers) -> None:
    rows = answers.rows("engine_ttft", by="replica")
    shown = (
        "Shown is the engines' own histogram: it cannot tell hits from misses."
        if rows
        else "The engines timed none in it either."
    )
    st.info(f"No request row in this window carries a TTFT. {shown} One step adds that: "
            f"`{NEXT_STEP_ROWS}`")  # fmt: skip
    st.caption(page.window_words(answers))
    if not rows:
        return
    page.engine_filter_note(answers.filters)
    tables.show(rows, columns.ENGINE_TTFT, "engine-ttft", alt="TTFT by replica")


page.show("latency", body)
