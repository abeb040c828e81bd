"""Number tiles: a value with its unit, its change and its definition on hover."""

from typing import Literal

import streamlit as st

from dashboard.figures.numbers import (
    percent,
    points,
    rate,
    relative,
    seconds,
    signed_percent,
    whole,
)
from dashboard.figures.rows import Row, Rows, number
from dashboard.headline import Headline, ratio_hover
from dashboard.pain import Load, Ttft, waiting
from dashboard.words import hover
from replay.counted import counted

Good = Literal["up", "down", "neither"]
_COLOUR: dict[Good, Literal["normal", "inverse", "off"]] = {
    "up": "normal",
    "down": "inverse",
    "neither": "off",
}


def tile(
    label: str,
    value: str,
    help_text: str,
    *,
    delta: str | None = None,
    good: Good = "neither",
) -> None:
    """One tile. `good` says which direction of change is welcome and so gets which colour."""
    unchanged = delta is not None and delta.startswith("0")
    st.metric(
        label,
        value,
        delta,
        delta_color="off" if unchanged else _COLOUR[good],
        delta_arrow="off" if unchanged else "auto",
        help=help_text,
        border=True,
        height="stretch",
    )


def ratio_tile(lead: Headline) -> None:
    """The headline: the leading ratio and its change in points."""
    change = None if lead.change is None else points(lead.change)
    tile(lead.label, percent(lead.ratio), ratio_hover(lead), delta=change, good="up")


def coverage_tile(lead: Headline) -> None:
    """How much of the log's prompt tokens the ratio speaks for."""
    reported = number(lead.log, "reported_prompt_tokens")
    ineligible = number(lead.log, "ineligible_prompt_tokens") or 0.0
    eligible = (number(lead.log, "prompt_tokens") or 0.0) - ineligible
    sums = f"**{whole(reported)} of {whole(eligible)} prompt tokens.**" if eligible else ""
    source = lead.came_from.get("log", "")
    tile("Coverage", percent(lead.coverage), hover("hit_ratio", "coverage_ratio", sums, source))


def ttft_tiles(delay: Ttft) -> None:
    """Median and p95, each against the comparison window."""
    left, right = st.columns(2)
    for column, name, now, before in (
        (left, "TTFT p50", delay.p50_seconds, delay.p50_before_seconds),
        (right, "TTFT p95", delay.p95_seconds, delay.p95_before_seconds),
    ):
        with column:
            tile(name, seconds(now), delay.measured, delta=_size_delta(now, before), good="down")


def load_tile(lead: Headline, prefill: Load) -> None:
    """Prefill work a second."""
    tokens = whole(number(lead.row, "computed_tokens"))
    told = f"**{tokens} tokens** in the window; this is the mean."
    delta = _size_delta(prefill.computed, prefill.computed_before)
    tile("Computed", rate(prefill.computed),
         hover(lead.question, "computed_tokens", told, lead.source), delta=delta)  # fmt: skip


def waiting_tile(lead: Headline, replicas: Rows) -> None:
    """The queue, over all replicas that tell theirs."""
    told = "Sum over the replicas that tell theirs."
    tile("Waiting requests", whole(waiting(replicas)),
         hover("replicas", "waiting_requests", told, lead.came_from.get("engine", "")))  # fmt: skip


def memory_tiles(fleet: Row, source: str = "") -> None:
    """Fleet occupancy weighted by capacity, and its parts where they are known. `source` says
    where the engines' figures come from."""
    capacity = number(fleet, "capacity_tokens")
    used = number(fleet, "kv_usage_ratio")
    sums = f"Weighted by capacity over {counted(number(fleet, 'replicas'), 'replica')}."
    columns = st.columns(5)
    with columns[0]:
        tile("KV in use, fleet", percent(used),
             hover("memory_split", "kv_usage_ratio", sums, source))  # fmt: skip
    with columns[1]:
        tile("Capacity, tokens", whole(capacity), hover("memory_split", "capacity_tokens"))
    for column, part in zip(columns[2:], ("running", "cached", "free"), strict=True):
        tokens = number(fleet, f"{part}_tokens")
        share = tokens / capacity if tokens is not None and capacity else None
        told = f"**{percent(share)} of the capacity.**" if share is not None else ""
        with column:
            tile(f"{part.capitalize()}, tokens", "unknown" if tokens is None else whole(tokens),
                 hover("memory_split", f"{part}_tokens", told))  # fmt: skip


def _size_delta(now: float | None, before: float | None) -> str | None:
    """Relative change of a magnitude, or nothing where it is not known."""
    change = relative(now, before)
    return None if change is None else signed_percent(change)
