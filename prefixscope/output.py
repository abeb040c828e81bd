"""An answer as people and programs want it: a table, JSON rows, CSV or Arrow."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from itertools import compress

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prefixscope.tables import Row, formatter, print_rows
from queries import registry


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
    "changes": (
        "kind",
        "sentence",
        "tokens_per_day_lower",
        "tokens_per_day_upper",
        "basis",
        "evidence",
        "next_step",
        "model",
    ),
    "found_templates": (
        "name",
        "given_name",
        "prefix_tokens",
        "requests",
        "prompt_tokens",
        "prompt_ratio",
        "shared_ratio",
        "heir_of",
        "first_seen",
        "last_seen",
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


# What an empty answer may mean, where "no data" reads as "nothing there".
_EMPTY = {
    "isolation": "no data: no audit has found two scopes with a prefix in common, or none has "
    "looked yet (every hour in an exporter, at the end of ingest --store)",
    "layout": "no data: nothing was found in the last day, or nobody has looked yet (every hour in "
    "an exporter, at the end of ingest --store)",
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


def print_table(console: Console, name: str, table: pa.Table, by: str | None) -> int:
    """Print the columns that answer the question; returns how many others know something.

    One row stands upright, several as a table without the columns nobody knows anything about.
    """
    rows = [_told(row) for row in registry.rows(table)]
    known = [c for c in table.column_names if any(row[c] is not None for row in rows)]
    wanted = TABLE_COLUMNS.get(name, tuple(table.column_names))
    columns = [c for c in dict.fromkeys([by, *wanted]) if c in table.column_names]
    if not rows:
        console.print(_EMPTY.get(name, "no data"), soft_wrap=True)
    elif len(rows) == 1 and by is None:
        _print_upright(console, rows[0], columns)
    else:
        # Words instead of underscores, so that a heading may wrap on a narrow terminal.
        headed = [(c.replace("_", " "), c, formatter(c)) for c in columns if c in known]
        shown = print_rows(console, headed, rows)
        columns = [column for _, column, _ in headed[:shown]]
    return len(set(known) - set(columns))


def _told(row: Row) -> Row:
    """What nobody reported is unknown to a reader, though the sums for programs say 0."""
    unknown = [
        f"{name}{window}"
        for window in ("", "_before")
        if row.get(f"coverage_ratio{window}") == 0
        or (row.get(f"reported_prompt_tokens{window}") == 0 and row.get(f"prompt_tokens{window}"))
        for name in ("cached_tokens", "computed_tokens")
    ]
    return {name: None if name in unknown else value for name, value in row.items()}


def _print_upright(console: Console, row: Row, columns: Sequence[str]) -> None:
    """Numbers end below each other; text begins beside its name, however long it is."""
    cells = [Text(formatter(column)(row[column])) for column in columns]
    numbers = [not isinstance(row[column], str | dict | list) for column in columns]
    lengths = [cell.cell_len for cell in cells]
    room = max(compress(lengths, numbers), default=0)
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column()
    for column, cell, is_number in zip(columns, cells, numbers, strict=True):
        if is_number:
            cell.pad_left(room - cell.cell_len)
        grid.add_row(column, cell)
    console.print(grid)
