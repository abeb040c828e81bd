"""An answer as people and programs want it: a table, JSON rows, CSV or Arrow."""

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from queries import registry

Row = Mapping[str, object]
Column = tuple[str, str, Callable[[object], str]]  # heading, name in the row, how it is written

_PIPE_WIDTH = 1000
_TEXT_WIDTH = 40  # longer text wraps; no number is that long
_COLUMN_GAP = 2


class Output(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


# Of the many measures those that answer the question, the answer first: a narrow terminal shows
# as many as fit whole. json, csv and arrow have all of them.
MEASURES = (
    "token_hit_ratio",
    "coverage_ratio",
    "prompt_tokens",
    "cached_tokens",
    "computed_tokens",
    "requests",
    "request_hit_ratio",
)
TABLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "hit_ratio": MEASURES,
    "hit_ratio_over_time": ("ts", *MEASURES),
    "engine_hit_ratio": (
        "token_hit_ratio",
        "prompt_tokens",
        "cached_tokens",
        "computed_tokens",
        "lookup_hit_ratio",
        "external_hit_ratio",
        "resets",
        "gaps",
        "caution",
    ),
    "engine_hit_ratio_over_time": (
        "ts",
        "token_hit_ratio",
        "prompt_tokens",
        "cached_tokens",
        "computed_tokens",
    ),
    "costs": (
        "input_usd",
        "input_without_caching_usd",
        "write_surcharge_usd",
        "net_saved_usd",
        "output_usd",
        "priced_ratio",
        "unpriced_prompt_tokens",
        "freed_gpu_hours",
        "freed_gpu_usd",
        "assumptions",
        "price_sources",
    ),
    "provider_usage": (
        "reporter",
        "day",
        "model",
        "token_hit_ratio",
        "prompt_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "requests",
        "still_open",
    ),
    "reconciliation": (
        "reporter",
        "day",
        "model",
        "verdict",
        "reasons",
        "our_prompt_tokens",
        "their_prompt_tokens",
        "difference_ratio",
        "evidence",
        "our_cached_tokens",
        "their_cached_tokens",
        "our_cache_write_tokens",
        "their_cache_write_tokens",
    ),
}


def to_json(table: pa.Table) -> str:
    """A list of flat rows; strict, so a NaN would be an error and not output."""
    return json.dumps(registry.rows(table), ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def to_csv(table: pa.Table) -> str:
    """Header and rows; unknown is an empty field, maps and lists are JSON in their field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in registry.rows(table):
        writer.writerow([_csv_field(value) for value in row.values()])
    return text.getvalue()


def _csv_field(value: object) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def to_arrow(table: pa.Table) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def write(form: Output, table: pa.Table) -> None:
    """Write to standard output in a form for programs.

    As bytes, so that neither encoding nor line ends depend on the terminal.
    """
    if form is Output.ARROW:
        content = to_arrow(table)
    else:
        content = (to_json if form is Output.JSON else to_csv)(table).encode()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def terminal() -> Console:
    """Standard output; as wide as it takes where the reader is a file or a program."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def print_table(console: Console, name: str, table: pa.Table, by: str | None) -> int:
    """Print the columns that answer the question; returns how many others know something.

    One row stands upright, several as a table without the columns nobody knows anything about.
    """
    rows = registry.rows(table)
    known = [c for c in table.column_names if any(row[c] is not None for row in rows)]
    wanted = TABLE_COLUMNS.get(name, tuple(table.column_names))
    columns = [c for c in dict.fromkeys([by, *wanted]) if c in table.column_names]
    if not rows:
        console.print("no data")
    elif len(rows) == 1 and by is None:
        _print_upright(console, rows[0], columns)
    else:
        # Words instead of underscores, so that a heading may wrap on a narrow terminal.
        headed = [(c.replace("_", " "), c, formatter(c)) for c in columns if c in known]
        shown = print_rows(console, headed, rows)
        columns = [column for _, column, _ in headed[:shown]]
    return len(set(known) - set(columns))


def print_rows(console: Console, columns: Sequence[Column], rows: Sequence[Row]) -> int:
    """Print as many of the columns as fit whole; returns how many those are."""
    count = fitting(columns, rows, console.width)
    console.print(rows_table(columns[:count], rows, console.width))
    return count


def _print_upright(console: Console, row: Row, columns: Sequence[str]) -> None:
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column(justify="right")
    for column in columns:
        grid.add_row(column, Text(formatter(column)(row[column])))
    console.print(grid)


def rows_table(columns: Sequence[Column], rows: Sequence[Row], width: int = _PIPE_WIDTH) -> Table:
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


def formatter(column: str) -> Callable[[object], str]:
    """How values of a column are written: by its unit, which its name ends in."""
    return lambda value: _cell(column, value)


def _cell(column: str, value: object) -> str:
    if value is None:
        return "–"
    if value == "":
        return "(not given)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        # A single request costs less than a cent.
        digits = 4 if "usd" in column else 3
        return f"{value:.2%}" if "ratio" in column else f"{value:,.{digits}f}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
