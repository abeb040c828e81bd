"""Pieces of HTML that several need: the file itself, tables, quiet lines, what is missing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dashboard.report.markup import Child, Markup, joined, tag, void
from dashboard.report.style import CSS
from dashboard.report.week import WeekReport

T = TypeVar("T")
# Belt and braces: were a name ever to become markup, it could still load and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, *sections: Child) -> bytes:
    """A file that needs no other: styles and charts inside, no script, nothing fetched."""
    head = tag(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(CSS)),
    )
    body = tag("body", tag("main", *sections))
    # No line may end between a number and its sign.
    whole = f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
    return whole.replace(" %", "\N{NO-BREAK SPACE}%").encode()


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column: its heading, what stands in a cell, and whether it is a number."""

    heading: str
    cell: Callable[[T], Child]
    is_number: bool = True


def table(caption: str, columns: Sequence[Column[T]], rows: Iterable[T]) -> Markup:
    """A table that prints: its head is repeated on every page."""
    head = tag(
        "tr", *(tag("th", c.heading, scope="col", class_=_class(c.is_number)) for c in columns)
    )
    body = [
        tag("tr", *(tag("td", c.cell(row), class_=_class(c.is_number)) for c in columns))
        for row in rows
    ]
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))


def _class(is_number: bool) -> str | None:
    return "number" if is_number else None


def section(*children: Child, class_: str | None = None) -> Markup:
    return tag("section", *children, class_=class_)


def quiet(text: str) -> Markup:
    return tag("p", text, class_="quiet")


def gaps(report: WeekReport, name: str) -> Markup | None:
    """What is missing from a section and the step to it; None where nothing is."""
    found = [
        tag("div", gap.what, next_step(gap.step), class_="missing")
        for gap in report.missing_of(name)
    ]
    return joined(*found) if found else None


def next_step(step: str) -> Markup | None:
    """The command behind a sentence of what is missing; None for none."""
    return joined(" Next: ", tag("code", step)) if step else None
