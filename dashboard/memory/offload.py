"""Memory, tab Offload: does keeping KV in lower tiers pay? The verdict first, then its evidence."""

import streamlit as st

from dashboard import page, tables
from dashboard.answers import Answers
from dashboard.figures.offload import (
    first_token_differences,
    load_against_prefill,
    moved_over_time,
    speed_words,
    with_both,
)
from dashboard.figures.rows import Row, Rows, number
from dashboard.figures.safe import code_span
from dashboard.memory import offload_columns, offload_missing
from dashboard.words import point_name, purpose

_BOX = {"pays": st.success, "does not pay": st.warning}
_SEVERE = {"critical": st.error, "warning": st.warning}


def body(answers: Answers) -> None:
    """Verdict, first tokens, times of a token, transfers, costs, and the audit of stale KV."""
    verdicts = answers.rows("offload_verdict", by="model")
    stale = answers.rows("stale_reuse")
    if not verdicts:
        _nothing(answers)
        _audit(stale)
        return
    for row in verdicts:
        _verdict(row)
    st.caption(f"A higher hit ratio alone is no gain. {page.window_words(answers)} "
               f"{page.rows_kept(answers)}")  # fmt: skip
    page.engine_filter_note(answers.filters)
    _audit([row for row in stale if row.get("severity") in _SEVERE])
    left, right = st.columns(2)
    with left:
        _first_tokens(answers)
    with right:
        _tokens(answers)
    _moved(answers)
    _costs(answers)
    _missing(verdicts)
    _audit([row for row in stale if row.get("severity") not in _SEVERE])


def _nothing(answers: Answers) -> None:
    st.info(f"{offload_missing.NO_TIER} {page.window_words(answers)}", title="Nothing to judge")
    st.caption("An engine keeps KV in host memory with:")
    for engine, flag in offload_missing.FLAGS:
        st.caption(engine)
        st.code(flag, language="shell")


def _verdict(row: Row) -> None:
    """One sentence of the question, in a box; names are code, so that they cannot be markup."""
    verdict, sentence = str(row.get("verdict")), str(row.get("sentence"))
    box = _BOX.get(verdict, st.info)
    box(f"{code_span(row.get('model'))}, {row.get('tier')}: **{verdict}**"
        f"{sentence.removeprefix(verdict)}")  # fmt: skip


def _first_tokens(answers: Answers) -> None:
    st.markdown("##### First token: served from a tier against computed",
                help=purpose("offload_ttft"))  # fmt: skip
    classes = answers.rows("offload_ttft", within="computed")
    own = [row for row in classes if row.get("comparison") != "transfers"]
    if not own:
        st.caption("No requests to compare: each class needs 10 requests served from a tier and 10 "
                   "that computed as many tokens at equal prompt length and load.")  # fmt: skip
        return
    page.chart(first_token_differences(own), "offload-ttft",
               "Difference of first tokens by tokens to compute, with intervals")  # fmt: skip
    points = sorted({point_name(row.get("ttft_point")) for row in own})
    st.caption(f"95 % intervals of medians; time to first token less queue, measured at "
               f"{', '.join(points)}; requests of equal prompt length and load. Rows: tokens "
               "to compute without the tier.")  # fmt: skip


def _tokens(answers: Answers) -> None:
    st.markdown("##### A token loaded against a token computed", help=purpose("offload_load"))
    rows = answers.rows("offload_load", by="model")
    known = with_both(rows)
    if not known:
        st.caption("Not known: it needs the time and tokens of loads from a metrics page, and a "
                   "prefill speed from request rows (see below).")  # fmt: skip
        return
    page.chart(load_against_prefill(rows), "offload-load", "Seconds a token, loaded and computed")
    speeds = [f"{row.get('tier')} {speed_words(number(row, 'bytes_per_second'))}"
              for row in known if number(row, "bytes_per_second") is not None]  # fmt: skip
    moved = f" One transfer moves: {', '.join(speeds)}." if speeds else ""
    st.caption("Load times are summed over transfers and ranks side by side: a request waits for "
               f"less.{moved}")  # fmt: skip


def _moved(answers: Answers) -> None:
    st.markdown("##### Written and brought back over time", help=purpose("offload_over_time"))
    rows = answers.over_time("offload_over_time")
    if not any(number(row, column) for row in rows for column in ("bytes", "tokens")):
        st.caption("No metrics page in this window counts transfers; only cached tokens tell that "
                   "the tier served.")  # fmt: skip
        return
    figure = moved_over_time(rows, step_seconds=answers.step_seconds,
                             since=answers.window.since, until=answers.window.until)  # fmt: skip
    page.time_chart(figure, "offload-over-time", "KV moved to and from lower tiers over time")


def _costs(answers: Answers) -> None:
    st.markdown("##### What it costs", help=purpose("offload_cost"))
    rows = answers.rows("offload_cost", by="model")
    if rows:
        tables.show(rows, offload_columns.COST, "offload-cost", alt="Costs of lower tiers")
    slow = [row for row in answers.rows("offload_ttft", by="model")
            if row.get("comparison") == "transfers"]  # fmt: skip
    if not slow:
        st.caption("Whether requests that compute wait longer while transfers run is not known: it "
                   "needs pages that count transfers and rows of the same replicas.")  # fmt: skip
        return
    st.markdown("##### Requests that computed: while transfers ran against idle")
    tables.show(slow, offload_columns.SLOWDOWN, "offload-slowdown",
                alt="Time to first token of computing requests while transfers ran")  # fmt: skip


def _missing(verdicts: Rows) -> None:
    parts = {part: told for row in verdicts
             for part, told in offload_missing.advice(str(row.get("missing") or ""))}  # fmt: skip
    if not parts:
        return
    with st.expander(f"What is not known, and what would tell it ({len(parts)})"):
        for part, told in parts.items():
            st.markdown(f"**{part}**  \n{told}")


def _audit(rows: Rows) -> None:
    """Reuse of KV written under something else. Severe findings are boxes, the rest a table."""
    for row in rows:
        box = _SEVERE.get(str(row.get("severity")))
        if box is not None:
            box(f"{code_span(row.get('model'))} on {code_span(row.get('replica'))}, tier "
                f"{row.get('tier')}: {row.get('sentence')} Written under "
                f"{code_span(row.get('written_under'))}, reused under "
                f"{code_span(row.get('read_under'))}.")  # fmt: skip
    quiet = [row for row in rows if row.get("severity") not in _SEVERE]
    if quiet:
        with st.expander(f"Reuse across restarts, and of unknown origin ({len(quiet)})"):
            tables.show(quiet, offload_columns.STALE_REUSE, "stale-reuse", alt="Reuse of older KV")
