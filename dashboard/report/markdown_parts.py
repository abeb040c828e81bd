"""Pieces of Markdown that several sections need. Names are escaped: they make no markup."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dashboard.report.week import WeekReport

T = TypeVar("T")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#|~!$])")
Columns = Sequence[tuple[str, Callable[[T], str]]]


def escaped(text: str) -> str:
    """Text for Markdown: no markup, no link, no table cell comes of it."""
    made = _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))
    return made.replace("://", "\\://").replace("www.", "www\\.")


def titled(heading: str, body: str) -> str:
    """A part under its heading; '' where there is none."""
    return f"{heading}\n\n{body}" if body else ""


def bullets(lines: Iterable[str], mark: str = "-") -> str:
    return "\n".join(f"{mark} {escaped(line)}" for line in lines)


def gaps(report: WeekReport, name: str) -> str:
    found = report.missing_of(name)
    return "\n".join(f"> {escaped(gap.what)}{next_step(gap.step)}" for gap in found)


def next_step(step: str) -> str:
    """The command behind a sentence of what is missing; '' for none."""
    return f" Next: `{step}`" if step else ""


def table(columns: Columns[T], rows: Iterable[T]) -> str:
    """A table; '' without rows."""
    lines = [" | ".join(escaped(cell(row)) for _, cell in columns) for row in rows]
    if not lines:
        return ""
    head = [" | ".join(heading for heading, _ in columns), " | ".join("---" for _ in columns)]
    return "\n".join(f"| {line} |" for line in [*head, *lines])


def together(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
