"""What all charts share: size, hover, axes, legend."""

from collections.abc import Sequence

import plotly.graph_objects as go

TIME_HOVER = "%a %d %b %Y %H:%M UTC"


def style(figure: go.Figure, height: int, *, keep: str) -> go.Figure:
    """Apply the common look.

    `keep` names the view: while it stays the same, a redraw keeps the reader's zoom and
    hidden traces, so that a refresh does not lose their place.
    """
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 28, "b": 8},
        hovermode="x unified",
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
        uirevision=keep,
        bargap=0.08,
        dragmode="zoom",
    )
    figure.update_xaxes(automargin=True, showgrid=False, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False, title_standoff=8)
    return figure


def time_axis(figure: go.Figure, since: object, until: object) -> None:
    """Show the whole asked window, in UTC, even where data covers only part of it.

    The range is left to Plotly within these bounds: a range given outright would change with
    every refresh and take the reader's zoom away.
    """
    ends = {"minallowed": since, "maxallowed": until, "include": [since, until]}
    figure.update_xaxes(
        type="date",
        autorange=True,
        autorangeoptions=ends,
        hoverformat=TIME_HOVER,
        tickformatstops=_TIME_TICKS,
    )


def ratio_axis(figure: go.Figure, title: str, values: Sequence[float | None], row: int) -> None:
    """A percentage axis from 0; to 100 % unless everything is far below."""
    known = [value for value in values if value is not None]
    top = max(known, default=1.0)
    upper = 1.02 if top > 0.5 else max(top * 1.25, 0.05)
    figure.update_yaxes(title=title, tickformat=".0%", range=[0, upper], row=row, col=1)


_TIME_TICKS = [
    {"dtickrange": [None, 86_400_000], "value": "%H:%M\n%d %b"},
    {"dtickrange": [86_400_000, None], "value": "%d %b"},
]
