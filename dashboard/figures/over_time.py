"""The hit ratio over time with the load beneath it, on one time axis."""

from collections.abc import Sequence
from datetime import timedelta

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.figures.expected import expected_bands, happened
from dashboard.figures.layout import empty_axes, no_ratio, ratio_axis, style, time_axis
from dashboard.figures.numbers import percent
from dashboard.figures.palette import BEFORE, CACHED, COMPUTED, LOAD, UNKNOWN, translucent
from dashboard.figures.rows import Row, Rows, isolated, moment, number, reported_cached, with_gaps
from queries.on_call.chart import Mark
from queries.on_call.expected import Expected

# Coverage is drawn only where it falls below this; the hover always has it.
FULL_COVERAGE = 0.95


def ratio_with_load(
    ratio: Rows,
    load: Rows,
    *,
    step_seconds: float,
    since: object,
    until: object,
    label: str,
    before: Rows = (),
    shift: timedelta = timedelta(0),
    bands: Sequence[Expected] = (),
    marks: Sequence[Mark] = (),
) -> go.Figure:
    """Token hit ratio (above) and prompt and computed tokens a second (beneath).

    `before` is an earlier window, drawn `shift` later so that both lie on one another. `bands` are
    what was expected, `marks` what happened. Steps without traffic are gaps. Without any ratio the
    upper axes stay and say so.
    """
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06,
                           row_heights=[0.6, 0.4])  # fmt: skip
    expected_bands(figure, bands)
    earlier = [{**row, "ts": moment(row["ts"]) + shift} for row in before]
    _ratio_line(figure, with_gaps(earlier, step_seconds), "before", "token_hit_ratio", BEFORE,
                dash="dot", width=1.2)  # fmt: skip
    now = with_gaps(ratio, step_seconds)
    if any((number(row, "coverage_ratio") or 1.0) < FULL_COVERAGE for row in now):
        _ratio_line(figure, now, "coverage", "coverage_ratio", UNKNOWN, dash="dash", width=1)
    _ratio_line(figure, now, label, "token_hit_ratio", CACHED, width=2)
    _load(figure, with_gaps(load, step_seconds))
    shown = [number(row, "token_hit_ratio") for row in [*now, *earlier]]
    if all(value is None for value in shown):
        no_ratio(figure)
    style(figure, 430)
    happened(figure, marks)
    time_axis(figure, since, until)
    ratio_axis(figure, shown)
    figure.update_yaxes(title="tokens/s", rangemode="tozero", tickformat=",.3~s", row=2, col=1)
    if not any(number(row, "prompt_tokens_per_second") for row in load):
        empty_axes(figure, row=2)
        figure.update_yaxes(range=[0, 1], tickvals=[0], row=2, col=1)  # not thousandths of a token
    return figure


def _ratio_line(
    figure: go.Figure, rows: list[Row], name: str, column: str, colour: str, *,
    dash: str = "solid", width: float,
) -> None:  # fmt: skip
    """One ratio; its hover names numerator and denominator where the row has them."""
    values = [number(row, column) for row in rows]
    if not rows:
        return
    figure.add_trace(
        go.Scatter(
            x=[moment(row["ts"]) for row in rows],
            y=values,
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": width, "dash": dash},
            marker={"size": [5 if alone else 0 for alone in isolated(values)], "color": colour},
            connectgaps=False,
            customdata=[_of(row, column) for row in rows],
            hovertemplate="%{y:.1%}%{customdata}",
        ),
        row=1,
        col=1,
    )


def _of(row: Row, column: str) -> str:
    """The sums behind a ratio, for its hover; empty where the row does not carry them."""
    reported, prompt = number(row, "reported_prompt_tokens"), number(row, "prompt_tokens")
    if column == "coverage_ratio":
        above, below, word = reported, prompt, "prompt"
    else:
        above, below, word = reported_cached(row), reported, "reported prompt"
    if above is None or below is None:
        return ""
    covered = None if column == "coverage_ratio" else number(row, "coverage_ratio")
    beside = "" if covered is None else f", coverage {percent(covered)}"
    return f" ({above:,.0f} of {below:,.0f} {word} tokens{beside})"


def _load(figure: go.Figure, rows: list[Row]) -> None:
    """Prompt tokens a second as the area, computed tokens a second as the line in it."""
    if not rows:
        return
    source = " (engine counters)" if rows[0].get("basis") == "engine" else ""
    traces = (
        (f"prompt tokens/s{source}", "prompt_tokens_per_second", LOAD, "tozeroy", 1.0),
        (f"computed tokens/s{source}", "computed_tokens_per_second", COMPUTED, None, 1.8),
    )
    for name, column, colour, fill, width in traces:
        values = [number(row, column) for row in rows]
        figure.add_trace(
            go.Scatter(
                x=[moment(row["ts"]) for row in rows],
                y=values,
                name=name,
                mode="lines+markers",
                line={"color": colour, "width": width},
                marker={"size": [5 if alone else 0 for alone in isolated(values)]},
                fill=fill,
                fillcolor=translucent(colour, 0.18),
                connectgaps=False,
                customdata=[_queue(row) for row in rows],
                hovertemplate="%{y:,.0f}%{customdata}" if fill else "%{y:,.0f}",
            ),
            row=2,
            col=1,
        )


def _queue(row: Row) -> str:
    """Running and waiting requests beside the load, where engines tell them."""
    parts = [
        f"{number(row, column):,.0f} {word}"
        for column, word in (("running_requests", "running"), ("waiting_requests", "waiting"))
        if number(row, column) is not None
    ]
    return f" ({', '.join(parts)})" if parts else ""
