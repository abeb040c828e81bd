"""Who moved the ratio: extra computed tokens against the comparison window."""

import plotly.graph_objects as go

from dashboard.figures.layout import style
from dashboard.figures.numbers import percent, points, whole
from dashboard.figures.palette import CACHED, COMPUTED
from dashboard.figures.rows import Row, Rows, number
from dashboard.figures.safe import chart_text

MOST_SHOWN = 12


def movers_bars(rows: Rows, by: str) -> go.Figure:
    """Bars of extra computed tokens, largest first: red computes more, blue less than before.

    Rows without a ratio in either window have no change and are left out. At most
    `MOST_SHOWN` bars.
    """
    moved = [row for row in rows if number(row, "extra_computed_tokens") is not None][:MOST_SHOWN]
    extra = [number(row, "extra_computed_tokens") or 0.0 for row in moved]
    figure = go.Figure(
        go.Bar(
            # The place is the category: two names may read the same once they are shortened.
            y=list(range(len(moved))),
            x=extra,
            orientation="h",
            marker={"color": [COMPUTED if value > 0 else CACHED for value in extra]},
            customdata=[_story(row, by) for row in moved],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.update_xaxes(title="extra computed tokens", tickformat=",.3~s")
    figure.update_yaxes(
        autorange="reversed",
        tickmode="array",
        tickvals=list(range(len(moved))),
        ticktext=[chart_text(row.get(by)) for row in moved],
        showgrid=False,
    )
    style(figure, 90 + 26 * max(len(moved), 3))
    return figure.update_layout(hovermode="closest")


def _story(row: Row, by: str) -> str:
    """What a bar says when pointed at: both ratios, their difference and its size."""
    return (
        f"<b>{chart_text(row.get(by))}</b><br>"
        f"{percent(number(row, 'token_hit_ratio_before'))} before, "
        f"{percent(number(row, 'token_hit_ratio'))} now "
        f"({points(number(row, 'change_ratio'))})<br>"
        f"{whole(number(row, 'extra_computed_tokens'))} extra computed tokens"
    )
