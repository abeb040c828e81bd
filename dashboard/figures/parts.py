"""What each segment did to the ratio: its own ratio, and its share of the traffic."""

import plotly.graph_objects as go

from dashboard.figures.layout import style
from dashboard.figures.numbers import percent, points, whole
from dashboard.figures.palette import CHANGED_MIX, CHANGED_RATIO
from dashboard.figures.rows import Row, Rows, number
from dashboard.figures.safe import chart_text

MOST_SHOWN = 12
_PARTS = (
    ("within_tokens", "own ratio", CHANGED_RATIO, ""),
    ("mix_tokens", "share of traffic", CHANGED_MIX, "/"),
)


def parts_bars(rows: Rows, by: str) -> go.Figure:
    """Two bars a segment, largest change first: left of 0 lowered the ratio, right raised it.

    Rows without a part have nothing to compare with and are left out. At most `MOST_SHOWN`.
    """
    changed = [row for row in rows if number(row, "change_tokens") is not None][:MOST_SHOWN]
    figure = go.Figure(
        [
            go.Bar(
                name=name,
                # The place is the category: two names may read the same once they are shortened.
                y=list(range(len(changed))),
                x=[number(row, column) or 0.0 for row in changed],
                orientation="h",
                marker={"color": colour, "pattern": {"shape": shape}},
                customdata=[_story(row, by) for row in changed],
                hovertemplate="%{customdata}<extra></extra>",
            )
            for column, name, colour, shape in _PARTS
        ]
    )
    figure.update_xaxes(title="cached tokens gained or lost", tickformat=",.3~s")
    figure.update_yaxes(
        autorange="reversed",
        tickmode="array",
        tickvals=list(range(len(changed))),
        ticktext=[chart_text(row.get(by)) for row in changed],
        showgrid=False,
    )
    style(figure, 120 + 26 * max(len(changed), 3))
    return figure.update_layout(hovermode="closest", barmode="relative")


def _story(row: Row, by: str) -> str:
    """What a bar says when pointed at: both ratios, both shares, both parts."""
    ratio, ratio_before, share, share_before = (
        percent(number(row, column))
        for column in (
            "token_hit_ratio", "token_hit_ratio_before",
            "traffic_share_ratio", "traffic_share_ratio_before",
        )
    )  # fmt: skip
    within, mix = (whole(number(row, column)) for column in ("within_tokens", "mix_tokens"))
    return (
        f"<b>{chart_text(row.get(by))}</b> {points(number(row, 'change_ratio'))}<br>"
        f"ratio {ratio_before} before, {ratio} now: {within} tokens<br>"
        f"share {share_before} before, {share} now: {mix} tokens"
    )
