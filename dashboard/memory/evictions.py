"""Memory, tab Evictions: how fast the cache turns over, how old blocks grow, what is missed."""

import streamlit as st

from dashboard import columns, page, tables
from dashboard.answers import Answers
from dashboard.figures.evictions import COUNTERS, EVENTS, age_bars, basis_of, turnover
from dashboard.figures.numbers import duration, percent, whole
from dashboard.figures.rows import Row, Rows, number
from dashboard.memory import events_note
from dashboard.tiles import tile
from dashboard.words import hover, purpose
from replay.counted import counted

MOST_RESETS = 200


def body(answers: Answers) -> None:
    """Tiles, the course with resets, ages, and the table by replica; or what is missing."""
    totals = answers.rows("evictions")
    ages = answers.rows("block_age_distribution")
    streams = answers.rows("block_streams")
    if not totals and not ages:
        _nothing(answers, streams)
        return
    events_note.uncertain(streams)
    _tiles(answers, totals)
    st.caption(f"{_basis(totals)} {events_note.health(streams) if streams else ''} "
               f"{page.window_words(answers)}")  # fmt: skip
    page.engine_filter_note(answers.filters)
    if totals:
        _course(answers)
    _ages(answers, ages)
    if totals:
        st.markdown("##### By replica", help=purpose("evictions"))
        tables.show(answers.rows("evictions", by="replica"), columns.EVICTIONS, "evictions",
                    alt="Evictions by replica")  # fmt: skip
    if streams:
        events_note.partly(answers)
    else:
        with st.expander("What KV-cache events would add: resets, regret, blocks never reused"):
            events_note.show_flags(answers.rows("replicas"))


def _nothing(answers: Answers, streams: Rows) -> None:
    if streams:
        st.info(f"No KV-cache event in this window. {page.window_words(answers)} "
                f"{events_note.health(streams)}")  # fmt: skip
        return
    events_note.explain("what is evicted, how old it was and what was wanted again", answers)


def _basis(totals: Rows) -> str:
    bases = {row.get("basis") for row in totals}
    if bases == {COUNTERS}:
        return ("By the engines' own counters: they tell what was lost, not how old it was or "
                "whether it was wanted again.")  # fmt: skip
    if COUNTERS in bases:
        return "By KV-cache events; by engine counters where no event tells. They are not added up."
    return "By KV-cache events." if bases else "By samples of blocks on metrics pages."


def _tiles(answers: Answers, totals: Rows) -> None:
    device = _device(totals)
    regret = _age(answers.rows("block_ages"), "evicted_reuse_gap")
    tier = str(device.get("tier") or "device")
    for column, (label, value, told) in zip(st.columns(5), (
        (f"Evicted, blocks ({tier})", whole(number(device, "evicted_blocks")),
         hover("evictions", "evicted_blocks")),
        ("Turned over a minute", percent(number(device, "turnover_ratio")),
         hover("evictions", "turnover_ratio")),
        ("Demoted, blocks", whole(number(device, "demoted_blocks")),
         hover("evictions", "demoted_blocks")),
        ("Never reused", percent(number(device, "never_reused_ratio")),
         hover("evictions", "never_reused_ratio", _known_words(device))),
        ("Wanted again after (p50)", duration(number(regret, "p50_seconds")),
         hover("block_ages", "kind", _regret_words(regret))),
    ), strict=True):  # fmt: skip
        with column:
            tile(label, value, told)


def _device(totals: Rows) -> Row:
    """The row the tiles speak for: the device by events, else whatever comes first."""
    ranked = sorted(totals, key=lambda r: (r.get("basis") == COUNTERS, r.get("tier") != "device"))
    return next(iter(ranked), {})


def _age(ages: Rows, kind: str) -> Row:
    found = [row for row in ages if row.get("kind") == kind]
    return next((row for row in found if row.get("basis") == EVENTS), next(iter(found), {}))


def _known_words(device: Row) -> str:
    known = number(device, "reuse_known_blocks")
    if not known:
        return "**Not known:** no request with block hashes tells what was reused."
    return f"**Of {counted(known, 'block')}** of which it can be known."


def _regret_words(regret: Row) -> str:
    sampled = number(regret, "sampled")
    if not sampled:
        return ""
    were = "was" if sampled == 1 else "were"
    return f"**{counted(sampled, 'block')}** {were} evicted and stored again."


def _course(answers: Answers) -> None:
    rows, resets = answers.over_time("evictions_over_time"), answers.rows("block_resets")
    st.markdown("##### Stored and evicted over time", help=purpose("evictions_over_time"))
    figure = turnover(
        rows, resets[:MOST_RESETS], step_seconds=answers.step_seconds,
        since=answers.window.since, until=answers.window.until,
    )  # fmt: skip
    page.time_chart(figure, "evictions-over-time", "Blocks stored and evicted a minute, resets")
    if resets:
        with st.expander(f"Resets in this window ({len(resets):,}): they are no evictions"):
            tables.show(resets, columns.RESETS, "resets", alt="Resets")


def _ages(answers: Answers, ages: Rows) -> None:
    left, right = st.columns(2)
    with left:
        st.markdown("##### How old blocks were when they left", help=purpose("block_ages"))
        kinds = {"lifetime": "lifetime", "idle": "unused before"}
        if any(basis_of(ages, kind) for kind in kinds):
            page.chart(age_bars(ages, kinds), "block-lifetimes", "Lifetimes of evicted blocks")
        else:
            st.caption("No block left in this window.")
    with right:
        st.markdown("##### Regret: evicted, then wanted again",
                    help=hover("block_ages", "kind"))  # fmt: skip
        if basis_of(ages, "evicted_reuse_gap"):
            figure = age_bars(ages, {"evicted_reuse_gap": "evicted, then stored again after"})
            page.chart(figure, "block-regret", "Time until evicted blocks were stored again")
        elif answers.rows("block_streams"):
            st.caption("No evicted block was stored again in this window.")
        else:
            st.caption("Only KV-cache events tell what was wanted again.")
