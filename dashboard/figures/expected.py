"""What was expected, behind the ratio, and what happened, across the chart."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.figures.numbers import percent
from dashboard.figures.palette import CACHED, UNKNOWN, translucent
from dashboard.figures.rows import moment
from dashboard.figures.safe import chart_text
from queries.on_call.chart import Mark
from queries.on_call.expected import Expected


def expected_bands(figure: go.Figure, bands: Sequence[Expected]) -> None:
    """An area between the lowest and the highest ratio expected, hour by hour."""
    if not bands:
        return
    for name, level in (("low", "low"), ("expected", "high")):
        figure.add_trace(
            go.Scatter(
                x=[moment(end) for band in bands for end in (band.since, band.until)],
                y=[getattr(band, level) for band in bands for _ in range(2)],
                name=name,
                mode="lines",
                line={"width": 0, "color": CACHED},
                fill="tonexty" if level == "high" else None,
                fillcolor=translucent(CACHED, 0.18),
                showlegend=level == "high",
                hoverinfo="skip" if level == "low" else None,
                customdata=[_range(band) for band in bands for _ in range(2)],
                hovertemplate="%{customdata}" if level == "high" else None,
            ),
            row=1,
            col=1,
        )


def _range(band: Expected) -> str:
    return f"{percent(band.low)} to {percent(band.high)}"


def happened(figure: go.Figure, marks: Sequence[Mark]) -> None:
    """A line with a letter at its top for each mark; its words are in the hover and beside. The
    letter stands within the chart: above it is the legend."""
    for mark in marks:
        figure.add_vline(x=moment(mark.at), line={"width": 1, "dash": "dot", "color": UNKNOWN})
        figure.add_annotation(
            x=moment(mark.at), y=1, yref="paper", yanchor="top", xanchor="left", showarrow=False,
            text=mark.letter, hovertext=chart_text(mark.words),
        )  # fmt: skip
