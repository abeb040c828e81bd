"""Entry file of the dashboard: lists the pages and runs the one that was asked for.

Start it with `streamlit run dashboard/app.py`. The exporter is found from PREFIXSCOPE_URL
(default http://127.0.0.1:9465) with the optional PREFIXSCOPE_TOKEN.
"""

from pathlib import Path

import streamlit as st

VIEWS = Path(__file__).parent / "views"

st.set_page_config(page_title="prefixscope", layout="wide")
page = st.navigation(
    [
        st.Page(VIEWS / "now.py", title="Now", url_path="start", default=True),
        st.Page(VIEWS / "who.py", title="Who", url_path="who"),
        st.Page(VIEWS / "why.py", title="Why", url_path="why"),
        st.Page(VIEWS / "latency.py", title="Latency", url_path="latency"),
        st.Page(VIEWS / "memory.py", title="Memory", url_path="memory"),
        st.Page(VIEWS / "what_if.py", title="What if", url_path="what_if"),
        st.Page(VIEWS / "week.py", title="Week", url_path="week"),
        # The first page is at the root whatever its name: who types /now meets it too.
        st.Page(VIEWS / "now.py", title="Now", url_path="now", visibility="hidden"),
    ],
    position="top",
)
page.run()
