"""Tables: rows of a question as Streamlit shows them, every column with unit and definition.

Cells are plain text and numbers: nothing in them is read as HTML or Markdown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from dashboard.figures.rows import Row, Rows, moment, number
from dashboard.figures.safe import plain
from dashboard.words import definition

Kind = Literal[
    "name",
    "text",
    "moment",
    "count",
    "ratio",
    "bar",
    "points",
    "seconds",
    "rate",
    "score",
    "fit",
    "factor",
    "trend",
    "gib",
    "usd",
]
MOST_ROWS = 500
_MISSING = "–"
# So that a phone has room beside a long name.
_PINNED_PIXELS = 170


@dataclass(frozen=True)
class Column:
    """One column of a table. `question` and `source` say where its definition is found;
    `meaning` is for the few columns the page makes itself. `pinned`: stays in sight where a narrow
    screen scrolls the others."""

    source: str
    label: str
    kind: Kind
    question: str = ""
    meaning: str = ""
    pinned: bool = False


def show(
    rows: Rows,
    columns: Sequence[Column],
    key: str,
    *,
    names: str | None = None,
    chosen: Callable[[str], None] | None = None,
    alt: str,
) -> None:
    """Draw a table of at most MOST_ROWS rows and say how many there are.

    With `names` (a column of the rows) and `chosen`, clicking a row calls `chosen` with the
    name that stood in the clicked row when it was drawn.
    """
    shown = list(rows)[:MOST_ROWS]
    drawn = f"{key}-names"
    st.session_state[drawn] = [row.get(names) for row in shown] if names else []

    def clicked() -> None:
        selected = st.session_state[key]["selection"]["rows"]
        if chosen is not None and selected:
            chosen(st.session_state[drawn][selected[0]])

    st.dataframe(
        arrow(shown, columns),
        key=key,
        alt=alt,
        hide_index=True,
        width="stretch",
        height="content" if len(shown) <= 12 else 460,
        placeholder=_MISSING,
        column_config={column.source: _config(column) for column in columns},
        on_select=clicked if chosen else "ignore",
        selection_mode="single-row",
    )
    if len(rows) > MOST_ROWS:
        st.caption(f"The {MOST_ROWS} first of {len(rows):,} are shown; filters reach the others.")


def arrow(rows: Rows, columns: Sequence[Column]) -> pa.Table:
    """The cells: ratios and points times 100, names made plain, unknown as null."""
    return pa.table(
        {
            column.source: pa.array([_cell(row, column) for row in rows], type=_TYPES[column.kind])
            for column in columns
        }
    )


def _cell(row: Row, column: Column) -> str | float | None:
    if column.kind == "name":
        return plain(row.get(column.source))
    if column.kind == "moment":
        when = row.get(column.source)
        return None if when is None else f"{moment(when):%Y-%m-%d %H:%M:%S}"
    if column.kind in {"text", "trend"}:
        value = row.get(column.source)
        return None if value is None or value == "" else str(value)
    value = number(row, column.source)
    if value is None:
        return None
    if column.kind in {"ratio", "bar", "points"}:
        return value * 100
    if column.kind == "gib":
        return value / 2**30
    return round(value, _DIGITS[column.kind]) if column.kind in _DIGITS else value


def _config(column: Column) -> ColumnConfig:
    told = column.meaning or definition(column.question, column.source)
    kinds, pinned = st.column_config, column.pinned or None
    match column.kind:
        case "name" | "text" | "moment":
            width = _PINNED_PIXELS if pinned else None
            return kinds.TextColumn(column.label, help=told, pinned=pinned, width=width)
        case "trend":
            return kinds.ImageColumn(column.label, help=told, width=170)
        case "bar":
            return kinds.ProgressColumn(
                column.label, help=told, format="%.1f %%", min_value=0, max_value=100
            )
        case _:
            return kinds.NumberColumn(column.label, help=told, format=_FORMATS[column.kind])


_DIGITS: dict[Kind, int] = {"count": 0, "rate": 1}
_FORMATS = {
    "count": "localized",
    "ratio": "%.1f %%",
    "points": "%+.1f",
    "seconds": "%.3f",
    "rate": "localized",
    "score": "%.1f",
    "factor": "%.2f",
    "fit": "%.2f",
    "gib": "%.2f",
    "usd": "%.2f",
}
_TYPES: dict[Kind, pa.DataType] = {
    "name": pa.string(),
    "text": pa.string(),
    "trend": pa.string(),
    "moment": pa.string(),
    "count": pa.int64(),
    "ratio": pa.float64(),
    "bar": pa.float64(),
    "points": pa.float64(),
    "seconds": pa.float64(),
    "rate": pa.float64(),
    "score": pa.float64(),
    "factor": pa.float64(),
    "fit": pa.float64(),
    "gib": pa.float64(),
    "usd": pa.float64(),
}
