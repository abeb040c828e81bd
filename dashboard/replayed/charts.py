"""Charts of a replay as inline SVG, for a document that needs no script."""

from collections.abc import Sequence
from math import ceil, floor, log10

from dashboard.figures.numbers import percent, seconds, whole
from dashboard.figures.palette import CACHED, COMPUTED, FREE, LOAD
from dashboard.figures.rows import Row, Rows, number
from dashboard.replayed.rows import TTFT, Step
from dashboard.replayed.words import number_of
from dashboard.report.markup import Markup, void
from dashboard.report.svg import GRID, INK, QUIET, WIDTH, at, chart, line, rect, text

# Where bars begin, where times do, and the height of a row.
_LEFT, _TIMES, _ROW = 150.0, 430.0, 18.0


def colour_of(step: Step) -> str:
    """Sums are grey, what is saved blue, what costs more red."""
    if not step.change:
        return FREE
    return CACHED if step.amount >= 0 else COMPUTED


def gain(steps: Sequence[Step]) -> Markup:
    """From caching off to the best arm, a bar for each change from where the one before ends."""
    right, top = 90.0, 4.0
    ends = [end for step in steps for end in (step.begin, step.end)]
    low, most = min(0.0, *ends), max(*ends, 1e-9)
    scale = (WIDTH - _LEFT - right) / (most - low)
    parts = []
    for place, step in enumerate(steps):
        y = top + _ROW * place
        begin, end = sorted((step.begin, step.end))
        x, width = _LEFT + (begin - low) * scale, max((end - begin) * scale, 0.5)
        parts += [
            text(_LEFT - 8, y + 12, step.name, anchor="end", colour=INK),
            rect(x, y + 2, width, _ROW - 4, colour_of(step)),
            text(x + width + 5, y + 12, step_words(step), colour=INK),
        ]
    said = "; ".join(f"{step.name} {step_words(step)}" for step in steps)
    return chart("gain", top + _ROW * len(steps) + 4, "GPU-seconds of prefill, by what saves them",
                 said, *parts)  # fmt: skip


def step_words(step: Step) -> str:
    """Its amount; of a change with its sign, as what becomes of what is left to compute."""
    sign = "" if not step.change or not step.amount else "-" if step.amount > 0 else "+"
    return sign + number_of(abs(step.amount))


def arms(rows: Rows) -> Markup:
    """Token hit ratio (left) and TTFT by percentile (right) of every arm, in their order."""
    top, parts = 16.0, [text(_LEFT, 10, "token hit ratio")]
    longest = max((number(row, name) or 0.0 for row in rows for name in TTFT), default=0.0)
    if longest:
        parts.append(text(_TIMES, 10, "time to first token: circle p50, diamond p90, square p99"))
    for place, row in enumerate(rows):
        y = top + _ROW * place
        parts.append(text(_LEFT - 8, y + 12, str(row["arm"]), anchor="end", colour=INK))
        parts += _ratio(number(row, "token_hit_ratio"), y)
        parts += _times(row, y + _ROW / 2, longest) if longest else []
    said = "; ".join(_arm_words(row) for row in rows)
    return chart("arms", top + _ROW * len(rows) + 4, "Every arm side by side", said, *parts)


def _arm_words(row: Row) -> str:
    """ "sticky 58.6 %, TTFT p50 385 ms"."""
    told = f"{row['arm']} {percent(number(row, 'token_hit_ratio'))}"
    first = number(row, TTFT[0])
    return told if first is None else f"{told}, TTFT p50 {seconds(first)}"


def _ratio(ratio: float | None, y: float) -> list[Markup]:
    width = (_TIMES - _LEFT - 60) * (ratio or 0.0)
    return [
        rect(_LEFT, y + 2, max(width, 0.5), _ROW - 4, CACHED),
        text(_LEFT + width + 5, y + 12, percent(ratio), colour=INK),
    ]


def _times(row: Row, y: float, longest: float) -> list[Markup]:
    """Marks that differ in form as well as in colour, on a line from 0 to the longest of all."""
    right = WIDTH - 50
    parts = [line(_TIMES, y, right, y)]
    for figure, mark in zip(TTFT, (_circle, _diamond, _square), strict=True):
        value = number(row, figure)
        if value is not None:
            parts.append(mark(_TIMES + (right - _TIMES) * value / longest, y))
    return [*parts, text(WIDTH, y + 3, seconds(number(row, TTFT[-1])), anchor="end")]


def _circle(x: float, y: float) -> Markup:
    return void("circle", cx=at(x), cy=at(y), r="4", fill=CACHED)


def _diamond(x: float, y: float) -> Markup:
    told = f"M{at(x - 5)} {at(y)}L{at(x)} {at(y - 5)}L{at(x + 5)} {at(y)}L{at(x)} {at(y + 5)}Z"
    return void("path", d=told, fill=LOAD)


def _square(x: float, y: float) -> Markup:
    return rect(x - 3.5, y - 3.5, 7, 7, COMPUTED)


def curve(rows: Rows, replayed: Row | None) -> Markup:
    """Token hit ratio by capacity on a logarithmic axis; `replayed`: the row of the replay."""
    left, right, top, base = 44.0, 20.0, 18.0, 154.0
    sizes = [float(row["capacity_tokens"]) for row in rows]
    ends = log10(sizes[0]), log10(max(sizes[-1], sizes[0] * 10))
    highest = max((number(row, "token_hit_ratio") or 0.0 for row in rows), default=0.0) or 1.0

    def x(row: Row) -> float:
        place = (log10(row["capacity_tokens"]) - ends[0]) / (ends[1] - ends[0])
        return left + (WIDTH - left - right) * place

    def y(ratio: float | None) -> float:
        return base - (base - top) * (ratio or 0.0) / highest

    told = " ".join(f"{at(x(row))},{at(y(number(row, 'token_hit_ratio')))}" for row in rows)
    decades = [10.0**power for power in range(ceil(ends[0]), floor(ends[1]) + 1)]
    parts = [
        *(part for ratio in (0.0, highest / 2, highest) for part in _level(left, y(ratio), ratio)),
        *(part for size in decades for part in _decade(x({"capacity_tokens": size}), base, size)),
        void("polyline", points=told, fill="none", stroke=CACHED, stroke_width="1.6"),
    ]
    if replayed is not None:
        ratio = number(replayed, "token_hit_ratio")
        parts += [
            void("circle", cx=at(x(replayed)), cy=at(y(ratio)), r="4", fill=COMPUTED),
            text(x(replayed), y(ratio) - 8, f"as replayed: {percent(ratio)}", anchor="end",
                 colour=INK),
        ]  # fmt: skip
    said = (f"From {percent(number(rows[0], 'token_hit_ratio'))} with {whole(sizes[0])} tokens to "
            f"{percent(number(rows[-1], 'token_hit_ratio'))} with {whole(sizes[-1])}")  # fmt: skip
    return chart("curve", base + 18, "Token hit ratio by capacity of a replica", said, *parts)


def _level(left: float, y: float, ratio: float) -> list[Markup]:
    return [line(left, y, WIDTH, y, GRID), text(left - 6, y + 3, percent(ratio), anchor="end")]


def _decade(x: float, base: float, tokens: float) -> list[Markup]:
    return [line(x, base, x, base + 3, QUIET), text(x, base + 13, short(tokens), anchor="middle")]


def short(tokens: float) -> str:
    """ "200k", "1.5M": as axes have it."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g}{unit}"
    return f"{tokens:.3g}"
