"""Why, tab Scopes: what trust boundaries cost, and whether anything crossed one."""

import streamlit as st

from dashboard import page, tables
from dashboard.answers import Answers
from dashboard.figures.numbers import whole
from dashboard.figures.rows import Rows, number
from dashboard.why.columns import CROSSED, ISOLATED, PUBLIC
from dashboard.words import purpose


def body(answers: Answers) -> None:
    """The audit first: reuse across a boundary is a leak. Then what keeping apart costs."""
    st.markdown("##### Reuse across scopes", help=purpose("cross_scope_reuse"))
    _crossed(answers.rows("cross_scope_reuse"))
    st.caption(page.window_words(answers))
    st.markdown("##### What scopes keep apart", help=purpose("isolation"))
    isolated = answers.rows("isolation")
    if isolated:
        st.caption("By the last audit of rows still hot. Shared if merged: an upper bound, in a "
                   "cache that loses nothing.")  # fmt: skip
        tables.show(isolated, ISOLATED, "isolation", alt="Tokens kept apart by scopes")
    else:
        st.caption("None known: no audit has found two scopes with a prefix in common, or "
                   "none has looked yet. The exporter looks every hour, `ingest --store` as it "
                   "ends, and only at rows that state a scope and a chain.")  # fmt: skip
    public = answers.rows("public_prefixes")
    if public:
        st.markdown("##### Prefixes of many tenants", help=purpose("public_prefixes"))
        st.caption("What so many tenants send holds nobody's secret: it could be kept in one scope "
                   "on purpose.")  # fmt: skip
        tables.show(public, PUBLIC, "public-prefixes", alt="Prefixes that many tenants send")


def _crossed(rows: Rows) -> None:
    replicas = [row for row in rows if row["scope"] is None]
    if not replicas:
        st.caption("No request in this window states a scope and a chain: nothing can be checked.")
        return
    least, checked, unknown = (
        sum(number(row, column) or 0.0 for row in replicas)
        for column in ("reused_at_least_tokens", "checked_cached_tokens", "cannot_tell_tokens")
    )
    if least:
        st.error(f"At least {whole(least)} cached tokens were computed in another scope: the "
                 "cache does not keep scopes apart.")  # fmt: skip
    else:
        st.markdown(f"None: all of {whole(checked)} cached tokens that could be checked were "
                    "computed in the scope that was served them.")  # fmt: skip
    if unknown:
        st.caption(f"Of {whole(unknown)} tokens nobody can tell: less than the horizon is known of "
                   "their replica.")  # fmt: skip
    if own := [row for row in rows if row["scope"] is not None]:
        tables.show(own, CROSSED, "cross-scope", alt="Reuse across scopes")
