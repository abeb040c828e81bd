"""The frame of every page: filter bar, what must be said at the top, and the part that refreshes.

Only the part with data reruns by itself, so that a refresh moves nothing else.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from dashboard import sources, words
from dashboard.answers import REFRESH_SECONDS, Answers, age, asked, last_data, version_time
from dashboard.client import DashboardError
from dashboard.controls import RERUN, filter_bar, go_to, look_closer, restore_address
from dashboard.figures.numbers import span
from dashboard.figures.rows import Row
from dashboard.filters import Filters, Window

STALE_AFTER = timedelta(minutes=10)
CHART_BUTTONS = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}
Body = Callable[[Answers], None]


def show(name: str, body: Body) -> None:
    """Draw one page. `body` draws the figures once there is something to draw."""
    restore_address(name)
    filters = filter_bar()
    every = REFRESH_SECONDS if not filters.fixed else 4 * REFRESH_SECONDS
    st.fragment(_data_part, run_every=every, key=f"data-{name}")(filters, body)


def _data_part(filters: Filters, body: Body) -> None:
    """Everything that depends on data. A failed question becomes a message, and the next run,
    a few seconds later, tries again."""
    if st.session_state.pop(RERUN, False):
        st.rerun(scope="app")  # a filter changed inside this part: the filter bar must follow
    try:
        state = next(iter(asked("store_state")), {})
        if nothing_yet(state):
            return
        now = version_time()
        window = filters.window(now, last_data(state), bool(state.get("demo")))
        _banners(state, now, filters, window)
        answers = Answers(filters, state, window)
        sources.show(answers)
        body(answers)
    except DashboardError as error:
        failed(error)


def failed(error: DashboardError, every_seconds: int = REFRESH_SECONDS) -> None:
    """Say what is wrong and what to run; the page tries again by itself."""
    st.error(str(error))
    if error.detail:
        st.text(error.detail)
    if error.remedy:
        st.code(error.remedy, language="shell")
    st.caption(
        f"This page asks again every {every_seconds} s and continues by itself. "
        "Another address: set PREFIXSCOPE_URL."
    )


def nothing_yet(state: Row) -> bool:
    """An empty store: say the first step. True if there is nothing else to show."""
    if state.get("level") is not None:
        return False
    st.info(
        "The store is empty: no request rows and no engine samples yet. "
        "The first step is either of these; the page fills by itself.",
        title="No data yet",
    )
    st.caption("You have a request log (gateway, proxy, engine):")
    st.code(words.NEXT_STEP_ROWS, language="shell")
    st.caption("You have an engine's metrics page: name it under scrape in prefixscope.yml, then:")
    st.code(words.NEXT_STEP_ENGINES, language="shell")
    return True


def _banners(state: Row, now: datetime, filters: Filters, window: Window) -> None:
    """What changes how every number below is to be read."""
    if state.get("demo"):
        st.info("Demo data: synthetic traffic through a modelled cache, not your fleet.")
    old, last = age(state, now), last_data(state)
    if old is not None and last is not None and old > STALE_AFTER:
        where = "" if window.live else f" Shown: {_from_to(window)}."
        st.warning(f"The last data is {span(old)} old ({last:%Y-%m-%d %H:%M} UTC).{where}")
    _elsewhere(state, filters, window)
    if state.get("level") == 0:
        st.info(
            "Level 0: engine counters only. Hit ratio by model and replica, computed tokens and KV "
            "in use are shown. One step adds routes, templates, tenants and TTFT of hits and "
            f"misses: a request log (`{words.NEXT_STEP_ROWS}`) or, for vLLM and llama.cpp, the tap "
            f"that writes one (`{words.NEXT_STEP_TAP}`)."
        )


def _elsewhere(state: Row, filters: Filters, window: Window) -> None:
    """Say when one kind of data lies outside the window, and offer to go there."""
    kinds = (("request rows", "first_ts", "last_ts"),
             ("engine samples", "engine_first_ts", "engine_last_ts"))  # fmt: skip
    for what, first_column, last_column in kinds:
        if state.get(last_column) is None:
            continue
        first, last = (state[c].replace(tzinfo=UTC) for c in (first_column, last_column))
        if first < window.until and last >= window.since:
            continue
        st.warning(f"No {what} in this window: they are from {_from_to(Window(first, last))}.")
        st.button(f"Show the {what}", key=f"go-{what}", on_click=go_to,
                  args=(filters, max(first, last - window.length), last))  # fmt: skip


def window_words(answers: Answers) -> str:
    """The window every number of the page is for."""
    return f"Window: {_from_to(answers.window)}."


def _from_to(window: Window) -> str:
    return f"{window.since:%Y-%m-%d %H:%M} to {window.until:%Y-%m-%d %H:%M} UTC"


def rows_kept(answers: Answers) -> str:
    """Say when figures that need single rows cannot reach back to the start of the window."""
    hot_since = answers.state.get("hot_since")
    if hot_since is None or answers.window.since >= hot_since.replace(tzinfo=UTC):
        return ""
    return (f"Distributions are from rows, which are kept from {hot_since:%Y-%m-%d %H:%M} UTC on; "
            "only the chart over time reaches back further.")  # fmt: skip


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """Draw a figure over the full width; `alt` says in words what it shows."""
    st.plotly_chart(figure, key=key, alt=alt, config=CHART_BUTTONS)


def time_chart(figure: go.Figure, key: str, alt: str) -> None:
    """Draw a figure over time. Dragging across it makes that time the page's window."""
    st.caption("Drag across the chart to look at a shorter time.")
    st.plotly_chart(figure, key=key, alt=alt, config=CHART_BUTTONS, selection_mode="box",
                    on_select=partial(look_closer, key))  # fmt: skip


def engine_filter_note(filters: Filters) -> None:
    """Say which filters a figure of engine counters does not follow."""
    ignored = [name for name in filters.dimension_filters() if name not in words.ENGINE_DIMENSIONS]
    if ignored:
        st.caption(
            f"Engines do not know {' or '.join(ignored)}: figures from engine counters and KV "
            "memory are for all of them."
        )


def comparison_words(answers: Answers) -> str:
    """What "before" means on this page: "the previous 6 h"; '' where nothing is compared."""
    if answers.before is None:
        return ""
    length = span(answers.window.length)
    return (
        f"the same {length} a week before"
        if answers.filters.compare == "week"
        else (f"the previous {length}")
    )
