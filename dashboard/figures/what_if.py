"""Arms side by side, and the hit ratio of every capacity."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.figures.layout import style
from dashboard.figures.numbers import percent
from dashboard.figures.palette import CACHED, COMPUTED, LOAD
from dashboard.figures.rows import Row, Rows, number
from dashboard.replayed.charts import colour_of, step_words
from dashboard.replayed.rows import Step


def arms(rows: Rows) -> go.Figure:
    """Token hit ratio (left) and time to first token (right) of every arm, in the order asked."""
    names = [row["arm"] for row in rows]
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.04,
                           subplot_titles=("token hit ratio", "TTFT, s"))  # fmt: skip
    ratios = [number(row, "token_hit_ratio") for row in rows]
    figure.add_trace(
        go.Bar(y=names, x=ratios, orientation="h", marker={"color": CACHED}, showlegend=False,
               text=[percent(ratio) for ratio in ratios], textposition="auto",
               hovertemplate="%{y} %{text}<extra></extra>"),
        row=1, col=1,
    )  # fmt: skip
    for percentile, colour, symbol in ((50, CACHED, "circle"), (90, LOAD, "diamond"),
                                       (99, COMPUTED, "square")):  # fmt: skip
        seconds = [number(row, f"ttft_p{percentile}_seconds") for row in rows]
        if any(value is not None for value in seconds):
            figure.add_trace(
                go.Scatter(y=names, x=seconds, mode="markers", name=f"p{percentile}",
                           marker={"color": colour, "symbol": symbol, "size": 11},
                           hovertemplate="%{y} %{x:.3f} s"),
                row=1, col=2,
            )  # fmt: skip
    style(figure, 130 + 34 * len(names))
    figure.update_xaxes(tickformat=".0%", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(rangemode="tozero", row=1, col=2)
    figure.update_yaxes(autorange="reversed")
    # Beneath, where a narrow screen has no titles that it could lie on.
    beneath = {"x": 1, "xanchor": "right", "y": -0.12, "yanchor": "top"}
    figure.update_layout(hovermode="closest", margin={"t": 46}, legend=beneath)
    return figure


def gain(steps: Sequence[Step]) -> go.Figure:
    """From caching off to the best arm: a bar for each change from where the one before ends."""
    names = [step.name for step in steps]
    figure = go.Figure(
        go.Bar(
            y=names,
            base=[min(step.begin, step.end) for step in steps],
            x=[abs(step.end - step.begin) for step in steps],
            orientation="h",
            marker={"color": [colour_of(step) for step in steps]},
            text=[step_words(step) for step in steps],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y} %{text}<extra></extra>",
        )
    )
    style(figure, 60 + 34 * len(names))
    figure.update_xaxes(rangemode="tozero", tickformat=",.3~s")
    figure.update_yaxes(autorange="reversed")
    return figure.update_layout(hovermode="closest", margin={"r": 70})


def capacity_curve(rows: Rows, replayed: Row | None) -> go.Figure:
    """Token hit ratio by capacity in tokens, on a logarithmic axis; `replayed`: its own row."""
    figure = go.Figure(
        go.Scatter(
            x=[row["capacity_tokens"] for row in rows],
            y=[number(row, "token_hit_ratio") for row in rows],
            mode="lines",
            line={"color": CACHED, "width": 2},
            hovertemplate="%{x:,.3~s} tokens: %{y:.1%}<extra></extra>",
        )
    )
    if replayed is not None:
        figure.add_trace(_point(replayed))
    style(figure, 320)
    figure.update_xaxes(title="tokens of KV a replica", type="log", tickformat=",.3~s")
    figure.update_yaxes(title="token hit ratio", tickformat=".0%", rangemode="tozero")
    return figure.update_layout(hovermode="closest", showlegend=False)


def _point(row: Row) -> go.Scatter:
    """One capacity, named: a point is in sight wherever the curve ends."""
    ratio = number(row, "token_hit_ratio")
    return go.Scatter(
        x=[row["capacity_tokens"]],
        y=[ratio],
        mode="markers+text",
        marker={"color": COMPUTED, "size": 10},
        text=[f"as replayed: {percent(ratio)}"],
        textposition="top left",
        cliponaxis=False,
        hoverinfo="skip",
    )
