"""Week: the weekly cache report, interactive; the same figures as its file."""

import streamlit as st

from dashboard import page
from dashboard.answers import REFRESH_SECONDS
from dashboard.client import DashboardError
from dashboard.controls import restore_address
from dashboard.report import Week
from dashboard.week import data, more, page_one
from dashboard.week.picker import DEFAULT_ZONE, picked

EVERY_SECONDS = 4 * REFRESH_SECONDS


def _body(week: Week | None) -> None:
    """The sentence at once, then the rest. Runs again by itself, also after a failure."""
    try:
        if week is None:
            _no_week()
            return
        page_one.headline(week, data.lead(week))
        with st.spinner("The rest of the report takes some forty questions …"):
            report = data.report(week)
        page_one.show(report)
        more.show(report)
    except DashboardError as error:
        page.failed(error, EVERY_SECONDS)


def _no_week() -> None:
    state = data.state()
    if data.weeks(state, DEFAULT_ZONE):
        st.rerun()  # there is something by now: the picker must follow
    if not page.nothing_yet(state):
        st.info("No request row and no engine sample yet: there is no week to report.")


restore_address("week")
st.fragment(_body, run_every=EVERY_SECONDS, key="data-week")(picked())
