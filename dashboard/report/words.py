"""The report in words, for every way it is shown: HTML, Markdown, the page, the summary.

Names from outside are one line and bounded here; whoever shows the text still escapes it.
"""

from dataclasses import dataclass
from datetime import timedelta

from dashboard.figures.numbers import percent, seconds, signed_percent, whole
from dashboard.report.span import shown
from dashboard.report.week import Change, Mover, WeekPoint, WeekReport
from dashboard.report.weeks import DAYS, Slot
from dashboard.words import point_name
from replay.counted import counted

NO_CHANGES = "None was found that would win enough tokens to be worth it."
NOT_ADDED = "Three different things: they are not added up."
LEVELS = {
    0: "level 0: engine counters",
    1: "level 1: request rows",
    2: "level 2: request rows and KV-cache events",
    3: "level 3: hash chains too",
}


@dataclass(frozen=True)
class Figure:
    """One of the three: what it is, its value, what to know of it, and the command that would tell
    more; '' for none."""

    label: str
    value: str
    note: str
    step: str = ""


def title(report: WeekReport) -> str:
    return f"Cache report {report.week.name}"


def span_words(report: WeekReport) -> str:
    """The week's days and whose clocks they are."""
    week = report.week
    last = week.monday + timedelta(days=6)
    hours = "" if week.hours == 168 else f", {week.hours:g} hours: the clocks change"
    return f"{week.monday:%a %d %b} to {last:%a %d %b %Y}, clocks of {week.zone}{hours}"


def data_words(report: WeekReport) -> str:
    """Until when there is data, and of which level."""
    data = report.data
    if data.data_until is None or data.level is None:
        return "No data."
    level = LEVELS.get(data.level, f"level {data.level}")
    return (
        f"Data until {shown(report.week, data.data_until)}, {level}; traffic in "
        f"{data.hours_with_traffic} of {data.hours:g} hours."
    )


def marks(report: WeekReport) -> tuple[str, ...]:
    """What makes the report less than it seems; () where nothing does."""
    found = []
    if report.data.demo:
        found.append("Synthetic demo data.")
    if report.data.partial:
        found.append(f"Partial week: {report.data.partial}.")
    if report.quality.revised:
        found.append(report.quality.revised)
    if report.data.rolled_up:
        found.append(
            "Of the week's older hours only roll-ups are left: no money, no TTFT by length."
        )
    return tuple(found)


def figures(report: WeekReport) -> tuple[Figure, Figure, Figure]:
    """The three figures of page one."""
    return _billed(report), _freed(report), _ttft(report)


def _billed(report: WeekReport) -> Figure:
    label = "Billed saving, net of write surcharge"
    made = report.billed
    if made is None:
        return _not_told(report, label, "billed")
    note = (
        f"{percent(made.priced_ratio)} of the prompt tokens have a price; input cost "
        f"{usd(made.input_usd)}, of which {usd(made.write_surcharge_usd)} write surcharge"
    )
    assumed = f". {made.assumptions[:1].upper()}{made.assumptions[1:]}" if made.assumptions else ""
    return Figure(label, usd(made.net_saved_usd), f"{note}{assumed}.")


def _freed(report: WeekReport) -> Figure:
    label = "Prefill avoided (estimate)"
    made = report.freed
    if made is None:
        return _not_told(report, label, "freed")
    worth = "" if made.freed_usd is None else f" Freed, not saved: worth {usd(made.freed_usd)}."
    unknown = (
        f" {whole(made.unknown_speed_tokens)} more tokens have no known speed."
        if made.unknown_speed_tokens
        else ""
    )
    gpus = f"{counted(made.gpus_per_replica, 'GPU')} a replica"
    return Figure(
        label,
        f"{gpu_hours(made.gpu_hours)} GPU-hours",
        f"{whole(made.saved_tokens)} tokens not computed, at the replicas' prefill speed, "
        f"{gpus}.{worth}{unknown}",
    )


def _ttft(report: WeekReport) -> Figure:
    label = "First token, hit and miss at equal prompt length"
    made = report.ttft
    if made is None:
        return _not_told(report, label, "ttft")
    sooner = made.hit_seconds / made.miss_seconds - 1 if made.miss_seconds > 0 else None
    return Figure(
        label,
        f"{seconds(made.hit_seconds)} and {seconds(made.miss_seconds)}",
        f"Medians within classes of prompt length, weighted by hits: {signed_percent(sooner)}. "
        f"{whole(made.hit_requests)} hits, {whole(made.miss_requests)} misses, measured at the "
        f"{point_name(made.ttft_point)}.",
    )


