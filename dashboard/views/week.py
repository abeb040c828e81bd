"""Week: the weekly cache report, interactive; the same figures as its file."""

from datetime import timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from dashboard import page, week_data, week_more, week_page_one
from dashboard.answers import REFRESH_SECONDS, version_time
from dashboard.client import DashboardError
from dashboard.controls import restore_address, store_state
from dashboard.report import Week

DEFAULT_ZONE = "UTC"


def _picked() -> Week | None:
    """The week of the address, else the newest one that is over; None for an empty store."""
    zone_box, week_box, _ = st.columns([1, 1.6, 2.4], vertical_alignment="bottom")
    zone = _zone(zone_box)
    choices = week_data.weeks(store_state(), zone)
    if not choices:
        return None
    usual = week_data.usual(choices)
    week = _parsed(st.query_params.get("week", ""), zone) or usual
    if week not in choices:
        choices = sorted([*choices, week], reverse=True)
    st.session_state["week"] = week
    week_box.selectbox("Week", choices, key="week", format_func=_week_label,
                       on_change=_week_chosen, args=(usual,))  # fmt: skip
    return week


def _zone(box: st.delta_generator.DeltaGenerator) -> str:
    zone = st.query_params.get("zone", DEFAULT_ZONE)
    if not _is_zone(zone):
        st.warning("This is no time zone; the week is shown in UTC. Write a name of the IANA "
                   "database, like Europe/Berlin.")  # fmt: skip
        zone = DEFAULT_ZONE
    reader = st.context.timezone
    choices = list(dict.fromkeys([DEFAULT_ZONE, *([reader] if reader else []), zone]))
    st.session_state["zone"] = zone
    box.selectbox("Zone", choices, key="zone", accept_new_options=True, on_change=_zone_chosen,
                  help="Weeks begin on Monday at 00:00 of these clocks.")  # fmt: skip
    return zone


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _parsed(name: str, zone: str) -> Week | None:
    try:
        return Week.parse(name, zone)
    except ValueError:
        return None


def _week_label(week: Week) -> str:
    last = week.monday + timedelta(days=6)
    running = ", so far" if week.until > version_time() else ""
    return f"{week.name} ({week.monday:%d %b} to {last:%d %b}{running})"


def _zone_chosen() -> None:
    st.query_params["zone"] = st.session_state["zone"]


def _week_chosen(usual: Week) -> None:
    week = st.session_state["week"]
    if week == usual:
        st.query_params.pop("week", None)
    else:
        st.query_params["week"] = week.name


def _body(week: Week | None) -> None:
    """The sentence at once, then the rest. Runs again by itself, also after a failure."""
    try:
        if week is None:
            page.nothing_yet(week_data.state())
            return
        week_page_one.headline(week, week_data.lead(week))
        with st.spinner("The rest of the report takes some forty questions …"):
            report = week_data.report(week)
        week_page_one.show(report)
        week_more.show(report)
    except DashboardError as error:
        page.failed(error)


restore_address("week")
st.fragment(_body, run_every=4 * REFRESH_SECONDS, key="data-week")(_picked())
