"""What the cache holds: for whom, and how often over the replicas."""

import plotly.graph_objects as go

from dashboard.figures.layout import style
from dashboard.figures.numbers import percent, whole
from dashboard.figures.palette import CACHED, UNKNOWN, translucent
from dashboard.figures.rows import Row, Rows, number
from dashboard.figures.safe import chart_text
from replay.counted import counted

MOST_BARS = 14
MOST_REPLICAS = 24


def held_by(rows: Rows, by: str) -> go.Figure:
    """Resident tokens by template or tenant, the most first; what the snapshot does not name is
    hatched, because it is not known whose it is."""
    named = [row for row in rows if row.get("named")]
    ordered = sorted(named, key=lambda row: -(number(row, "tokens") or 0.0))
    shown, rest = ordered[:MOST_BARS], [row for row in rows if not row.get("named")]
    bars = [*((chart_text(row.get(by)), row) for row in shown)]
    bars += [("further prefixes, not named", row) for row in rest]
    figure = go.Figure(
        go.Bar(
            y=list(range(len(bars))),
            x=[number(row, "tokens") for _, row in bars],
            orientation="h",
            marker={
                "color": [CACHED if row.get("named") else UNKNOWN for _, row in bars],
                "pattern": {"shape": ["" if row.get("named") else "/" for _, row in bars]},
            },
            customdata=[_held_words(row) for _, row in bars],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.update_xaxes(title="resident tokens", tickformat=",.3~s", rangemode="tozero")
    figure.update_yaxes(
        autorange="reversed", tickmode="array", showgrid=False,
        tickvals=list(range(len(bars))), ticktext=[label for label, _ in bars],
    )  # fmt: skip
    style(figure, 90 + 26 * max(len(bars), 2))
    return figure.update_layout(hovermode="closest", showlegend=False)


def _held_words(row: Row) -> str:
    prefixes = number(row, "prefixes")
    in_prefixes = "" if prefixes is None else f" in {counted(prefixes, 'prefix', 'prefixes')}"
    share = percent(number(row, "share_ratio"))
    return f"{whole(number(row, 'tokens'))} tokens{in_prefixes}, {share} of what is resident"


def overlap(rows: Rows) -> go.Figure:
    """Share of blocks that both replicas of a pair hold, as a square; the diagonal is empty.

    The colours reach to the largest share: most fleets hold little in common.
    """
    pairs = [row for row in rows if row.get("replica_b") is not None]
    names = sorted({str(row[side]) for row in pairs for side in ("replica_a", "replica_b")})
    names = names[:MOST_REPLICAS]
    place = {name: index for index, name in enumerate(names)}
    values: list[list[float | None]] = [[None] * len(names) for _ in names]
    told = [[""] * len(names) for _ in names]
    for row in pairs:
        a, b = place.get(str(row["replica_a"])), place.get(str(row["replica_b"]))
        if a is None or b is None:
            continue
        values[a][b] = values[b][a] = number(row, "overlap_ratio")
        told[a][b] = told[b][a] = _pair_words(row)
    labels = [chart_text(name) for name in names]
    most = max((share for line in values for share in line if share), default=1.0)
    figure = go.Figure(
        go.Heatmap(
            z=values, x=labels, y=labels, zmin=0, zmax=most, customdata=told,
            colorscale=[[0, translucent(CACHED, 0.06)], [1, CACHED]],
            colorbar={"tickformat": ".0%", "thickness": 12}, xgap=2, ygap=2,
            hoverongaps=False, hovertemplate="%{customdata}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    style(figure, 130 + 30 * max(len(names), 3))
    return figure.update_layout(hovermode="closest")


def _pair_words(row: Row) -> str:
    both, unique = number(row, "shared_blocks"), number(row, "unique_blocks")
    share = percent(number(row, "overlap_ratio"))
    return f"{whole(both)} of {counted(unique, 'block')} on both ({share})"
