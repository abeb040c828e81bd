"""TTFT of hits and misses: distributions, at equal length, over time, and the dose line."""

from collections.abc import Sequence
from math import sqrt

import plotly.graph_objects as go

from dashboard.figures.layout import style, time_axis
from dashboard.figures.numbers import seconds, whole
from dashboard.figures.palette import (
    BEFORE,
    COMPUTED,
    OUTCOME_COLOUR,
    OUTCOME_DASH,
    OUTCOME_SYMBOL,
    OUTCOMES,
)
from dashboard.figures.rows import Row, Rows, isolated, moment, number, with_gaps
from replay.counted import counted

FEW_REQUESTS = 20  # below this a quantile is drawn hollow


def quantile(rows: Rows, share: float) -> float | None:
    """TTFT in seconds below which `share` of the requests lie, from log-spaced buckets.

    Buckets of several outcomes may be given; of several TTFT points they must not. Within a
    bucket requests are taken to be even on the logarithm: off by at most its width (8 %).
    """
    buckets = sorted(
        (number(row, "from_seconds") or 0.0, number(row, "to_seconds") or 0.0,
         number(row, "requests") or 0.0)
        for row in rows
    )  # fmt: skip
    rank = share * sum(requests for _, _, requests in buckets)
    if rank <= 0:
        return None
    for low, high, requests in buckets:
        if rank <= requests:
            part = rank / requests
            return low * (high / low) ** part if low > 0 else high * part
        rank -= requests
    return buckets[-1][1]


def distribution(rows: Rows) -> go.Figure:
    """Share of each outcome's requests per TTFT bucket, on a logarithmic axis."""
    figure = go.Figure()
    for outcome in OUTCOMES:
        own = [row for row in rows if row.get("outcome") == outcome]
        total = sum(number(row, "requests") or 0.0 for row in own)
        if not total:
            continue
        figure.add_trace(_steps(own, outcome, total))
    figure.update_xaxes(type="log", title="TTFT, seconds", tickformat="~g", dtick="D2",
                        hoverformat=".3~g")  # fmt: skip
    figure.update_yaxes(title="share of the outcome's requests", tickformat=".0%",
                        rangemode="tozero")  # fmt: skip
    return style(figure, 330)


def _steps(rows: Rows, outcome: str, total: float) -> go.Scatter:
    """One outcome's buckets as a line; buckets without requests in between are a true 0."""
    ordered = sorted(rows, key=lambda row: number(row, "from_seconds") or 0.0)
    x: list[float] = []
    y: list[float] = []
    told: list[str] = []
    for row in ordered:
        low, high = number(row, "from_seconds") or 0.0, number(row, "to_seconds") or 0.0
        if x and low > x[-1] * 1.0001:
            _empty_between(x, y, told, low)
        requests = number(row, "requests") or 0.0
        x += [low, high]
        y += [requests / total] * 2
        told += [f"{whole(requests)} of {counted(total, 'request')}"] * 2
    return go.Scatter(
        x=x, y=y, name=outcome, mode="lines", customdata=told,
        line={"color": OUTCOME_COLOUR[outcome], "dash": OUTCOME_DASH[outcome], "width": 1.8},
        hovertemplate="%{y:.1%} (%{customdata})",
    )  # fmt: skip


def _empty_between(x: list[float], y: list[float], told: list[str], low: float) -> None:
    x += [x[-1], low]
    y += [0.0, 0.0]
    told += ["no request", "no request"]


def at_equal_length(rows: Rows, within: str) -> go.Figure:
    """Median TTFT of each outcome per length bucket, with a line up to its p95.

    `within` is "prompt" or "computed". A hollow mark stands for fewer than FEW_REQUESTS.
    """
    figure = go.Figure()
    buckets = sorted({_bounds(row) for row in rows})
    place = {bounds: index for index, bounds in enumerate(buckets)}
    for index, outcome in enumerate(OUTCOMES):
        own = [row for row in rows if row.get("outcome") == outcome]
        if own:
            shift = (index - 1.5) * 0.16
            figure.add_trace(_marks(own, outcome, [place[_bounds(row)] + shift for row in own]))
    figure.update_xaxes(
        title=f"{within} tokens",
        tickmode="array",
        tickvals=list(range(len(buckets))),
        ticktext=[_range_words(bounds) for bounds in buckets],
        range=[-0.6, max(len(buckets), 1) - 0.4],
    )
    figure.update_yaxes(title="TTFT, seconds", type="log", tickformat="~g", dtick="D2")
    style(figure, 360)
    return figure.update_layout(hovermode="closest")


