"""Why, tab Routing: what other replicas had, and how evenly the replicas compute."""

import streamlit as st

from dashboard import page, tables
from dashboard.answers import Answers
from dashboard.figures.rows import number
from dashboard.why.columns import ROUTING
from dashboard.words import purpose


def body(answers: Answers) -> None:
    """One line a model: the gain that routing could have, and the balance it would cost."""
    st.markdown(
        "##### Lost because another replica had computed it", help=purpose("routing_losses")
    )
    rows = [row for row in answers.rows("routing_losses") if number(row, "prompt_tokens")]
    if not rows:
        st.caption("No explained requests in this window; the tab Causes says what they take.")
        return
    st.caption("The most a router could win, beside the balance: what sends every request to "
               "where its prefix is makes one replica the busiest. "
               f"{page.window_words(answers)} What other routers would have done: "
               "`prefixscope replay` on an exported trace.")  # fmt: skip
    tables.show(rows, ROUTING, "routing", alt="Losses to routing by model")
