"""The requests behind a figure, one page at a time: the store sorts, cuts and counts them."""

import streamlit as st

from dashboard import tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.figures.numbers import whole
from dashboard.figures.rows import Rows
from dashboard.tables import Column
from replay.counted import counted

PAGE_ROWS = 100
ORDERS = {
    "off": "not shown",
    "ts": "latest first",
    "ttft_seconds": "slowest first",
    "computed_tokens": "most computed first",
}
_COLUMNS: tuple[tuple[str, str, tables.Kind], ...] = (
    ("ts", "time (UTC)", "moment"),
    ("outcome", "outcome", "name"),
    ("prompt_tokens", "prompt tokens", "count"),
    ("cached_tokens", "cached tokens", "count"),
    ("computed_tokens", "computed tokens", "count"),
    ("ttft_seconds", "TTFT, s", "seconds"),
    ("ttft_point", "TTFT measured at", "text"),
    ("route", "route", "name"),
    ("template", "template", "name"),
    ("tenant", "tenant", "name"),
    ("model", "model", "name"),
    ("replica", "replica", "name"),
    ("status", "status", "text"),
    ("request_id", "request id", "text"),
)
COLUMNS = tuple(Column(source, label, kind, "requests") for source, label, kind in _COLUMNS)


def show(answers: Answers) -> None:
    """Let the reader choose an order, then draw one page and the true total."""
    order = choose("Single requests", "requests", ORDERS, "off")
    if order == "off":
        return
    first = answers.rows("requests", order=order, limit=PAGE_ROWS)
    total = int(first[0]["total_rows"]) if first else 0
    if not total:
        st.caption("No request rows in this window with these filters.")
        return
    pages = -(-total // PAGE_ROWS)
    # Another view or order starts at its own first page.
    number = st.pagination(pages, key=f"requests-page-{order}-{answers.view}") if pages > 1 else 1
    offset = (min(number, pages) - 1) * PAGE_ROWS
    rows: Rows = first if offset == 0 else answers.rows(
        "requests", order=order, limit=PAGE_ROWS, offset=offset
    )  # fmt: skip
    st.caption(
        f"{whole(offset + 1)} to {whole(offset + len(rows))} of {counted(total, 'request')}, "
        f"{ORDERS[order]}. The table's toolbar saves this page as CSV; "
        "`prefixscope query requests --param limit=1000000 --output csv` all of them."
    )
    tables.show(rows, COLUMNS, "requests-table", alt="Single requests")
