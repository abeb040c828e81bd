"""The filter bar and the address: widgets show what the address says and write back to it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import streamlit as st

from dashboard.answers import asked, last_data, version_time
from dashboard.client import DashboardError
from dashboard.figures.rows import Row
from dashboard.figures.safe import NOT_GIVEN, plain
from dashboard.filters import COMPARISONS, DIMENSIONS, RANGES, Filters, Window

FIXED = "fixed"
MOST_OPTIONS = 500
# Pixels: all in one row on a screen of 1280, two beside each other on a phone of 390.
FILTER_WIDTH = 144
RERUN = "rerun-page"
_REMEMBERED = "address"


def restore_address(page: str) -> None:
    """Carry filters from page to page: Streamlit empties the address when a reader moves on.

    The address of a page opened by a link is left as it is.
    """
    before = st.session_state.get(_REMEMBERED)
    if before is not None and before["page"] != page and not st.query_params.to_dict():
        st.query_params.from_dict(before["filters"])
    filters = Filters.from_address(st.query_params.to_dict())
    st.session_state[_REMEMBERED] = {"page": page, "filters": filters.to_address()}


def filter_bar() -> Filters:
    """Draw the shared filters and return what the address says.

    They flow instead of standing in columns: on a phone columns are stacked, and six of them would
    push the verdict off the first screen.
    """
    filters = Filters.from_address(st.query_params.to_dict())
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _range(filters)
        _set("compare", filters.compare)
        st.selectbox("Compare with", list(COMPARISONS), key="compare", on_change=_compare_chosen,
                     format_func=COMPARISONS.__getitem__, width=FILTER_WIDTH)  # fmt: skip
        for dimension in DIMENSIONS:
            _dimension(filters, dimension)
    if filters.fixed:
        _fixed_ends(filters)
    return filters


def write(filters: Filters) -> None:
    """Put the filters into the address; a page's own parameters stay."""
    known = {*Filters.__dataclass_fields__}
    others = {k: v for k, v in st.query_params.to_dict().items() if k not in known}
    st.query_params.from_dict({**filters.to_address(), **others})


def own_parameter(name: str, choices: list[str], default: str) -> str:
    """A page's own choice, kept in the address too; what is not a choice is the default."""
    value = st.query_params.get(name, default)
    return value if value in choices else default


def choose(label: str, name: str, choices: Mapping[str, str], default: str) -> str:
    """A segmented control whose value lives in the address under `name`."""
    value = own_parameter(name, list(choices), default)
    _set(name, value)
    st.segmented_control(label, list(choices), key=name, required=True, on_change=_own_chosen,
                         args=(name, default), format_func=choices.__getitem__)  # fmt: skip
    return value


def drill(dimension: str, following: str, value: str) -> None:
    """Look into one value: set its filter in the address and group by the next dimension."""
    narrow(dimension, value)
    st.query_params["by"] = following


def narrow(dimension: str, value: str) -> None:
    """Set one filter in the address and draw the page anew."""
    filters = Filters.from_address(st.query_params.to_dict())
    write(filters.with_value(dimension, value))
    st.session_state[RERUN] = True


def look_closer(chart: str) -> None:
    """Fix the window on the time selected in a chart, in whole minutes."""
    boxes = st.session_state[chart]["selection"]["box"]
    if not boxes:
        return
    since, last = sorted(datetime.fromisoformat(end).replace(tzinfo=UTC) for end in boxes[0]["x"])
    ends = (since.replace(second=0), last.replace(second=59))
    go_to(Filters.from_address(st.query_params.to_dict()), *ends)


def go_to(filters: Filters, since: datetime, last: datetime) -> None:
    """Fix the window on [since, last], the end included."""
    until = last.replace(microsecond=0) + timedelta(seconds=1)
    write(replace(filters, since=since.replace(microsecond=0), until=until))
    st.session_state[RERUN] = True


def _set(key: str, value: object) -> None:
    """The address is the truth: the widget starts every run from it."""
    st.session_state[key] = value


