"""The on-call screen in a terminal: the same words as the page, the chart in blocks."""

from collections.abc import Sequence
from datetime import timedelta

from rich.console import Console
from rich.text import Text

from prefixscope.tables import Column, print_rows
from queries.on_call.chart import Chart
from queries.on_call.expected import Expected
from queries.on_call.pain import Pain
from queries.on_call.screen import Screen
from queries.on_call.verdict import Tone
from queries.on_call.words import Row, clock, number, percent, plain, points, whole

STYLES: dict[Tone, str] = {
    "page": "bold red",
    "ticket": "bold yellow",
    "good": "bold green",
    "unknown": "bold",
}
LEVELS = 10  # rows of the chart
MOST_COLUMNS = 72  # six hours in steps of five minutes
_RATIO, _BAND, _BLOCKS = "●", "░", " ▁▂▃▄▅▆▇█"
_LEFT = "      "
_LABELS = {LEVELS - 1: "100 % ", LEVELS // 2 - 1: " 50 % ", 0: "  0 % "}

REPLICAS: Sequence[Column] = (
    ("replica", "replica", plain),
    ("model", "model", plain),
    ("up", "up", lambda value: "–" if value is None else "yes" if value else "no"),
    ("hit ratio", "token_hit_ratio", lambda value: percent(_real(value))),
    ("KV in use", "kv_usage_ratio", lambda value: percent(_real(value))),
    ("computed/s", "computed_tokens_per_second", lambda value: whole(_real(value))),
    ("running", "running_requests", lambda value: whole(_real(value))),
    ("waiting", "waiting_requests", lambda value: whole(_real(value))),
)
MEMORY: Sequence[Column] = (
    ("replica", "replica", plain),
    ("KV in use", "kv_usage_ratio", lambda value: percent(_real(value))),
    ("running tokens", "running_tokens", lambda value: whole(_real(value))),
    ("cached tokens", "cached_tokens", lambda value: whole(_real(value))),
    ("free tokens", "free_tokens", lambda value: whole(_real(value))),
    ("capacity", "capacity_tokens", lambda value: whole(_real(value))),
)
ALERTS: Sequence[Column] = (
    ("severity", "severity", plain),
    ("alert", "alert", plain),
    ("about", "about", plain),
    ("state", "state", plain),
    ("summary", "summary", plain),
)


def show(console: Console, screen: Screen) -> None:
    """Print it, telemetry faults before everything they void."""
    if screen.demo:
        console.print("Demo data: synthetic traffic, not your fleet.", style="yellow")
    for fault in screen.faults:
        _line(console, f"Telemetry fault: {fault} What follows may be wrong.", "bold red")
    _line(console, " · ".join(f"{name} {value}" for name, value in screen.strip), "dim")
    console.print()
    _line(console, screen.verdict, STYLES[screen.tone])
    if screen.runbook:
        _line(console, f"Runbook: docs/runbooks/{screen.runbook}.md", "")
    if screen.pain is not None:
        _pain(console, screen.pain)
    if screen.chart is not None:
        _chart(console, screen.chart)
    _contributors(console, screen)
    if screen.missed:
        _line(console, f"\n{screen.missed}", "")
    _below(console, screen)


def _line(console: Console, text: str, style: str) -> None:
    """Text, never markup."""
    console.print(Text(text, style=style))


def _pain(console: Console, pain: Pain) -> None:
    _line(console, f"\n{pain.words}", "bold")
    for measure in pain.measures:
        style = "red" if measure.bad else ""
        _line(console, f"  {measure.name}: {measure.value} ({measure.against})", style)


def _chart(console: Console, chart: Chart) -> None:
    """Ratio over its band, the load beneath, letters where something happened."""
    _line(console, "\nSix hours: ● hit ratio, ░ expected, load beneath", "bold")
    for line in chart_lines(chart, console.width - len(_LEFT)):
        _line(console, line, "")
    for mark in chart.marks:
        _line(
            console, f"  {mark.letter} {clock(mark.at, chart.zone, chart.until)} {mark.words}", ""
        )
    _line(console, f"{chart.words} Times: {chart.zone.key}.", "dim")


def chart_lines(chart: Chart, room: int = MOST_COLUMNS) -> list[str]:
    """The chart as lines; every column is a step of five minutes, the last where there is no room
    for all."""
    columns = max(min(room, MOST_COLUMNS), 1)
    steps = list(zip(chart.times, chart.ratios, strict=True))[-columns:]
    usual = [_expected(chart, index) for index in range(len(chart.times))][-columns:]
    lines = []
    for level in reversed(range(LEVELS)):
        label = _LABELS.get(level, _LEFT)
        cells = (
            _cell(level, ratio, expected) for (_, ratio), expected in zip(steps, usual, strict=True)
        )
        lines.append(f"{label}{''.join(cells)}".rstrip())
    lines.append(f"{'load':>4}  {_load(chart.loads[-columns:])}".rstrip())
    return [*lines, *_under(chart, columns)]


def _expected(chart: Chart, index: int) -> Expected | None:
    at = chart.times[index]
    return next((band for band in chart.bands if band.since <= at < band.until), None)


def _cell(level: int, ratio: float | None, expected: Expected | None) -> str:
    """One cell; the ratio hides the band."""
    if ratio is not None and _level(ratio) == level:
        return _RATIO
    if expected is not None and _level(expected.low) <= level <= _level(expected.high):
        return _BAND
    return " "


def _level(ratio: float) -> int:
    return min(max(int(ratio * LEVELS), 0), LEVELS - 1)


def _load(loads: Sequence[float | None]) -> str:
    """Eighths of the highest; no traffic is empty, any traffic is seen."""
    most = max((load for load in loads if load is not None), default=0.0)
    if not most:
        return ""
    return "".join(
        _BLOCKS[0] if not load else _BLOCKS[max(1, round(load / most * 8))] for load in loads
    )


def _under(chart: Chart, columns: int) -> list[str]:
    """Letters of the marks, then the hours."""
    first = max(len(chart.times) - columns, 0)
    letters, hours = [" "] * columns, [" "] * columns
    step = chart.times[1] - chart.times[0]
    for mark in chart.marks:
        place = (mark.at - chart.times[first]) // step
        if 0 <= place < columns:
            letters[place] = mark.letter
    for place, at in enumerate(chart.times[first:]):
        local = at.astimezone(chart.zone)
        if timedelta(minutes=local.minute) < step and local.hour % 2 == 0 and place + 5 <= columns:
            hours[place : place + 5] = f"{local:%H:%M}"
    return [
        line for line in (_LEFT + "".join(letters).rstrip(), _LEFT + "".join(hours).rstrip())
        if line.strip()
    ]  # fmt: skip


def _contributors(console: Console, screen: Screen) -> None:
    told = screen.contributors
    if not told.parts:
        return
    _line(console, "\nLargest contributors", "bold")
    for part in told.parts:
        _line(
            console, f"  {points(part.change_ratio)} {part.dimension} {part.name}: {part.why}", ""
        )
    _line(console, f"  of {points(told.change_ratio)} in all, against {told.against}", "dim")


def _below(console: Console, screen: Screen) -> None:
    """Models, replicas, memory, alerts, and who told it all."""
    for row in screen.models:
        _line(console, f"  {_model(row)}", "")
    for title, columns, rows in (
        ("Replicas", REPLICAS, screen.replicas),
        ("KV memory", MEMORY, screen.memory),
        ("Alerts", ALERTS, screen.alerts),
    ):
        if rows:
            console.print(f"\n{title}", style="bold")
            print_rows(console, columns, rows)
    if screen.told_by:
        _line(console, f"\nTold by {screen.told_by}.", "dim")


def _model(row: Row) -> str:
    state = "not judged" if row["is_drop"] is None else str(row["class"] or "as expected")
    return f"{plain(row['model'])} {percent(number(row, 'token_hit_ratio'))}: {state}"


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
