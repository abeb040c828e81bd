"""Memory, tab Split: what fills the memory of each replica, and how that moved."""

import streamlit as st

from dashboard import columns, page, tables, tiles
from dashboard.answers import Answers
from dashboard.figures.memory import (
    MOST_REPLICAS,
    fullest,
    split_bars,
    split_over_time,
    usage_with_ratio,
)
from dashboard.figures.numbers import gib
from dashboard.figures.rows import Row, Rows, number
from dashboard.headline import headline, ratio_over_time
from dashboard.memory import events_note
from dashboard.sources import came_from
from dashboard.words import NEXT_STEP_ENGINES, hover, purpose
from replay.counted import counted

_PARTS = ("running", "cached", "free")


def body(answers: Answers) -> None:
    """Fleet occupancy, use over time beneath the ratio, and the split per replica."""
    if answers.state.get("engine_last_ts") is None:
        st.info("KV memory is known only from engines' metrics pages, and none has been scraped. "
                "One step adds it: name them under scrape in prefixscope.yml, then "
                f"`{NEXT_STEP_ENGINES}`")  # fmt: skip
        return
    split = answers.rows("memory_split", by="replica")
    if not split:
        st.info(f"No engine was scraped in this window. {page.window_words(answers)}")
        return
    fleet = answers.first("memory_split")
    tiles.memory_tiles(fleet, came_from(answers, "engine"))
    st.caption(f"Latest sample of each replica. {_bytes(fleet)}{_known(fleet, split)} "
               f"{page.window_words(answers)}")  # fmt: skip
    page.engine_filter_note(answers.filters)
    streams = answers.rows("block_streams")
    events_note.uncertain(streams)
    events_note.unmatched(streams)
    _split(split)
    _over_time(answers)
    if fleet.get("cached_tokens") is None:
        _flags(answers)


def _known(fleet: Row, split: Rows) -> str:
    """Say what is not known instead of drawing it as 0, and where the rest is from."""
    basis = {None: "", "engine": "the engines' own gauges", "events": "KV-cache events"}
    if fleet.get("cached_tokens") is not None:
        told = basis.get(fleet.get("basis"), "engines' gauges and KV-cache events")
        return f"Cached and free by {told}. {events_note.reason(fleet)}"
    if any(row.get("cached_tokens") is not None for row in split):
        return ("Some of these engines do not say what is cached and what is free: for the fleet "
                "both are unknown.")  # fmt: skip
    return ("These engines' pages do not say what is cached and what is free: both are unknown "
            "(KV-cache events would tell).")  # fmt: skip


def _bytes(fleet: Row) -> str:
    """The same in GiB, where the models' geometry is known."""
    capacity = number(fleet, "capacity_bytes")
    if capacity is None:
        return ""
    parts = [f"{gib(number(fleet, f'{part}_bytes'))} {part}" for part in _PARTS
             if number(fleet, f"{part}_bytes") is not None]  # fmt: skip
    return f"{gib(capacity)} of KV: {', '.join(parts)}. "


def _flags(answers: Answers) -> None:
    with st.expander("What tells cached from free: the flag that makes engines send events"):
        st.caption(f"{hover('memory_split', 'cached_tokens')}")
        events_note.show_flags(answers.rows("replicas"))


def _split(split: Rows) -> None:
    st.markdown("##### What fills the memory", help=purpose("memory_split"))
    bars, table = st.columns([1, 1.2])
    with bars:
        page.chart(split_bars(split), "memory-split",
                   "Running, cached and free tokens per replica")  # fmt: skip
    with table:
        shown = columns.sized(columns.MEMORY, split)
        tables.show(split, shown, "memory", alt="KV memory by replica")


def _over_time(answers: Answers) -> None:
    lead, memory = headline(answers), answers.over_time("memory_over_time")
    ends = {"since": answers.window.since, "until": answers.window.until}
    whole = split_over_time(memory, step_seconds=answers.step_seconds, **ends)
    if whole is not None:
        st.markdown("##### Running, cached and free over time", help=purpose("memory_over_time"))
        page.time_chart(whole, "memory-parts", "Running, cached and free tokens over time")
    figure = usage_with_ratio(
        memory, ratio_over_time(answers, lead),
        step_seconds=answers.step_seconds, label=lead.label.lower(), **ends,
    )  # fmt: skip
    st.markdown("##### KV in use beneath the hit ratio", help=purpose("memory_over_time"))
    page.time_chart(figure, "memory-over-time", "Hit ratio and KV in use per replica over time")
    replicas = len(fullest(memory))
    if replicas > MOST_REPLICAS:
        st.caption(f"The {MOST_REPLICAS} fullest of {counted(replicas, 'replica')} are drawn.")
