"""Why, tab Prompts: where the layout of templates breaks reuse, and templates that were found."""

import streamlit as st

from dashboard import page, tables
from dashboard.answers import Answers
from dashboard.controls import choose
from dashboard.figures.causes import shared_ranges
from dashboard.figures.rows import Row, Rows, moment
from dashboard.figures.safe import code_span, plain
from dashboard.why.columns import FOUND, LAYOUT
from dashboard.words import purpose

_MOST_CHOICES = 50
_MOST_IN_WORDS = 3


def body(answers: Answers) -> None:
    """Findings, one template along its tokens, and the templates found without labels."""
    st.markdown("##### What breaks reuse", help=purpose("layout"))
    findings = answers.rows("layout")
    if findings:
        st.caption(_looked_at(findings[0]))
        tables.show(findings, LAYOUT, "layout", alt="Layout findings")
        for finding in findings[:_MOST_IN_WORDS]:
            st.markdown(f"- {code_span(finding['template'])}: {finding['advice']}")
            st.code(finding["command"], language="shell")
    else:
        st.caption("Nothing found. Templates are looked at every hour, by the chains of a sample "
                   "of the last day's rows; without chains there is nothing to look "
                   "at.")  # fmt: skip
    _ranges(answers)
    st.markdown("##### Templates that were found", help=purpose("found_templates"))
    found = answers.rows("found_templates")
    if found:
        st.caption("Rows without a label take the name of the prefix they begin with. "
                   "`prefixscope templates name auto:… NAME` calls it as you do.")  # fmt: skip
        tables.show(found, FOUND, "found-templates", alt="Templates found in chains")
    else:
        st.caption("None: all rows name their template, or no prefix is shared by enough of them.")


def _looked_at(finding: Row) -> str:
    since, until = (f"{moment(finding[name]):%Y-%m-%d %H:%M}" for name in ("window_since", "as_of"))
    return (f"From a sample of the rows from {since} to {until} UTC, whatever the window of this "
            "page. What a fix wins is estimated by replay.")  # fmt: skip


def _ranges(answers: Answers) -> None:
    rows = answers.rows("template_ranges")
    names = _largest(rows)
    if not names:
        return
    st.markdown("##### Along the prompt", help=purpose("template_ranges"))
    chosen = choose("Template", "template_shown", {name: plain(name) for name in names}, names[0])
    own = [row for row in rows if row["template"] == chosen]
    page.chart(shared_ranges(own), "why-ranges", "Shared parts of a template's prompts")


def _largest(rows: Rows) -> list[str]:
    """Templates by the requests looked at."""
    requests: dict[str, int] = {}
    for row in rows:
        requests[row["template"]] = max(requests.get(row["template"], 0), row["template_requests"])
    ordered = sorted(requests, key=lambda name: (-requests[name], name))
    return ordered[:_MOST_CHOICES]
