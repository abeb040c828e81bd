"""Offload: what moved, how long a token takes either way, and who had the first token sooner."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.figures.layout import style, time_axis
from dashboard.figures.numbers import rate, seconds, whole
from dashboard.figures.palette import CACHED, COMPUTED, RUNNING, UNKNOWN
from dashboard.figures.rows import Row, Rows, isolated, moment, number, with_gaps
from dashboard.figures.safe import chart_text
from replay.counted import counted

TIERS = ("host", "disk", "remote")
TIER_COLOUR = {"host": CACHED, "disk": "#2a9d8f", "remote": RUNNING}
TIER_SYMBOL = {"host": "circle", "disk": "square", "remote": "diamond"}
_DIRECTIONS = {"load": ("brought back", "solid"), "store": ("written", "dot")}


def moved_over_time(rows: Rows, *, step_seconds: float, since: object, until: object) -> go.Figure:
    """Bytes a second to and from each tier (above) and the speed of one transfer (beneath).

    Tokens a second stand above where no page counts bytes. A step without samples is a gap.
    """
    unit = "bytes" if any(number(row, "bytes") is not None for row in rows) else "tokens"
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08,
                           row_heights=[0.6, 0.4])  # fmt: skip
    for tier in TIERS:
        for direction in _DIRECTIONS:
            own = [r for r in rows if (r.get("tier"), r.get("direction")) == (tier, direction)]
            flow = [_a_second(row, unit, step_seconds) for row in own]
            if any(number(row, unit) for row in own):
                _line(figure, with_gaps(flow, step_seconds), "rate", f"%{{y:.3~s}} {unit}/s", 1)
                _line(figure, with_gaps(flow, step_seconds), "speed", "%{y:.3~s} bytes/s", 2)
    style(figure, 430)
    time_axis(figure, since, until)
    figure.update_yaxes(title=f"{unit} a second", rangemode="tozero", tickformat=".3~s",
                        row=1, col=1)  # fmt: skip
    figure.update_yaxes(title="bytes/s while moving", rangemode="tozero", tickformat=".3~s",
                        row=2, col=1)  # fmt: skip
    return figure


def _a_second(row: Row, unit: str, step_seconds: float) -> Row:
    amount = number(row, unit)
    return {
        "ts": row["ts"], "tier": row.get("tier"), "direction": row.get("direction"),
        "rate": None if amount is None else amount / step_seconds,
        "speed": number(row, "bytes_per_second"),
    }  # fmt: skip


def _line(figure: go.Figure, rows: list[Row], column: str, hover: str, place: int) -> None:
    """One tier and direction; a line that would have no point is left out."""
    values = [number(row, column) for row in rows]
    if all(value is None for value in values):
        return
    tier, direction = str(rows[0]["tier"]), str(rows[0]["direction"])
    word, dash = _DIRECTIONS[direction]
    colour = TIER_COLOUR.get(tier, UNKNOWN)
    figure.add_trace(
        go.Scatter(
            x=[moment(row["ts"]) for row in rows],
            y=values,
            name=f"{word}, {tier}",
            legendgroup=f"{word}, {tier}",
            showlegend=place == 1,
            mode="lines+markers",
            line={"color": colour, "width": 1.8, "dash": dash},
            marker={"size": [5 if alone else 0 for alone in isolated(values)], "color": colour},
            connectgaps=False,
            hovertemplate=hover,
        ),
        row=place,
        col=1,
    )


def load_against_prefill(rows: Rows) -> go.Figure:
    """Time of a token loaded and of a token computed, for each model and tier that tells both.

    Empty where none does; the page then says what is missing.
    """
    known = with_both(rows)
    names = [f"{chart_text(row.get('model'))}, {row.get('tier')}" for row in known]
    figure = go.Figure()
    for column, word, colour in (
        ("load_seconds_per_token", "loading it (at most)", CACHED),
        ("prefill_seconds_per_token", "computing it", COMPUTED),
    ):
        values = [number(row, column) or 0.0 for row in known]
        figure.add_trace(
            go.Bar(
                y=names,
                x=[value * 1e6 for value in values],
                name=word,
                orientation="h",
                marker={"color": colour},
                customdata=[_per_token(value) for value in values],
                hovertemplate=f"{word}: %{{customdata}}<extra></extra>",
                text=[_per_token(value) for value in values],
                textposition="auto",
            )
        )
    figure.update_xaxes(title="microseconds a token", rangemode="tozero", tickformat=",.3~g")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    style(figure, 130 + 56 * max(len(known), 1))
    return figure.update_layout(barmode="group", hovermode="closest")


def with_both(rows: Rows) -> list[Row]:
    """The rows that tell the time of a token either way."""
    return [
        row for row in rows
        if number(row, "load_seconds_per_token") is not None
        and number(row, "prefill_seconds_per_token") is not None
    ]  # fmt: skip


def _per_token(value: float) -> str:
    return f"{value * 1e6:,.3g} µs"


def first_token_differences(rows: Rows) -> go.Figure:
    """Difference of first tokens per class of tokens to compute, each with its 95 % interval.

    Left of 0 the requests served from the tier were sooner. Classes go from short to long, so
    that a tier with a price of its own crosses 0 where it begins to pay.
    """
    own = [row for row in rows if row.get("comparison") in TIERS]
    classes = sorted({(row["within_from"], row["within_to"]) for row in own})
    names = [f"{low:,} – {high:,}" for low, high in classes]
    figure = go.Figure()
    for tier in TIERS:
        of_tier = [row for row in own if row["comparison"] == tier]
        if of_tier:
            figure.add_trace(_differences(of_tier, tier))
    figure.add_vline(x=0, line={"color": UNKNOWN, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title="seconds; left of 0 = sooner than computing", tickformat="~g")
    figure.update_yaxes(categoryorder="array", categoryarray=names, autorange="reversed",
                        type="category", ticksuffix=" tokens")  # fmt: skip
    style(figure, 130 + 30 * max(len(names), 2))
    return figure.update_layout(hovermode="closest")


def _differences(rows: list[Row], tier: str) -> go.Scatter:
    ends = [(number(r, "low_seconds"), number(r, "high_seconds")) for r in rows]
    middles = [number(row, "difference_seconds") for row in rows]
    return go.Scatter(
        y=[f"{row['within_from']:,} – {row['within_to']:,}" for row in rows],
        x=middles,
        name=f"served from {tier}",
        mode="markers",
        marker={"color": TIER_COLOUR[tier], "symbol": TIER_SYMBOL[tier], "size": 9},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_reach(m, high) for m, (_, high) in zip(middles, ends, strict=True)],
            "arrayminus": [_reach(low, m) for m, (low, _) in zip(middles, ends, strict=True)],
            "color": TIER_COLOUR[tier],
            "thickness": 1.6,
        },
        customdata=[_told(row) for row in rows],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _reach(low: float | None, high: float | None) -> float:
    return 0.0 if low is None or high is None else high - low


def _told(row: Row) -> str:
    difference, low, high = (
        number(row, f"{name}_seconds") for name in ("difference", "low", "high")
    )
    return (
        f"{signed_seconds(difference)} ({signed_seconds(low)} to {signed_seconds(high)})<br>"
        f"{seconds(number(row, 'served_seconds'))} against "
        f"{seconds(number(row, 'computed_seconds'))}<br>"
        f"{whole(number(row, 'served_requests'))} against "
        f"{counted(number(row, 'computed_requests'), 'request')}"
    )


def signed_seconds(value: float | None) -> str:
    """A difference of times with its sign; – where it is not known."""
    if value is None:
        return seconds(None)
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{seconds(abs(value))}"


def speed_words(bytes_per_second: float | None) -> str:
    """The speed of a transfer in GB/s, in MB/s below 0.1 GB/s."""
    if bytes_per_second is None:
        return rate(None)
    large = bytes_per_second >= 1e8
    return f"{bytes_per_second / (1e9 if large else 1e6):,.3g} {'GB/s' if large else 'MB/s'}"