def _not_told(report: WeekReport, label: str, section: str) -> Figure:
    gaps = report.missing_of(section) or report.missing_of("headline")
    return Figure(label, "–", gaps[0].what, gaps[0].step) if gaps else Figure(label, "–", "")


def trust_lines(report: WeekReport) -> tuple[str, ...]:
    """Every comparison there is, else why there is none."""
    told = tuple(each.sentence for each in report.trust)
    gaps = tuple(gap.what for gap in report.missing_of("trust"))
    return told + gaps


def mover_words(mover: Mover) -> str:
    """ "40.1 % → 72.0 %, 1,234 tokens fewer computed; mostly tenant a (…)"."""
    more = "fewer" if mover.within_tokens > 0 else "more"
    return (
        f"{percent(mover.token_hit_ratio_before)} → {percent(mover.token_hit_ratio)}, "
        f"{whole(abs(mover.within_tokens))} tokens {more} computed; {mover.why}"
    )


def change_tokens(change: Change) -> str:
    """ "12,000–18,000 tokens a day (estimated)"."""
    low, high = change.tokens_per_day_lower, change.tokens_per_day_upper
    amount = whole(low) if low == high else f"{whole(low)}–{whole(high)}"
    return f"{amount} tokens a day ({change.basis})"


def response_cache_words(report: WeekReport) -> str:
    """Requests that never reached an engine; '' where there were none."""
    requests = report.quality.response_cache_requests
    if not requests:
        return ""
    return (
        f"{counted(requests, 'request')} answered by a gateway's response cache "
        f"({whole(report.quality.response_cache_prompt_tokens)} prompt tokens): a line of its "
        "own, in no ratio."
    )


def engine_words(report: WeekReport) -> str:
    """Engine counters beside a log that leads, and of how many tokens they speak, as engines may
    have been watched for a part of the week; '' where there are none."""
    if report.engine_ratio is None:
        return ""
    of = whole(report.engine_reported_prompt_tokens)
    return f"Engine counters say {percent(report.engine_ratio)} of {of} prompt tokens (all routes)."


def quality_lines(report: WeekReport) -> list[str]:
    """Coverage, rejects, gaps and doubts in words."""
    made, lead = report.quality, report.headline
    lines = []
    if lead.basis == "log":
        lines.append(
            f"Coverage {percent(lead.coverage_ratio)} of the eligible prompt tokens "
            f"({percent(lead.coverage_ratio_before)} before)."
        )
    if made.rejected_rows or made.duplicates or made.conflicts:
        lines.append(
            f"Of the rows that arrived in the week {whole(made.rejected_rows)} could not be read, "
            f"{whole(made.duplicates)} were known already, {whole(made.conflicts)} contradicted "
            "an earlier one."
        )
    if made.engine_gaps:
        lines.append(f"{counted(made.engine_gaps, 'gap')} in the engines' samples: what counters "
                     "rose by is spread over them.")  # fmt: skip
    doubled = (f"Counted twice (seen in the last day): {pair}." for pair in made.counted_twice)
    extra = [
        made.revised,
        made.loaded_afterwards,
        response_cache_words(report),
        *doubled,
        *made.cautions,
    ]
    return [line for line in [*lines, *extra] if line]


def judged_words(report: WeekReport) -> str:
    """Which hours drops were looked for in; '' where none could be."""
    if not report.judged_hours:
        return ""
    return (
        f"Drops were looked for in the {counted(report.judged_hours, 'hour')} that fell furthest "
        "below their usual ratio."
    )


def week_words(point: WeekPoint) -> str:
    """One of the 13 weeks, for whoever cannot see the chart."""
    ratio = "no data" if point.token_hit_ratio is None else percent(point.token_hit_ratio)
    partial = " (partial)" if point.partial and point.token_hit_ratio is not None else ""
    happened = f", {point.incident_words}" if point.incident_words else ""
    return f"{point.week.name} {ratio}{partial}{happened}"


def slot_words(slot: Slot) -> str:
    """ "Sunday 02:00 (again)"."""
    return f"{DAYS[slot.day]} {slot.hour:02}:00{' (again)' if slot.again else ''}"


def usd(value: float | None) -> str:
    """Money; cents only where they matter."""
    if value is None:
        return "–"
    sign = "-" if value < 0 else ""
    amount = abs(value)
    digits = 0 if amount >= 1000 else 2
    if 0 < amount < 0.005:
        return f"{sign}< 0.01 USD"
    return f"{sign}{amount:,.{digits}f} USD"


def gpu_hours(value: float) -> str:
    """Hours; small amounts keep two digits instead of becoming 0."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}" if value < 10 else f"{value:,.1f}"
