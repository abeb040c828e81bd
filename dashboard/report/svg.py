"""Pieces of charts as inline SVG: drawn here, so that they need no script and print sharp.

Coordinates are rounded, so that the same figures are the same bytes.
"""

from dashboard.report.markup import Markup, tag, void

WIDTH = 720
INK, QUIET, GRID = "#23282f", "#5d6671", "#d9dde2"


def chart(name: str, height: float, title: str, description: str, *parts: Markup) -> Markup:
    """A whole chart over the full width; `description` says its values. `name`: as of no other."""
    return tag(
        "svg", tag("title", title, id=f"{name}-title"), tag("desc", description, id=f"{name}-desc"),
        *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {at(height)}",
        role="img", aria_labelledby=f"{name}-title {name}-desc", class_="chart",
    )  # fmt: skip


def at(value: float) -> str:
    """A coordinate: one decimal, no trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def text(
    x: float, y: float, told: str, *, anchor: str = "start", size: float = 9,
    colour: str = QUIET, weight: str | None = None,
) -> Markup:  # fmt: skip
    return tag("text", told, x=at(x), y=at(y), text_anchor=anchor, font_size=at(size),
               fill=colour, font_weight=weight)  # fmt: skip


def rect(
    x: float, y: float, width: float, height: float, fill: str, *,
    stroke: str | None = None, stroke_width: str | None = None, dash: str | None = None,
) -> Markup:  # fmt: skip
    return void("rect", x=at(x), y=at(y), width=at(width), height=at(height), fill=fill,
                stroke=stroke, stroke_width=stroke_width, stroke_dasharray=dash)  # fmt: skip


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID) -> Markup:
    return void("line", x1=at(x1), y1=at(y1), x2=at(x2), y2=at(y2), stroke=colour)
