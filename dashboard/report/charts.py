"""The report's charts as inline SVG: drawn here, so that they need no script and print sharp.

Every chart has a title and a description with its values, and stands beside a table or labels.
Coordinates are rounded, so that the same report is the same bytes.
"""

from collections.abc import Callable, Iterable, Sequence

from dashboard.figures.cause_words import colour_of
from dashboard.figures.numbers import percent, seconds, whole
from dashboard.report.detail_values import HourCell
from dashboard.report.markup import Markup, void
from dashboard.report.missed_values import WhyMissed
from dashboard.report.svg import GRID, INK, QUIET, WIDTH, at, chart, line, rect, text
from dashboard.report.week import TtftClass, WeekPoint, WeekReport
from dashboard.report.weeks import DAYS, Slot
from dashboard.report.words import slot_words, week_words

LEFT = 84.0  # room for names of days and scales
_BAR, _BAR_NOW, _ALARM, _LOAD, _HIT, _MISS = (
    "#9dbfdc", "#2b6ea6", "#b3391f", "#c3cad2", "#2b6ea6", "#b3391f",
)  # fmt: skip
# Pale to dark: one hue, so that a print in grey still orders the cells.
_PALE, _DARK = (0xEE, 0xF4, 0xFA), (0x1F, 0x5F, 0x96)


def weeks(report: WeekReport) -> Markup:
    """13 weeks as bars from 0, each with its value; what happened stands beneath."""
    top, base, step = 14.0, 84.0, WIDTH / len(report.weeks)
    parts = [line(0, base, WIDTH, base, QUIET)]
    for place, point in enumerate(report.weeks):
        parts += _week(point, step * place, step, top, base, point.week == report.week)
    description = "; ".join(week_words(point) for point in report.weeks)
    return chart("weeks", 114, "Token hit ratio of 13 weeks", description, *parts)


def _week(
    point: WeekPoint, x: float, step: float, top: float, base: float, now: bool
) -> list[Markup]:
    middle, width = x + step / 2, step * 0.62
    weight = "bold" if now else None
    parts = [text(middle, base + 12, point.week.name[5:], anchor="middle", weight=weight)]
    if point.token_hit_ratio is None:
        parts.append(text(middle, base - 4, "no data", anchor="middle", size=7.5))
    else:
        height = max((base - top) * point.token_hit_ratio, 0.5)
        parts.append(
            rect(
                middle - width / 2, base - height, width, height,
                _BAR_NOW if now else _BAR,
                stroke=INK if point.partial else None, dash="3 2" if point.partial else None,
            )
        )  # fmt: skip
        parts.append(text(middle, base - height - 4, percent(point.token_hit_ratio),
                           anchor="middle", colour=INK, weight=weight))  # fmt: skip
    if point.incidents:
        parts.append(text(middle, base + 25, f"▲ {point.incidents}", anchor="middle",
                           colour=_ALARM))  # fmt: skip
    return parts


