"""The verdict: one sentence for three in the morning, from a row of `peak_drop`.

Says what was measured, what was expected, since when, and why; or that it is as expected; or that
it cannot be told, and what is missing.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from queries.on_call.onset import Onset
from queries.on_call.words import (
    Quoted,
    Row,
    band,
    clock,
    number,
    percent,
    plain,
    weekday_clock,
    whole,
)
from queries.registry import questions
from replay.counted import counted

Tone = Literal["page", "ticket", "good", "unknown"]

PRESSURE_EXPECTED = "memory pressure as expected"
PRESSURE_BEYOND = "memory pressure beyond expected"
TELEMETRY = "telemetry"
TEMPLATE = "template version or layout"
NO_CAUSE = "no cause found"
# So much more KV in use than usual is worth a word, whatever the cause.
PRESSURE_NOISE = 0.1
PRESSURE_GREW = 0.05
# A ratio of less of the traffic than this says little about the rest.
LOW_COVERAGE = 0.5

TONE_WORDS: dict[Tone, str] = {
    "page": "Drop that hurts",
    "ticket": "Drop",
    "good": "No drop",
    "unknown": "Not judged",
}
NO_DATA = (
    "No data yet. Name a metric page of an engine under scrape.targets in the configuration, "
    "or load a request log: prefixscope ingest FILE"
)


@dataclass(frozen=True)
class Told:
    """What the sentence needs beside the row. `quoted` makes a name safe where it is shown;
    `filtered`: only a part of the traffic is looked at."""

    until: datetime
    zone: ZoneInfo
    onset: Onset | None = None
    quoted: Quoted = field(default=plain)
    filtered: bool = False


def tone(row: Row | None) -> Tone:
    """How urgent: a drop that pages, any other drop, none, or not known."""
    if row is None or row["is_drop"] is None:
        return "unknown"
    if not row["is_drop"]:
        return "good"
    return "page" if row["severity"] == "page" else "ticket"


def sentence(row: Row | None, told: Told) -> str:
    """The verdict on the window that ends at `told.until`; None = it had no traffic at all."""
    if row is None:
        with_these = " with these filters" if told.filtered else ""
        return f"No traffic{with_these} in the hour to {_when(told)}: no hit ratio."
    if number(row, "token_hit_ratio") is None:
        return (
            f"No hit ratio: nothing in the hour to {_when(told)} reported how many of its prompt "
            "tokens were cached."
        )
    if row["class"] == TELEMETRY:
        return _telemetry(row, told)
    if row["is_drop"] is None:
        return _unjudged(row)
    said = [_drop(row, told), *_causes(row, told)] if row["is_drop"] else [_no_drop(row, told)]
    return " ".join(filter(None, [*said, _coverage(row)]))


def _when(told: Told) -> str:
    return weekday_clock(told.until, told.zone)


def _ratio(row: Row) -> str:
    by = " by engine counters" if row["basis"] == "engine" else ""
    return f"ratio{by} {percent(number(row, 'token_hit_ratio'))}"


def _drop(row: Row, told: Told) -> str:
    return (
        f"Hit {_ratio(row)}, expected {_band(row)} {_for(row, told)}{_history(row)}{_since(told)}."
    )


def _coverage(row: Row) -> str:
    """Of how little the ratio speaks, where that is less than half."""
    coverage = number(row, "coverage_ratio")
    if coverage is None or coverage >= LOW_COVERAGE:
        return ""
    return f"Only {percent(coverage)} of the prompt tokens report a cached count."


def _telemetry(row: Row, told: Told) -> str:
    evidence = f": {told.quoted(row['evidence'])}" if row["evidence"] else ""
    return (
        f"Telemetry fault, no finding about the cache{evidence}. Of what still reports: hit "
        f"{_ratio(row)}, expected {_band(row)} {_for(row, told)}{_history(row)}."
    )


def _band(row: Row) -> str:
    return band(number(row, "expected_low_ratio"), number(row, "expected_high_ratio"))


def _for(row: Row, told: Told) -> str:
    """The hours, the load, or both: what the expectation was made from."""
    if row["method"] == "equal pressure":
        return "at this load"
    load = "" if row["pressure_ratio"] is None else " at this load"
    return f"for {_when(told)}{load}"


def _history(row: Row) -> str:
    weeks = row["history_weeks"]
    if not weeks:
        return " (under one week of history)"
    return f" ({counted(weeks, 'week')} of history)" if weeks < 4 else ""


def _since(told: Told) -> str:
    if told.onset is None:
        return ""
    at = clock(told.onset.at, told.zone, told.until)
    return f", since before {at}" if told.onset.earlier else f", since {at}"


def _causes(row: Row, told: Told) -> list[str]:
    """Whether it is memory pressure, then the class with its evidence."""
    kind, evidence = row["class"], told.quoted(row["evidence"]) if row["evidence"] else ""
    if kind == PRESSURE_BEYOND:
        return [f"Memory pressure beyond expected: {evidence}."]
    if kind == NO_CAUSE:
        return [_pressure(row), "Dropped; no cause found."]
    of_one = row["contributor"] and number(row, "contributor_share_ratio")
    # Who loses most while a cache warms up is not what made it cold.
    if kind == TEMPLATE and of_one and not row["is_recovering"]:
        share = percent(number(row, "contributor_share_ratio"))
        return [
            _pressure(row),
            f"{share} of the drop is template {told.quoted(row['contributor'])}.",
        ]
    named = str(kind or NO_CAUSE)
    return [_pressure(row), f"{named.capitalize()}{': ' if evidence else ''}{evidence}."]


def _pressure(row: Row) -> str:
    """Memory pressure, where it is not the cause: known not to be, or not known."""
    now, usual = number(row, "pressure_ratio"), number(row, "usual_pressure_ratio")
    if now is None:
        return "Memory pressure unknown."
    if usual is None or now < usual + PRESSURE_NOISE:
        return "Not memory pressure."
    return f"KV pressure {percent(now)}, usually {percent(usual)}."


def _no_drop(row: Row, told: Told) -> str:
    ratio, low, high = (
        number(row, name)
        for name in ("token_hit_ratio", "expected_low_ratio", "expected_high_ratio")
    )
    if row["class"] == PRESSURE_EXPECTED:
        return _explained(row, told)
    usual = f"{_band(row)} {_for(row, told)}{_history(row)}"
    if ratio is not None and low is not None and ratio < low:
        return f"Hit {_ratio(row)}, expected {usual}: lower, but not by enough to call it a drop."
    if ratio is not None and high is not None and ratio > high:
        return f"Better than expected: hit {_ratio(row)}, expected {usual}."
    return f"As expected: hit {_ratio(row)}, expected {usual}."


def _explained(row: Row, told: Told) -> str:
    """ "As expected: 52 % at 91 % KV pressure", and what these hours have at their usual load."""
    now, usual = number(row, "pressure_ratio"), number(row, "usual_pressure_ratio")
    expected, part = number(row, "expected_ratio"), number(row, "load_part_ratio")
    by = " by engine counters" if row["basis"] == "engine" else ""
    # A load is traffic too: pressure is named where it is what grew.
    grew = now is not None and usual is not None and now >= usual + PRESSURE_GREW
    pressure = f"{percent(now)} KV pressure" if grew else "this load"
    said = f"As expected: {percent(number(row, 'token_hit_ratio'))}{by} at {pressure}"
    if expected is None or part is None:
        return f"{said}."
    beside = f" at {percent(usual)}" if grew else ""
    return f"{said}; usual for {_when(told)} is {percent(expected + part)}{beside}{_history(row)}."


def _unjudged(row: Row) -> str:
    """Why nothing can be judged: too little traffic, too little coverage, or no history."""
    tokens, coverage = number(row, "reported_prompt_tokens") or 0.0, number(row, "coverage_ratio")
    least = float(str(questions()["peak_drop"].params["min_tokens"].default))
    ratio = f"hit {_ratio(row)}"
    if tokens < least and not (coverage is not None and coverage < LOW_COVERAGE):
        return (
            f"Too little traffic to judge: {whole(tokens)} reported prompt tokens in the hour, "
            f"{whole(least)} are needed; {ratio}."
        )
    if coverage is not None and coverage < LOW_COVERAGE:
        return (
            f"Too little coverage to judge: {percent(coverage)} of the prompt tokens report a "
            f"cached count, {whole(tokens)} in the hour; {ratio} of those."
        )
    if row["method"] == "none":
        return (
            f"Hit {_ratio(row)}; nothing to compare it with: under one week of history, and too "
            "few hours at this load."
        )
    return f"Too few requests in the hour to judge; {ratio}."
