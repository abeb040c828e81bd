"""Memory: what fills it, what leaves it, whether offload pays, and what it holds."""

import streamlit as st

from dashboard import columns, contents_tab, evictions_tab, page, split_tab, tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.words import purpose

TABS = {
    "split": "Split", "evictions": "Evictions", "offload": "Offload", "contents": "Contents",
}  # fmt: skip


def body(answers: Answers) -> None:
    """The chosen tab; only its questions are asked. The choice is in the address."""
    tab = choose("Memory", "tab", TABS, "split")
    match tab:
        case "evictions":
            evictions_tab.body(answers)
        case "offload":
            _offload(answers)
        case "contents":
            contents_tab.body(answers)
        case _:
            split_tab.body(answers)


def _offload(answers: Answers) -> None:
    st.caption(page.window_words(answers))
    rows = answers.rows("offload")
    if not rows:
        st.info("No page in this window counts KV written to lower tiers or brought back.")
        return
    st.markdown("##### Written to lower tiers and brought back", help=purpose("offload"))
    tables.show(rows, columns.OFFLOAD, "offload", alt="KV moved to and from lower tiers")


page.show("memory", body)
