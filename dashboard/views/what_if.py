"""What if: the window's own traffic once more, caching off, on, and behind other routers."""

from collections.abc import Mapping

import streamlit as st

from dashboard import page
from dashboard.answers import Answers
from dashboard.figures.rows import Row
from dashboard.figures.safe import code_span
from dashboard.filters import iso
from dashboard.what_if import traffic
from dashboard.what_if.form import Traffic, form
from dashboard.what_if.run import replayed
from replay.calibration import Calibration
from replay.counted import counted

# Measured once a view: fields that begin with other figures every few seconds cannot be edited.
_KNOWN = "what-if-known"


def body(answers: Answers) -> None:
    """The setting with what the store says of it, a button, and what came out."""
    window = {"since": answers.window.since, "until": answers.window.until}
    row = traffic.replayed_model(window | {"model": answers.filters.model})
    if not row:
        st.info(traffic.nothing_words(window, answers.filters.model))
        return
    st.caption(_words(answers, row))
    asked_for = form(
        _measured(answers, window, row["model"]),
        Traffic(
            window=tuple(sorted((name, iso(moment)) for name, moment in window.items())),
            model=row["model"],
            hashes=row["hashes"],
            merged_tokens=traffic.merged_tokens(row["model"]),
            findings=traffic.findings(row["model"]),
        ),
    )
    if asked_for is None:
        return
    with st.spinner("Replaying … (compiled the first time, which takes up to a minute)"):
        found = replayed(asked_for)
        # Compiled code comes with it, which a page that only asks does not need.
        from dashboard.what_if.shown import show  # noqa: PLC0415
    if found is None:
        st.info(traffic.NO_CHAINS)
        return
    show(asked_for, found)


def _words(answers: Answers, row: Row) -> str:
    """What would be replayed."""
    model = code_span(row["model"])
    requests = counted(row["chain_requests"], "request")
    told = f"{requests} of {model} with {counted(row['hashes'], 'hash', 'hashes')} of blocks."
    if left_out := row["prompt_requests"] - row["chain_requests"]:
        told += f" {left_out:,} more have no chain of them, and cannot be replayed."
    ignored = [name for name in answers.filters.dimension_filters() if name != "model"]
    if ignored:
        told += f" Replicas serve all of them, whatever {' and '.join(ignored)} above says."
    if row["hashes"] > traffic.MOST_HASHES:
        told += f" The newest of them are replayed, with at most {traffic.MOST_HASHES:,} hashes."
    return f"{told} {page.window_words(answers)} {page.rows_kept(answers)}"


def _measured(answers: Answers, window: Mapping[str, object], model: str) -> Calibration:
    """What the window told when this view of it was opened."""
    known: dict[tuple[str, str], Calibration] = st.session_state.setdefault(_KNOWN, {})
    view = answers.view, model
    if view not in known:
        known.clear()
        known[view] = traffic.measured(window, model)
    return known[view]


page.show("what_if", body)