def _marks(rows: Rows, outcome: str, places: Sequence[float]) -> go.Scatter:
    medians = [number(row, "p50_seconds") for row in rows]
    reach = [
        (number(row, "p95_seconds") or median or 0.0) - (median or 0.0)
        for row, median in zip(rows, medians, strict=True)
    ]
    symbol = OUTCOME_SYMBOL[outcome]
    few = [(number(row, "requests") or 0.0) < FEW_REQUESTS for row in rows]
    return go.Scatter(
        x=places, y=medians, name=outcome, mode="markers",
        marker={"color": OUTCOME_COLOUR[outcome], "size": 9,
                "symbol": [f"{symbol}-open" if hollow else symbol for hollow in few]},
        error_y={"type": "data", "array": reach, "arrayminus": [0.0] * len(reach),
                 "thickness": 1.2, "width": 3},
        customdata=[_quantiles(row) for row in rows],
        hovertemplate=f"{outcome}<br>%{{customdata}}<extra></extra>",
    )  # fmt: skip


def _quantiles(row: Row) -> str:
    return (
        f"{_range_words(_bounds(row))} tokens<br>"
        f"p50 {seconds(number(row, 'p50_seconds'))}, p95 {seconds(number(row, 'p95_seconds'))}<br>"
        f"{counted(number(row, 'requests'), 'request')}"
    )


def _bounds(row: Row) -> tuple[float, float]:
    """A length bucket; a bucket without an upper end reaches to infinity."""
    low, high = number(row, "within_from"), number(row, "within_to")
    return (low or 0.0, float("inf") if high is None else high)


def _range_words(bounds: tuple[float, float]) -> str:
    low, high = bounds
    if high == float("inf"):
        return f"{low:,.0f} and more"
    return f"{low:,.0f}" if high <= low + 1 else f"{low:,.0f}–{high:,.0f}"


def dose_line(rows: Rows) -> go.Figure:
    """TTFT against computed tokens: what one more token of prefill costs."""
    ordered = sorted(rows, key=lambda row: number(row, "from_tokens") or 0.0)
    figure = go.Figure()
    for name, column, colour, dash in (
        ("p50", "p50_seconds", COMPUTED, "solid"),
        ("p95", "p95_seconds", BEFORE, "dot"),
    ):
        if not ordered:
            continue
        figure.add_trace(
            go.Scatter(
                x=[_middle(row) for row in ordered],
                y=[number(row, column) for row in ordered],
                name=name,
                mode="lines+markers",
                line={"color": colour, "dash": dash, "width": 1.8},
                marker={"size": 6},
                customdata=[_dose(row) for row in ordered],
                hovertemplate="%{y:.3~s}s%{customdata}" if name == "p50" else "%{y:.3~s}s",
            )
        )
    figure.update_xaxes(title="computed tokens (prompt − cached)", type="log", tickformat=",~g",
                        dtick="D2", hoverformat=",.0f")  # fmt: skip
    figure.update_yaxes(title="TTFT, seconds", type="log", tickformat="~g", dtick="D2")
    return style(figure, 360)


def _middle(row: Row) -> float:
    """Geometric middle of a token bucket; at least 1, because the axis is logarithmic."""
    low, high = number(row, "from_tokens") or 0.0, number(row, "to_tokens")
    if high is None:
        return max(low, 1.0)
    return max(sqrt(max(low, 1.0) * max(high, 1.0)), 1.0)


def _dose(row: Row) -> str:
    low, high = number(row, "from_tokens"), number(row, "to_tokens")
    return f" ({whole(low)}–{whole(high)} tokens, {counted(number(row, 'requests'), 'request')})"


def ttft_over_time(rows: Rows, *, step_seconds: float, since: object, until: object) -> go.Figure:
    """p95 TTFT of each outcome over time; steps without requests are gaps."""
    figure = go.Figure()
    for outcome in OUTCOMES:
        own = with_gaps([row for row in rows if row.get("outcome") == outcome], step_seconds)
        if not own:
            continue
        values = [number(row, "p95_seconds") for row in own]
        alone = isolated(values)
        figure.add_trace(
            go.Scatter(
                x=[moment(row["ts"]) for row in own], y=values, name=f"{outcome}, p95",
                mode="lines+markers", connectgaps=False,
                line={"color": OUTCOME_COLOUR[outcome], "dash": OUTCOME_DASH[outcome],
                      "width": 1.6},
                marker={"size": [5 if dot else 0 for dot in alone]},
                customdata=[_median_and_requests(row) for row in own],
                hovertemplate="%{y:.3~s}s%{customdata}",
            )
        )  # fmt: skip
    style(figure, 300)
    time_axis(figure, since, until)
    figure.update_yaxes(title="TTFT, seconds", rangemode="tozero")
    return figure


def _median_and_requests(row: Row) -> str:
    if number(row, "requests") is None:
        return ""
    requests = counted(number(row, "requests"), "request")
    return f" (p50 {seconds(number(row, 'p50_seconds'))}, {requests})"


def in_order(rows: Rows) -> list[Row]:
    """Rows of outcomes as they are always listed: hit, partial, miss, unknown."""
    return sorted(rows, key=lambda row: OUTCOMES.index(row["outcome"]))