def _range(filters: Filters) -> None:
    options = dict(RANGES) | ({} if filters.range in RANGES else {filters.range: filters.range})
    options[FIXED] = "fixed"
    _set("range", FIXED if filters.fixed else filters.range)
    st.segmented_control(
        "Time range",
        list(options),
        key="range",
        required=True,
        on_change=_range_chosen,
        format_func=options.__getitem__,
        help="Counts back from now. “fixed” keeps the window where it is, for a link to it. "
        "All times are UTC.",
    )


def _range_chosen() -> None:
    filters = Filters.from_address(st.query_params.to_dict())
    chosen = st.session_state["range"]
    if chosen != FIXED:
        write(replace(filters, range=chosen, since=None, until=None))
        return
    window = current_window(filters)
    write(replace(filters, since=window.since, until=window.until))


def current_window(filters: Filters) -> Window:
    """The window shown right now; from the clock alone while the exporter does not answer."""
    state = store_state()
    return filters.window(version_time(), last_data(state), bool(state.get("demo")))


def store_state() -> Row:
    """What the store holds; an empty row while the exporter does not answer."""
    try:
        return next(iter(asked("store_state")), {})
    except DashboardError:
        return {}


def _compare_chosen() -> None:
    filters = Filters.from_address(st.query_params.to_dict())
    write(replace(filters, compare=st.session_state["compare"]))


def _dimension(filters: Filters, dimension: str) -> None:
    """One filter. Values come most traffic first; any other can be typed."""
    current = getattr(filters, dimension)
    options = _values(dimension)
    if current is not None and current not in options:
        options = [current, *options]
    _set(dimension, current)
    st.selectbox(
        dimension.capitalize(),
        options,
        index=None,
        key=dimension,
        placeholder="all",
        width=FILTER_WIDTH,
        format_func=plain,
        accept_new_options=True,
        on_change=_dimension_chosen,
        args=(dimension,),
    )


def _values(dimension: str) -> list[str]:
    try:
        rows = asked("dimension_values", {"dimension": dimension}, versions=8)
    except DashboardError:
        return []
    return [row["value"] for row in rows[:MOST_OPTIONS]]


def _dimension_chosen(dimension: str) -> None:
    filters = Filters.from_address(st.query_params.to_dict())
    value = st.session_state[dimension]
    write(filters.with_value(dimension, "" if value == NOT_GIVEN else value))


def _own_chosen(name: str, default: str) -> None:
    value = st.session_state[name]
    if value == default or value is None:
        st.query_params.pop(name, None)
    else:
        st.query_params[name] = value


def _fixed_ends(filters: Filters) -> None:
    """Both ends of a fixed window, in UTC whatever the reader's or server's zone is."""
    columns = st.columns([1.3, 1.3, 6], vertical_alignment="bottom")
    ends = (("since", "From (UTC)"), ("until", "Until (UTC)"))
    for (key, label), column in zip(ends, columns, strict=False):
        _set(key, _shown_end(filters, key))
        column.datetime_input(label, key=key, on_change=_end_chosen, args=(key,), step=60,
                              format="YYYY-MM-DD")  # fmt: skip


def _shown_end(filters: Filters, key: str) -> datetime:
    """An end as the input shows it: whole minutes, rounded so that the window is inside."""
    moment: datetime = getattr(filters, key)
    minute = moment.replace(second=0, microsecond=0, tzinfo=None)
    exact = minute == moment.replace(tzinfo=None)
    return minute if key == "since" or exact else minute + timedelta(minutes=1)


def _end_chosen(key: str) -> None:
    filters, chosen = Filters.from_address(st.query_params.to_dict()), st.session_state[key]
    if not filters.fixed or chosen is None or chosen == _shown_end(filters, key):
        return
    changes = {"since": filters.since, "until": filters.until} | {key: chosen.replace(tzinfo=UTC)}
    changed = replace(filters, **changes)
    if changed.since and changed.until and changed.since < changed.until:
        write(changed)
