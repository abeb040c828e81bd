"""What became of prompt tokens: cached, or missed by one cause each, in the order of the causes."""

import plotly.graph_objects as go

from dashboard.figures.cause_words import MEANINGS, colour_of, says, tokens_of
from dashboard.figures.layout import style, time_axis
from dashboard.figures.numbers import percent, whole
from dashboard.figures.palette import CACHED
from dashboard.figures.rows import Row, Rows, moment, number
from dashboard.figures.safe import chart_text
from replay.causes import CAUSES

MOST_GROUPS = 12


def waterfall(row: Row) -> go.Figure:
    """From cached to the whole prompt: each cause begins where the one before ends. `row` has
    prompt tokens; causes without tokens are left out."""
    whole_tokens = number(row, "prompt_tokens") or 0.0
    steps = [("cached", number(row, "cached_tokens") or 0.0)]
    steps += [(cause, tokens_of(row, cause)) for cause in CAUSES if tokens_of(row, cause)]
    begins = [sum(tokens for _, tokens in steps[:place]) for place in range(len(steps))]
    shares = [tokens / whole_tokens for _, tokens in steps]
    figure = go.Figure(
        go.Bar(
            y=[name for name, _ in steps],
            x=shares,
            base=[begin / whole_tokens for begin in begins],
            orientation="h",
            marker={"color": [colour_of(name) for name, _ in steps]},
            text=[percent(share) for share in shares],
            textposition="outside",
            cliponaxis=False,
            customdata=[
                f"{says(name)}<br>{whole(tokens)} of {whole(whole_tokens)} prompt tokens"
                for name, tokens in steps
            ],
            hovertemplate="<b>%{y}</b> %{text}: %{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    figure.update_xaxes(title="share of prompt tokens", tickformat=".0%", range=[0, 1.08])
    figure.update_yaxes(autorange="reversed", showgrid=False)
    style(figure, 110 + 28 * len(steps))
    return figure.update_layout(hovermode="closest")


def over_time(rows: Rows, *, step_seconds: float, since: object, until: object) -> go.Figure:
    """Missed tokens by cause, as a share of the prompt tokens of the same time, one on another.
    Times without explained requests stay empty."""
    figure = go.Figure()
    for cause in CAUSES:
        own = [row for row in rows if row.get("cause") == cause]
        if not own:
            continue
        shares = [_share(row) for row in own]
        figure.add_trace(
            go.Bar(
                name=cause,
                x=[moment(row["bucket"]) for row in own],
                y=shares,
                width=step_seconds * 1000,
                offset=0,
                marker={"color": MEANINGS[cause].colour},
                customdata=[whole(number(row, "tokens")) for row in own],
                hovertemplate="%{y:.1%} (%{customdata} tokens)",
            )
        )
    style(figure, 380)
    time_axis(figure, since, until)
    figure.update_yaxes(title="missed, of prompt tokens", tickformat=".0%", rangemode="tozero")
    return figure.update_layout(barmode="stack", bargap=0)


def _share(row: Row) -> float | None:
    prompt, tokens = number(row, "prompt_tokens"), number(row, "tokens")
    return tokens / prompt if prompt and tokens is not None else None


def by_group(rows: Rows, by: str) -> go.Figure:
    """One bar a group, most prompt tokens first, cached and causes as shares of its own prompt
    tokens. At most MOST_GROUPS; groups without explained requests are left out."""
    shown = [row for row in rows if number(row, "prompt_tokens")][:MOST_GROUPS]
    figure = go.Figure(
        [
            go.Bar(
                name=name,
                # The place is the category: two names may read the same once they are shortened.
                y=list(range(len(shown))),
                x=[tokens_of(row, name) / (number(row, "prompt_tokens") or 1.0) for row in shown],
                orientation="h",
                marker={"color": colour_of(name)},
                customdata=[
                    f"{chart_text(row.get(by))}: {whole(tokens_of(row, name))} of "
                    f"{whole(number(row, 'prompt_tokens'))} tokens"
                    for row in shown
                ],
                hovertemplate="<b>" + name + "</b> %{x:.1%}<br>%{customdata}<extra></extra>",
            )
            for name in ("cached", *CAUSES)
            if any(tokens_of(row, name) for row in shown)
        ]
    )
    figure.update_xaxes(title="share of prompt tokens", tickformat=".0%", range=[0, 1])
    figure.update_yaxes(
        autorange="reversed",
        tickmode="array",
        tickvals=list(range(len(shown))),
        ticktext=[chart_text(row.get(by)) for row in shown],
        showgrid=False,
    )
    style(figure, 130 + 28 * max(len(shown), 3))
    return figure.update_layout(hovermode="closest", barmode="stack")


def shared_ranges(rows: Rows) -> go.Figure:
    """Along the prompts of one template: what share of them has the same beginning up to each
    token, and what share holds the same content there, at whatever place."""
    figure = go.Figure()
    lines = (
        ("same beginning", "reuse_ratio", CACHED, "solid"),
        ("same content, at any place", "content_ratio", MEANINGS["layout"].colour, "dash"),
    )
    ordered = sorted(rows, key=lambda row: number(row, "from_token") or 0.0)
    for name, column, colour, dash in lines:
        places = [value for row in ordered for value in (row["from_token"], row["until_token"])]
        shares = [number(row, column) for row in ordered for _ in range(2)]
        figure.add_trace(
            go.Scatter(x=places, y=shares, name=name, mode="lines",
                       line={"color": colour, "dash": dash, "width": 2},
                       hovertemplate="%{y:.0%}")
        )  # fmt: skip
    style(figure, 300)
    figure.update_xaxes(title="token of the prompt", tickformat=",d")
    figure.update_yaxes(title="of its requests", tickformat=".0%", range=[0, 1.05])
    return figure
