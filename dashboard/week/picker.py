"""Which week of which zone the page Week shows: both stand in its address."""

from datetime import timedelta

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.answers import version_time
from dashboard.controls import store_state
from dashboard.report import Week
from dashboard.report.weeks import zone_of
from dashboard.week import data

DEFAULT_ZONE = "UTC"


def picked() -> Week | None:
    """The week of the address, else the newest one that is over; None for an empty store."""
    zone_box, week_box, _ = st.columns([1, 1.6, 2.4], vertical_alignment="bottom")
    zone = _zone(zone_box)
    choices = data.weeks(store_state(), zone)
    if not choices:
        return None
    usual = data.usual(choices)
    week = _parsed(st.query_params.get("week", ""), zone) or usual
    if week not in choices:
        choices = sorted([*choices, week], reverse=True)
    st.session_state["week"] = week
    week_box.selectbox("Week", choices, key="week", format_func=_week_label,
                       on_change=_week_chosen, args=(usual,))  # fmt: skip
    return week


def _zone(box: DeltaGenerator) -> str:
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
        zone_of(name)
    except ValueError:
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
