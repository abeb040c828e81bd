"""Memory: is the cache full, what fills it, and what does the ratio do meanwhile?"""

import streamlit as st

from dashboard import columns, page, tables, tiles
from dashboard.answers import Answers
from dashboard.figures.memory import MOST_REPLICAS, fullest, split_bars, usage_with_ratio
from dashboard.figures.rows import Row, Rows
from dashboard.headline import headline, ratio_over_time
from dashboard.words import NEXT_STEP_ENGINES, purpose


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
    tiles.memory_tiles(fleet)
    st.caption(f"Latest sample of each replica. {_known(fleet)} {page.window_words(answers)}")
    page.engine_filter_note(answers.filters)
    _over_time(answers)
    _split(split)


def _known(fleet: Row) -> str:
    """Say what is not known instead of drawing it as 0."""
    if fleet.get("cached_tokens") is not None:
        return ""
    return ("These engines' pages do not say what is cached and what is free: both are unknown "
            "(KV-cache events would tell).")  # fmt: skip


def _over_time(answers: Answers) -> None:
    lead, memory = headline(answers), answers.over_time("memory_over_time")
    figure = usage_with_ratio(
        memory, ratio_over_time(answers, lead),
        step_seconds=answers.step_seconds, since=answers.window.since, until=answers.window.until,
        label=lead.label.lower(),
    )  # fmt: skip
    st.markdown("##### KV in use beneath the hit ratio", help=purpose("memory_over_time"))
    page.time_chart(figure, "memory-over-time", "Hit ratio and KV in use per replica over time")
    replicas = len(fullest(memory))
    if replicas > MOST_REPLICAS:
        st.caption(f"The {MOST_REPLICAS} fullest of {replicas:,} replicas are drawn.")


def _split(split: Rows) -> None:
    st.markdown("##### What fills the memory", help=purpose("memory_split"))
    bars, table = st.columns([1, 1.2])
    with bars:
        page.chart(split_bars(split), "memory-split",
                   "Running, cached and free tokens per replica")  # fmt: skip
    with table:
        tables.show(split, columns.MEMORY, "memory", alt="KV memory by replica")


page.show("memory", body)
