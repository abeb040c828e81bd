"""What leaves the cache: how fast, when it was emptied, and how old blocks were."""

from datetime import timedelta

import plotly.graph_objects as go

from dashboard.figures.layout import style, time_axis
from dashboard.figures.numbers import percent, whole
from dashboard.figures.palette import BEFORE, CACHED, COMPUTED, OUTCOME_COLOUR, translucent
from dashboard.figures.rows import Row, Rows, isolated, moment, number, with_gaps
from dashboard.figures.safe import chart_text
from replay.counted import counted

COUNTERS = "engine counters"
_FLOWS = (
    ("stored", "stored_blocks_per_minute", BEFORE),
    ("evicted", "evicted_blocks_per_minute", COMPUTED),
    ("demoted", "demoted_blocks_per_minute", OUTCOME_COLOUR["partial"]),
)
# The device is what requests wait for; lower tiers are drawn thinner.
_DASH = {"device": "solid", "host": "dash", "disk": "dot", "remote": "dashdot"}
# Upper bounds of the bars of ages by events, in seconds.
_BINS = (
    (1, "< 1 s"), (2, "1–2 s"), (5, "2–5 s"), (10, "5–10 s"), (30, "10–30 s"), (60, "30–60 s"),
    (120, "1–2 min"), (300, "2–5 min"), (600, "5–10 min"), (1800, "10–30 min"),
    (3600, "30–60 min"), (7200, "1–2 h"), (21_600, "2–6 h"), (86_400, "6–24 h"),
    (float("inf"), "> 1 d"),
)  # fmt: skip
EVENTS, SAMPLE = "events", "engine sample"


def turnover(
    rows: Rows, resets: Rows, *, step_seconds: float, since: object, until: object
) -> go.Figure:
    """Blocks stored, evicted and demoted a minute, by tier and basis, with resets marked.

    A step of which nothing is told is a gap; one in which nothing left is 0. The last step is left
    out while it is under way: the rate of a few seconds is noise.
    """
    figure = go.Figure()
    top = 0.0
    ended = [r for r in rows if moment(r["ts"]) + timedelta(seconds=step_seconds) <= moment(until)]
    rows = ended or rows
    for basis, tier in sorted({(str(r.get("basis")), str(r.get("tier"))) for r in rows}):
        own = [r for r in rows if (r.get("basis"), r.get("tier")) == (basis, tier)]
        for word, column, colour in _FLOWS:
            values = [number(r, column) for r in own]
            if any(values) or (word == "evicted" and any(v is not None for v in values)):
                name = _name(word, tier, basis)
                _flow(figure, with_gaps(own, step_seconds), column, colour, name, tier)
                top = max([top, *(v for v in values if v is not None)])
    _resets(figure, resets, top)
    style(figure, 360)
    time_axis(figure, since, until)
    figure.update_yaxes(title="blocks a minute", rangemode="tozero", tickformat=",.3~s")
    return figure


def _name(word: str, tier: str, basis: str) -> str:
    beside = [tier] if tier != "device" else []
    beside += [COUNTERS] if basis == COUNTERS else []
    return f"{word} ({', '.join(beside)})" if beside else word


def _flow(
    figure: go.Figure, rows: list[Row], column: str, colour: str, name: str, tier: str
) -> None:
    values = [number(row, column) for row in rows]
    figure.add_trace(
        go.Scatter(
            x=[moment(row["ts"]) for row in rows],
            y=values,
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 1.8, "dash": _DASH.get(tier, "dot")},
            marker={"size": [5 if alone else 0 for alone in isolated(values)], "color": colour},
            fill="tozeroy" if name == "evicted" else None,
            fillcolor=translucent(colour, 0.15),
            connectgaps=False,
            customdata=[_share(row) if "evicted" in name else "" for row in rows],
            hovertemplate="%{y:,.1f}%{customdata}",
        )
    )


def _share(row: Row) -> str:
    ratio = number(row, "turnover_ratio")
    return "" if ratio is None else f" ({percent(ratio)} of the capacity a minute)"


def _resets(figure: go.Figure, resets: Rows, top: float) -> None:
    """A line and a mark at every moment a cache was emptied."""
    if not resets:
        return
    for row in resets:
        figure.add_vline(x=moment(row["ts"]), line={"color": CACHED, "width": 1, "dash": "dot"})
    figure.add_trace(
        go.Scatter(
            x=[moment(row["ts"]) for row in resets],
            y=[top or 1.0] * len(resets),
            name="reset",
            mode="markers",
            marker={"color": CACHED, "symbol": "x", "size": 9},
            customdata=[_reset_words(row) for row in resets],
            hovertemplate="%{customdata}",
        )
    )


def _reset_words(row: Row) -> str:
    blocks = number(row, "blocks")
    lost = "" if blocks is None else f", {counted(blocks, 'block')}"
    where = chart_text(row.get("replica"))
    return f"{str(row.get('reason')).replace('_', ' ')} of {where}{lost}"


def basis_of(rows: Rows, kind: str) -> str | None:
    """Which basis a chart of that kind speaks for: events, else the engine's own sample."""
    found = {row.get("basis") for row in rows if row.get("kind") == kind}
    return next((basis for basis in (EVENTS, SAMPLE) if basis in found), None)


def age_bars(rows: Rows, kinds: dict[str, str]) -> go.Figure:
    """Share of blocks by age; `kinds` maps a kind to its name in the legend.

    Of one kind only one basis is drawn. By events, buckets of 8 % are put together into bars
    (each by its middle); an engine's own sample keeps its bounds.
    """
    figure = go.Figure()
    labels: list[str] = []
    colours = (COMPUTED, OUTCOME_COLOUR["partial"], CACHED)
    for colour, (kind, name) in zip(colours, kinds.items(), strict=False):
        basis = basis_of(rows, kind)
        bars = _bars([r for r in rows if (r.get("kind"), r.get("basis")) == (kind, basis)], basis)
        total = sum(bars.values())
        if not total:
            continue
        labels += [label for label in bars if label not in labels]
        figure.add_trace(
            go.Bar(
                x=list(bars),
                y=[blocks / total for blocks in bars.values()],
                name=name if basis == EVENTS else f"{name} (engine sample)",
                marker={"color": colour},
                customdata=[f"{whole(n)} of {counted(total, 'block')}" for n in bars.values()],
                hovertemplate="%{y:.1%} (%{customdata})",
            )
        )
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=labels)
    figure.update_yaxes(title="share of the blocks", tickformat=".0%", rangemode="tozero")
    return style(figure, 300)


def _bars(rows: Rows, basis: str | None) -> dict[str, float]:
    """Blocks by bar in order of age, from the first bar with a block to the last."""
    if basis != EVENTS:
        ordered = sorted(rows, key=lambda row: number(row, "from_seconds") or 0.0)
        return {_bounds(row): number(row, "blocks") or 0.0 for row in ordered}
    counts = [0.0] * len(_BINS)
    for row in rows:
        low, high = number(row, "from_seconds") or 0.0, number(row, "to_seconds") or 0.0
        middle = (low * high) ** 0.5
        place = next(i for i, (upper, _) in enumerate(_BINS) if middle < upper)
        counts[place] += number(row, "blocks") or 0.0
    filled = [index for index, blocks in enumerate(counts) if blocks]
    shown = range(filled[0], filled[-1] + 1) if filled else range(0)
    return {_BINS[index][1]: counts[index] for index in shown}


def _bounds(row: Row) -> str:
    low, high = number(row, "from_seconds") or 0.0, number(row, "to_seconds")
    return f"> {low:g} s" if high is None else f"{low:g}–{high:g} s"
