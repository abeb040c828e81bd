"""Rows as tables for people. Apart from the forms for programs, which need larger libraries."""

import json
from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from prefixscope.consoles import PIPE_WIDTH

Row = Mapping[str, object]
Column = tuple[str, str, Callable[[object], str]]  # heading, name in the row, how it is written

_TEXT_WIDTH = 40  # longer text wraps; no number is that long
_COLUMN_GAP = 2
# Times as much, not parts of a whole: 1.24, not 124%.
_FACTORS = ("imbalance_ratio", "copies_ratio")


def print_rows(console: Console, columns: Sequence[Column], rows: Sequence[Row]) -> int:
    """Print as many of the columns as fit whole; returns how many those are."""
    count = fitting(columns, rows, console.width)
    console.print(rows_table(columns[:count], rows, console.width))
    return count


def rows_table(columns: Sequence[Column], rows: Sequence[Row], width: int = PIPE_WIDTH) -> Table:
    """Rows as a table; cells are text, never markup. Numbers are never cut, long names wrap.

    Headings wrap at spaces where the whole would be wider than `width`.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    least = [_least_width(column, rows) for column in columns]
    whole = [max(cell_len(column[0]), _widest_cell(column, rows)) for column in columns]
    for column, room in zip(columns, whole if _total(whole) <= width else least, strict=True):
        numeric = any(_is_number(row.get(column[1])) for row in rows)
        side: JustifyMethod = "right" if numeric else "left"
        table.add_column(column[0], justify=side, width=room, overflow="fold")
    for row in rows:
        table.add_row(*(Text(show(row.get(name))) for _, name, show in columns))
    return table


def fitting(columns: Sequence[Column], rows: Sequence[Row], width: int) -> int:
    """How many of the columns fit side by side; at least one."""
    least = [_least_width(column, rows) for column in columns]
    return max(1, sum(_total(least[: n + 1]) <= width for n in range(len(least))))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _COLUMN_GAP * (len(widths) - 1)


def _least_width(column: Column, rows: Sequence[Row]) -> int:
    """Room a column needs: its longest cell, up to a limit, and the longest word above it."""
    words = column[0].split() or [""]
    return max(min(_widest_cell(column, rows), _TEXT_WIDTH), *map(cell_len, words))


def _widest_cell(column: Column, rows: Sequence[Row]) -> int:
    _, name, show = column
    return max((cell_len(show(row.get(name))) for row in rows), default=0)


def printable(text: str) -> str:
    """Text on one line that may hold names from outside: none of its characters can steer the
    terminal, or turn round the line it stands in."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def formatter(column: str) -> Callable[[object], str]:
    """How values of a column are written: by its unit, which its name ends in."""
    return lambda value: _cell(column, value)


def _cell(column: str, value: object) -> str:
    if value is None:
        return "–"
    if value in ([], {}):
        return "none"
    if value == "":
        return "(not given)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if column.endswith(_FACTORS):
            return f"{value:,.2f}"
        digits = 4 if "usd" in column else 3  # a single request costs less than a cent
        return f"{value:.2%}" if "ratio" in column else f"{value:,.{digits}f}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return printable(str(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