def heat_map(report: WeekReport) -> Markup:
    """Day by hour: the ratio in percent in each cell, darker = more from cache."""
    left, top, width, height = LEFT, 16.0, (WIDTH - LEFT) / 24, 20.0
    known = [cell.token_hit_ratio for cell in report.hours if cell.token_hit_ratio is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    parts = [
        text(left + width * (hour + 0.5), top - 5, f"{hour:02}", anchor="middle")
        for hour in range(24)
    ]
    parts += [text(0, top + height * (day + 0.68), DAYS[day]) for day in range(7)]
    by_slot = {cell.slot: cell for cell in report.hours}
    for day in range(7):
        for hour in range(24):
            shown = [by_slot.get(Slot(day, hour)), by_slot.get(Slot(day, hour, again=True))]
            x, y = left + width * hour, top + height * day
            parts += _cells([cell for cell in shown if cell], x, y, width, height, low, high)
    said = "; ".join(
        f"{slot_words(cell.slot)} {percent(cell.token_hit_ratio)}"
        for cell in report.hours
        if cell.token_hit_ratio is not None
    )
    return chart("hours", top + height * 7 + 4, "Token hit ratio by day and hour",
                said or "no traffic", *parts)  # fmt: skip


def _cells(
    cells: Sequence[HourCell], x: float, y: float, width: float, height: float,
    low: float, high: float,
) -> Iterable[Markup]:  # fmt: skip
    """An hour, both where the clocks show it twice; an empty frame where they skip it."""
    if not cells:
        yield rect(x + 1, y + 1, width - 2, height - 2, "none", stroke=GRID, dash="2 2")
        return
    part = height / len(cells)
    for place, cell in enumerate(cells):
        yield from _cell(cell, x, y + part * place, width, part, low, high)


def _cell(
    cell: HourCell, x: float, y: float, width: float, height: float, low: float, high: float
) -> Iterable[Markup]:
    ratio = cell.token_hit_ratio
    if ratio is None:
        yield rect(x + 0.5, y + 0.5, width - 1, height - 1, "#f5f4f1")
        return
    depth = (ratio - low) / (high - low) if high > low else 0.5
    colour = "#" + "".join(
        f"{round(pale + (dark - pale) * depth):02x}"
        for pale, dark in zip(_PALE, _DARK, strict=True)
    )
    yield rect(x + 0.5, y + 0.5, width - 1, height - 1, colour,
                stroke=_ALARM if cell.is_drop else None,
                stroke_width="2" if cell.is_drop else None)  # fmt: skip
    size = 8.5 if height > 12 else 7.5
    yield text(x + width / 2, y + height / 2 + size * 0.35, f"{ratio * 100:.0f}",
                anchor="middle", size=size, colour="#ffffff" if depth > 0.55 else INK)  # fmt: skip


def load(report: WeekReport) -> Markup | None:
    """Computed tokens a second, and KV usage where engines tell; None where neither is known."""
    work = [cell.computed_tokens_per_second for cell in report.hours]
    usage = [cell.kv_usage_ratio for cell in report.hours]
    most = max((value for value in work if value is not None), default=0.0)
    if not most and all(value is None for value in usage):
        return None
    left, top, base = LEFT, 12.0, 92.0
    step = (WIDTH - left) / max(len(report.hours), 1)
    parts = [*_days(report, left, step, top, base), line(left, base, WIDTH, base, QUIET)]
    for place, value in enumerate(work):
        if value and most:
            height = (base - top) * value / most
            parts.append(rect(left + step * place, base - height, step, height, _LOAD))
    parts += _polylines(usage, lambda place: left + step * (place + 0.5),
                        lambda value: base - (base - top) * value)  # fmt: skip
    parts += [
        text(0, top + 4, f"{whole(most)} tokens/s"), text(0, top + 15, "computed (grey)"),
        text(0, base - 12, "KV 0–100 %", colour=_HIT), text(0, base - 1, "running (line)"),
    ]  # fmt: skip
    peak = max((value for value in usage if value is not None), default=None)
    said = f"Highest hour: {whole(most)} computed tokens a second; highest KV usage {percent(peak)}"
    return chart("load", base + 16, "Load of the week by hour", said, *parts)


def _days(
    report: WeekReport, left: float, step: float, top: float, base: float
) -> Iterable[Markup]:
    day = -1
    for place, cell in enumerate(report.hours):
        if cell.slot.day != day:
            day = cell.slot.day
            yield line(left + step * place, top, left + step * place, base)
            yield text(left + step * place + 3, base + 12, DAYS[day][:3])


def _polylines(
    values: Sequence[float | None], x: Callable[[int], float], y: Callable[[float], float]
) -> Iterable[Markup]:
    """A line that breaks where a value is not known; a lone value is a dot."""
    run: list[tuple[float, float]] = []
    for place, value in enumerate([*values, None]):
        if value is not None:
            run.append((x(place), y(value)))
            continue
        if len(run) == 1:
            yield void("circle", cx=at(run[0][0]), cy=at(run[0][1]), r="1.5", fill=_HIT)
        elif run:
            told = " ".join(f"{at(a)},{at(b)}" for a, b in run)
            yield void("polyline", points=told, fill="none", stroke=_HIT, stroke_width="1.4")
        run = []


def ttft(classes: Sequence[TtftClass]) -> Markup | None:
    """Medians of hits (circle) and misses (square) by prompt length; None without any."""
    rows = [each for each in classes if each.hit_p50_seconds or each.miss_p50_seconds]
    if not rows:
        return None
    left, right, top, height = 110.0, 60.0, 8.0, 18.0
    most = max(max(each.hit_p50_seconds or 0, each.miss_p50_seconds or 0) for each in rows)
    parts: list[Markup] = []
    for place, each in enumerate(rows):
        y = top + height * (place + 0.5)
        parts.append(text(left - 8, y + 3, length_words(each), anchor="end"))
        parts.append(line(left, y, WIDTH - right, y))
        parts += _marks(each, y, lambda value: left + (WIDTH - left - right) * value / most)
    base = top + height * len(rows)
    parts.append(text(left, base + 12, "0"))
    parts.append(text(WIDTH - right, base + 12, seconds(most), anchor="end"))
    said = "; ".join(
        f"{length_words(each)}: hit {seconds(each.hit_p50_seconds)}, "
        f"miss {seconds(each.miss_p50_seconds)}"
        for each in rows
    )
    return chart("ttft", base + 18, "Median time to first token by prompt length", said, *parts)


def _marks(each: TtftClass, y: float, x: Callable[[float], float]) -> Iterable[Markup]:
    if each.hit_p50_seconds is not None:
        yield void("circle", cx=at(x(each.hit_p50_seconds)), cy=at(y), r="4", fill=_HIT)
    if each.miss_p50_seconds is not None:
        yield rect(x(each.miss_p50_seconds) - 3.5, y - 3.5, 7, 7, _MISS)


def waterfall(made: WhyMissed) -> Markup:
    """Cached, then each cause from where the one before ends; not those without tokens."""
    named = [
        ("cached", made.cached_tokens),
        *((c.cause, c.tokens) for c in made.causes if c.tokens),
    ]
    left, right, top, height = 90.0, 60.0, 4.0, 17.0
    parts, begin = [], 0
    for place, (name, tokens) in enumerate(named):
        y, scale = top + height * place, (WIDTH - left - right) / made.prompt_tokens
        x, width = left + begin * scale, max(tokens * scale, 0.5)
        parts += [
            text(left - 8, y + 12, name, anchor="end", colour=INK),
            rect(x, y + 2, width, height - 4, colour_of(name)),
            text(x + width + 5, y + 12, percent(tokens / made.prompt_tokens), colour=INK),
        ]
        begin += tokens
    said = "; ".join(f"{name} {percent(tokens / made.prompt_tokens)}" for name, tokens in named)
    return chart("causes", top + height * len(named) + 4, "What became of the prompt tokens", said,
                *parts)  # fmt: skip


def length_words(each: TtftClass) -> str:
    """ "512–724 tokens"."""
    return f"{whole(each.from_tokens)}–{whole(each.to_tokens - 1)} tokens"


def legend_range(report: WeekReport) -> str:
    """What the palest and the darkest cell of the heat map stand for; '' without traffic."""
    known = [cell.token_hit_ratio for cell in report.hours if cell.token_hit_ratio is not None]
    if not known:
        return ""
    low, high = percent(min(known)), percent(max(known))
    return low if low == high else f"{low} (pale) to {high} (dark)"
