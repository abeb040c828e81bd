"""KV memory: how full each replica is, and what fills it."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.figures.layout import no_ratio, ratio_axis, style, time_axis
from dashboard.figures.numbers import percent, whole
from dashboard.figures.palette import CACHED, FREE, REPLICAS, RUNNING, UNKNOWN
from dashboard.figures.rows import Row, Rows, group, isolated, moment, number, with_gaps
from dashboard.figures.safe import chart_text

MOST_REPLICAS = len(REPLICAS)


def usage_with_ratio(
    memory: Rows,
    ratio: Rows,
    *,
    step_seconds: float,
    since: object,
    until: object,
    label: str,
) -> go.Figure:
    """Hit ratio (above) and KV in use per replica (beneath) on one time axis.

    At most `MOST_REPLICAS` lines, the fullest; the page says how many are left out. In order of
    name: who is fullest changes from minute to minute, and a replica's colour must not.
    """
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06,
                           row_heights=[0.4, 0.6])  # fmt: skip
    above = with_gaps(ratio, step_seconds)
    _line(figure, above, "token_hit_ratio", label, CACHED, row=1)
    shown = sorted(list(fullest(memory).items())[:MOST_REPLICAS], key=lambda one: str(one[0]))
    for colour, (replica, rows) in zip(REPLICAS, shown, strict=False):
        _line(figure, with_gaps(rows, step_seconds), "kv_usage_ratio", chart_text(replica), colour,
              row=2)  # fmt: skip
    style(figure, 470)
    time_axis(figure, since, until)
    ratios = [number(row, "token_hit_ratio") for row in above]
    if all(value is None for value in ratios):
        no_ratio(figure)
    ratio_axis(figure, ratios)
    figure.update_yaxes(title="KV in use", tickformat=".0%", range=[0, 1.02], row=2, col=1)
    return figure


def fullest(memory: Rows) -> dict[str, list[Row]]:
    """Rows per replica, the replica with the highest use in the window first."""
    replicas = group(memory, "replica")
    peak = {
        name: max((number(row, "kv_usage_ratio") or 0.0 for row in rows), default=0.0)
        for name, rows in replicas.items()
    }
    return {name: replicas[name] for name in sorted(peak, key=lambda n: (-peak[n], str(n)))}


def _line(
    figure: go.Figure, rows: list[Row], column: str, name: str, colour: str, *, row: int
) -> None:
    values = [number(r, column) for r in rows]
    if not rows:
        return
    figure.add_trace(
        go.Scatter(
            x=[moment(r["ts"]) for r in rows],
            y=values,
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 2 if row == 1 else 1.5},
            marker={"size": [5 if alone else 0 for alone in isolated(values)], "color": colour},
            connectgaps=False,
            hovertemplate="%{y:.1%}",
        ),
        row=row,
        col=1,
    )


def split_over_time(
    memory: Rows, *, step_seconds: float, since: object, until: object
) -> go.Figure | None:
    """Running, cached and free tokens of all replicas, stacked; None where no step is known.

    A step in which any replica's split is not known is a gap: a sum without it would be wrong.
    Bars and no areas: an area would fall to 0 in a gap.
    """
    replicas = {row.get("replica") for row in memory}
    steps = group(memory, "ts")
    known = [
        {"ts": ts, **{part: _sum(rows, f"{part}_tokens") for part in _PARTS}}
        for ts, rows in steps.items()
        if len(rows) == len(replicas) and all(_is_split(row) for row in rows)
    ]
    if not known:
        return None
    figure = go.Figure()
    for part, colour in _PARTS.items():
        figure.add_trace(
            go.Bar(
                x=[moment(row["ts"]) for row in known],
                y=[number(row, part) for row in known],
                name=part, marker={"color": colour, "line": {"width": 0}},
                offset=0, width=step_seconds * 1000, hovertemplate="%{y:,.0f} tokens",
            )
        )  # fmt: skip
    style(figure, 300)
    time_axis(figure, since, until)
    figure.update_yaxes(title="tokens, all replicas", rangemode="tozero", tickformat=",.3~s")
    return figure.update_layout(barmode="stack", bargap=0, legend={"traceorder": "normal"})


_PARTS = {"running": RUNNING, "cached": CACHED, "free": FREE}


def _is_split(row: Row) -> bool:
    return all(number(row, f"{part}_tokens") is not None for part in _PARTS)


def _sum(rows: Rows, column: str) -> float:
    return sum(number(row, column) or 0.0 for row in rows)


def split_bars(rows: Rows) -> go.Figure:
    """Capacity of each replica split into running, cached and free tokens.

    What no engine told is one hatched "unknown" part: it is neither cached nor free, and
    certainly not 0. A replica of unknown capacity has no bar.
    """
    known = [row for row in rows if number(row, "capacity_tokens") is not None]
    figure = go.Figure()
    parts = (("running", RUNNING), ("cached", CACHED), ("free", FREE), ("unknown", UNKNOWN))
    for part, colour in parts:
        values = [split(row)[part] for row in known]
        if not any(values):
            continue
        figure.add_trace(
            go.Bar(
                y=list(range(len(known))),
                x=values,
                name="cached or free: unknown" if part == "unknown" else part,
                orientation="h",
                marker={
                    "color": colour,
                    "pattern": {"shape": "/" if part == "unknown" else "", "size": 6},
                },
                customdata=[_share(row, part) for row in known],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    figure.update_xaxes(title="KV capacity, tokens", tickformat=",.3~s")
    figure.update_yaxes(
        autorange="reversed",
        tickmode="array",
        tickvals=list(range(len(known))),
        ticktext=[chart_text(row.get("replica")) for row in known],
        showgrid=False,
    )
    style(figure, 110 + 28 * max(len(known), 2))
    return figure.update_layout(
        # A single part needs its name as much as several do: hatching alone says nothing.
        barmode="stack",
        hovermode="closest",
        showlegend=True,
        legend={"traceorder": "normal"},
    )


def split(row: Row) -> dict[str, float]:
    """Tokens of each part of a replica's capacity; parts sum to the capacity.

    A part that is not known adds nothing of its own: its tokens are in `unknown`.
    """
    capacity = number(row, "capacity_tokens") or 0.0
    parts = {part: number(row, f"{part}_tokens") or 0.0 for part in ("running", "cached", "free")}
    return {**parts, "unknown": max(capacity - sum(parts.values()), 0.0)}


def _share(row: Row, part: str) -> str:
    tokens = split(row)[part]
    capacity = number(row, "capacity_tokens") or 0.0
    word = "not known whether cached or free" if part == "unknown" else part
    share = percent(tokens / capacity) if capacity else percent(None)
    return f"{whole(tokens)} of {whole(capacity)} tokens {word} ({share})"
