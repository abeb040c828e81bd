"""The weekly report's two charts: thirteen weeks with what happened, and the week by hour."""

from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.figures.layout import style
from dashboard.figures.numbers import percent, whole
from dashboard.figures.palette import CACHED, COMPUTED, translucent
from dashboard.figures.safe import chart_text
from dashboard.report.detail_values import HourCell
from dashboard.report.week import WeekPoint
from dashboard.report.weeks import DAYS, Slot

# Light to dark of one hue: a low ratio is pale on both backgrounds, no traffic is empty.
_SCALE = [[0.0, translucent(CACHED, 0.08)], [1.0, CACHED]]
LEAST_SHADES_RATIO = 0.2
# What happened is marked so far above its bar: over the bar's figure.
_ABOVE = 0.15


def weeks_bars(points: Sequence[WeekPoint]) -> go.Figure:
    """A bar a week, the report's own week in full colour, a partial one hatched; ▲ where
    something happened. A week without data has no bar."""
    last = len(points) - 1
    figure = go.Figure(
        go.Bar(
            name="token hit ratio",
            x=[point.week.name for point in points],
            y=[point.token_hit_ratio for point in points],
            marker={
                "color": [CACHED if n == last else translucent(CACHED, 0.55)
                          for n in range(len(points))],
                "pattern": {"shape": ["/" if point.partial else "" for point in points]},
            },
            customdata=[_week_story(point) for point in points],
            hovertemplate="%{customdata}<extra></extra>",
            texttemplate="%{y:.0%}",
            # Outside it has the page's colour, which every theme can read.
            textposition="outside",
            textangle=0,
            textfont={"size": 10},
            cliponaxis=False,
            showlegend=False,
        )
    )  # fmt: skip
    happened = [point for point in points if point.incidents]
    if happened:
        figure.add_trace(_marks(happened))
    style(figure, 260)
    figure.update_xaxes(type="category", tickangle=0, tickmode="array",
                        tickvals=[point.week.name for point in points],
                        ticktext=[point.week.name[5:] for point in points])  # fmt: skip
    figure.update_yaxes(tickformat=".0%", range=[0, 1.2], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return figure.update_layout(hovermode="closest", legend={"visible": bool(happened)})


def _marks(points: Sequence[WeekPoint]) -> go.Scatter:
    return go.Scatter(
        name="something happened",
        x=[point.week.name for point in points],
        y=[(point.token_hit_ratio or 0.0) + _ABOVE for point in points],
        mode="markers",
        marker={"symbol": "triangle-up", "size": 10, "color": COMPUTED},
        customdata=[_week_story(point) for point in points],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _week_story(point: WeekPoint) -> str:
    lines = [f"<b>{point.week.name}</b> {percent(point.token_hit_ratio)}"]
    if point.token_hit_ratio is None:
        lines = [f"<b>{point.week.name}</b> no data"]
    if point.coverage_ratio is not None:
        lines.append(f"coverage {percent(point.coverage_ratio)}")
    if point.partial and point.token_hit_ratio is not None:
        lines.append("a partial week")
    if point.incident_words:
        # Sentences of the report are bounded; here only their markup matters.
        lines.append(_no_markup(point.incident_words))
    return "<br>".join(lines)


def _no_markup(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def hours_map(cells: Sequence[HourCell], zone: str) -> go.Figure:
    """Days beneath each other, the hours their clocks show beside each other. An hour without
    traffic is empty; a drop has a frame. Where an hour comes twice it has a second column."""
    again = sorted({cell.slot.hour for cell in cells if cell.slot.again})
    columns = sorted([(hour, False) for hour in range(24)] + [(hour, True) for hour in again])
    by_slot = {cell.slot: cell for cell in cells}
    rows = [
        [by_slot.get(Slot(day, hour, second)) for hour, second in columns] for day in range(7)
    ]  # fmt: skip
    palest, darkest = _shades([cell.token_hit_ratio for cell in cells])
    figure = go.Figure(
        go.Heatmap(
            zmin=palest,
            zmax=darkest,
            z=[[cell.token_hit_ratio if cell else None for cell in row] for row in rows],
            x=list(range(len(columns))),
            y=list(range(7)),
            text=[[_hour_story(cell) for cell in row] for row in rows],
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            colorscale=_SCALE,
            xgap=2,
            ygap=2,
            colorbar={"tickformat": ".0%", "thickness": 10, "len": 1},
        )
    )
    drops = [(n, day) for day, row in enumerate(rows) for n, cell in enumerate(row)
             if cell and cell.is_drop]  # fmt: skip
    if drops:
        figure.add_trace(_frames(drops, rows))
    style(figure, 290)
    figure.update_xaxes(
        title=f"hour, clocks of {chart_text(zone)}", tickmode="array", tickangle=0,
        tickvals=[n for n, (hour, second) in enumerate(columns) if hour % 3 == 0 and not second],
        ticktext=[f"{hour:02}" for hour, second in columns if hour % 3 == 0 and not second],
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", tickmode="array", tickvals=list(range(7)),
                        ticktext=[day[:3] for day in DAYS], showgrid=False)  # fmt: skip
    return figure.update_layout(hovermode="closest", legend={"visible": bool(drops)})


def _shades(ratios: Iterable[float | None]) -> tuple[float, float]:
    """The ratios that the palest and the darkest hour stand for. Never closer than
    `LEAST_SHADES_RATIO`: one point apart shall not look like none and all."""
    known = [ratio for ratio in ratios if ratio is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    spread = max(high - low, LEAST_SHADES_RATIO)
    palest = min(max((low + high - spread) / 2, 0.0), 1.0 - spread)
    return palest, palest + spread


def _frames(drops: Sequence[tuple[int, int]], rows: Sequence[Sequence[Any]]) -> go.Scatter:
    return go.Scatter(
        name="drop",
        x=[n for n, _ in drops],
        y=[day for _, day in drops],
        mode="markers",
        marker={"symbol": "square-open", "size": 14, "color": COMPUTED, "line": {"width": 2}},
        text=[_hour_story(rows[day][n]) for n, day in drops],
        hovertemplate="%{text}<extra></extra>",
    )


def _hour_story(cell: HourCell | None) -> str:
    if cell is None or cell.token_hit_ratio is None:
        return ""
    shown = f"{DAYS[cell.slot.day]} {cell.slot.hour:02}:00{' again' if cell.slot.again else ''}"
    lines = [
        f"<b>{shown}</b> {percent(cell.token_hit_ratio)}{', a drop' if cell.is_drop else ''}",
        f"{whole(cell.reported_prompt_tokens)} reported prompt tokens",
    ]
    if cell.coverage_ratio is not None:
        lines.append(f"coverage {percent(cell.coverage_ratio)}")
    if cell.kv_usage_ratio is not None:
        lines.append(f"KV in use {percent(cell.kv_usage_ratio)}")
    return "<br>".join(lines)
