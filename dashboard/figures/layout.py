"""What all charts share: size, hover, axes, legend."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.figures.rows import moment

TIME_HOVER = "%a %d %b %Y %H:%M UTC"


def style(figure: go.Figure, height: int) -> go.Figure:
    """Apply the common look. Call it before `time_axis`, which adds to it."""
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 28, "b": 8},
        hovermode="x unified",
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
        bargap=0.08,
        dragmode=False,
    )
    figure.update_xaxes(automargin=True, showgrid=False, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False, title_standoff=8)
    return figure


def time_axis(figure: go.Figure, since: object, until: object) -> None:
    """Show the whole asked window, in UTC, even where data covers only part of it.

    Dragging across it selects a time (the page then looks at it) instead of zooming: a zoom
    would be lost with the next refresh and could not be passed on as a link.
    """
    figure.update_layout(dragmode="select", selectdirection="h")
    figure.update_xaxes(
        type="date",
        range=[moment(since), moment(until)],
        hoverformat=TIME_HOVER,
        tickformatstops=_TIME_TICKS,
    )


def ratio_axis(figure: go.Figure, values: Sequence[float | None]) -> None:
    """The axis of token hit ratios, above all else: from 0 to 100 %, unless they are far below."""
    known = [value for value in values if value is not None]
    top = max(known, default=1.0)
    upper = 1.02 if top > 0.5 else max(top * 1.25, 0.05)
    figure.update_yaxes(title="token hit ratio", tickformat=".0%", range=[0, upper], row=1, col=1)


def no_ratio(figure: go.Figure) -> None:
    """Words in the place of a line of token hit ratios."""
    empty_axes(figure, row=1)
    figure.add_annotation(
        text="No token hit ratio in this window", showarrow=False,
        x=0.5, y=0.5, xref="x domain", yref="y domain",
    )  # fmt: skip


def empty_axes(figure: go.Figure, row: int) -> None:
    """Axes are only drawn where there is a trace, be it of nothing."""
    nothing = go.Scatter(x=[None], y=[None], showlegend=False, hoverinfo="skip")
    figure.add_trace(nothing, row=row, col=1)


_TIME_TICKS = [
    {"dtickrange": [None, 86_400_000], "value": "%H:%M\n%d %b"},
    {"dtickrange": [86_400_000, None], "value": "%d %b"},
]
