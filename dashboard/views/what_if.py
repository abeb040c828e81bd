"""What if: the window's own traffic once more, caching off, on, and behind other routers."""

from collections.abc import Mapping

import streamlit as st

from dashboard import page, what_if
from dashboard.answers import Answers
from dashboard.figures.rows import Row
from dashboard.figures.safe import code_span
from dashboard.filters import iso
from dashboard.what_if_form import Traffic, form
from dashboard.what_if_run import replayed
from replay.calibration import Calibration
from replay.counted import counted

# Measured once a view: fields that begin with other figures every few seconds cannot be edited.
_KNOWN = "what-if-known"


def body(answers: Answers) -> None:
    """The setting with what the store says of it, a button, and what came out."""
    window = {"since": answers.window.since, "until": answers.window.until}
    row = what_if.replayed_model(window | {"model": answers.filters.model})
    if not row:
        st.info(what_if.nothing_words(window, answers.filters.model))
        return
    st.caption(_words(answers, row))
    asked_for = form(
        _measured(answers, window, row["model"]),
        Traffic(
            window=tuple(sorted((name, iso(moment)) for name, moment in window.items())),
            model=row["model"],
            hashes=row["hashes"],
            merged_tokens=what_if.merged_tokens(row["model"]),
            findings=what_if.findings(row["model"]),
        ),
    )
    if asked_for is None:
        return
    with st.spinner("Replaying … (compiled the first time, which takes up to a minute)"):
        found = replayed(asked_for)
        # Compiled code comes with it, which a page that only asks does not need.
        from dashboard.what_if_shown import show  # noqa: PLC0415
    if found is None:
        st.info(what_if.NO_CHAINS)
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
    if row["hashes"] > what_if.MOST_HASHES:
        told += f" The newest of them are replayed, with at most {what_if.MOST_HASHES:,} hashes."
    return f"{told} {page.window_words(answers)} {page.rows_kept(answers)}"


def _measured(answers: Answers, window: Mapping[str, object], model: str) -> Calibration:
    """What the window told when this view of it was opened."""
    known: dict[tuple[str, str], Calibration] = st.session_state.setdefault(_KNOWN, {})
    view = answers.view, model
    if view not in known:
        known.clear()
        known[view] = what_if.measured(window, model)
    return known[view]


page.show("what_if", body)
