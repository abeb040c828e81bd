"""What follows page one in HTML: the week by hour, who, latency, memory, prices, data, words."""

from collections.abc import Callable

from dashboard.figures.numbers import gib, percent, points, seconds, whole
from dashboard.report import charts, missed_shown, words
from dashboard.report.detail_values import (
    EngineTtft,
    EvictionRow,
    MemoryRow,
    OffloadRow,
    OutcomeRow,
    PriceRow,
    Segment,
)
from dashboard.report.html_parts import Column, gaps, quiet, section, table
from dashboard.report.markup import Markup, bdi, joined, tag
from dashboard.report.quality_values import Ineligible, Reject
from dashboard.report.span import shown
from dashboard.report.week import Incident, TtftClass, WeekReport
from dashboard.words import point_name


def steps(report: WeekReport) -> Markup | None:
    """What to run for the changes of page one, which has no room for it."""
    lines = [
        tag("li", f"{change.sentence}: ", tag("code", change.next_step))
        for change in report.changes
        if change.next_step
    ]
    if not lines:
        return None
    return section(tag("h2", "Next steps of the changes"), tag("ul", *lines))


def hours(report: WeekReport) -> Markup | None:
    if report.headline.token_hit_ratio is None:
        return None
    drops = "Red frame: a drop. " if any(cell.is_drop for cell in report.hours) else ""
    return section(
        tag("h2", "The week by hour"),
        charts.heat_map(report),
        quiet(
            f"Token hit ratio in percent, {charts.legend_range(report)}. {drops}Empty: no traffic. "
            f"Hours by the clocks of {report.week.zone}."
        ),
        charts.load(report),
        _incidents(report),
        quiet(words.judged_words(report)) if report.judged_hours else None,
    )


def _incidents(report: WeekReport) -> Markup | None:
    if not report.incidents:
        return None
    columns: list[Column[Incident]] = [
        Column("When", lambda row: shown(report.week, row.ts), is_number=False),
        Column("What", lambda row: row.kind, is_number=False),
        Column("Where", lambda row: bdi(row.subject), is_number=False),
        Column("Told", lambda row: row.sentence, is_number=False),
        Column("Severity", lambda row: row.severity, is_number=False),
    ]
    more = quiet(f"And {report.more_incidents:,} more.") if report.more_incidents else None
    return joined(table("What happened", columns, report.incidents), more)


def who(report: WeekReport) -> Markup | None:
    if not report.segments:
        return None
    tables = [
        table(f"By {each.by}", _segment_columns(report, each.by), each.rows)
        for each in report.segments
    ]
    return section(tag("h2", "Who"), *tables)


def _segment_columns(report: WeekReport, by: str) -> list[Column[Segment]]:
    columns: list[Column[Segment]] = [
        Column(by, lambda row: bdi(row.name), is_number=False),
        Column("hit ratio", lambda row: percent(row.token_hit_ratio)),
        Column("before", lambda row: percent(row.token_hit_ratio_before)),
        Column("change", _change),
        Column("prompt tokens", lambda row: whole(row.prompt_tokens)),
        Column("cached tokens", lambda row: whole(row.cached_tokens)),
    ]
    if report.headline.basis == "log":
        columns += [
            Column("coverage", lambda row: percent(row.coverage_ratio)),
            Column("requests", lambda row: whole(row.requests)),
        ]
    return columns


def _change(row: Segment) -> str:
    if row.token_hit_ratio is None or row.token_hit_ratio_before is None:
        return points(None)
    return points(row.token_hit_ratio - row.token_hit_ratio_before)


def latency(report: WeekReport) -> Markup | None:
    if not (report.outcomes or report.engine_ttft):
        return None
    parts: list[Markup | None] = [tag("h2", "Latency")]
    if report.ttft_classes:
        point = report.ttft.ttft_point if report.ttft else report.outcomes[0].ttft_point
        parts += [
            charts.ttft(report.ttft_classes),
            quiet(
                "Median time to first token by prompt length: circle = hit, square = miss, "
                f"measured at the {point_name(point)}."
            ),
            table("At equal prompt length", _CLASSES, report.ttft_classes),
        ]
    if report.outcomes:
        parts.append(table("All lengths together (hits have other lengths than misses)",
                           _OUTCOMES, report.outcomes))  # fmt: skip
    if report.engine_ttft:
        parts.append(table("By the engines' own histogram (hits and misses cannot be told apart)",
                           _ENGINE_TTFT, report.engine_ttft))  # fmt: skip
    return section(*parts, gaps(report, "ttft"))


_CLASSES: list[Column[TtftClass]] = [
    Column("prompt", charts.length_words, is_number=False),
    Column("hit p50", lambda row: seconds(row.hit_p50_seconds)),
    Column("miss p50", lambda row: seconds(row.miss_p50_seconds)),
    Column("hits", lambda row: whole(row.hit_requests)),
    Column("misses", lambda row: whole(row.miss_requests)),
]
_OUTCOMES: list[Column[OutcomeRow]] = [
    Column("outcome", lambda row: row.outcome, is_number=False),
    Column("measured at", lambda row: point_name(row.ttft_point), is_number=False),
    Column("requests", lambda row: whole(row.requests)),
    Column("p50", lambda row: seconds(row.p50_seconds)),
    Column("p90", lambda row: seconds(row.p90_seconds)),
    Column("p95", lambda row: seconds(row.p95_seconds)),
    Column("p99", lambda row: seconds(row.p99_seconds)),
]
_ENGINE_TTFT: list[Column[EngineTtft]] = [
    Column("model", lambda row: bdi(row.model), is_number=False),
    Column("requests", lambda row: whole(row.requests)),
    Column("p50", lambda row: seconds(row.p50_seconds)),
    Column("p95", lambda row: seconds(row.p95_seconds)),
]


def memory(report: WeekReport) -> Markup | None:
    if report.data.level is None or report.headline.token_hit_ratio is None:
        return None
    return section(
        tag("h2", "Memory and offload"),
        gaps(report, "memory"),
        table("KV memory at the latest sample of the week", _memory_columns(report), report.memory)
        if report.memory else None,
        table("KV that left the cache (bases are never added up)", _EVICTIONS, report.evictions)
        if report.evictions else None,
        table("Lower tiers: do they pay?", _OFFLOAD, report.offload)
        if report.offload else quiet("No lower tier was at work."),
    )  # fmt: skip


def _memory_columns(report: WeekReport) -> list[Column[MemoryRow]]:
    return [
        Column("model", lambda row: bdi(row.model), is_number=False),
        Column("replicas", lambda row: whole(row.replicas)),
        Column("capacity tokens", lambda row: whole(row.capacity_tokens)),
        Column("running", lambda row: whole(row.running_tokens)),
        Column("cached", lambda row: whole(row.cached_tokens)),
        Column("free", lambda row: whole(row.free_tokens)),
        Column("KV usage", lambda row: percent(row.kv_usage_ratio)),
        Column("told by", lambda row: row.basis, is_number=False),
        Column("as of", lambda row: shown(report.week, row.as_of) if row.as_of else None,
               is_number=False),
    ]  # fmt: skip


_EVICTIONS: list[Column[EvictionRow]] = [
    Column("told by", lambda row: row.basis, is_number=False),
    Column("cache", lambda row: f"{row.observer.replace('_', ' ')}, {row.tier}", is_number=False),
    Column("evicted tokens", lambda row: whole(row.evicted_tokens)),
    Column("demoted", lambda row: whole(row.demoted_tokens)),
    Column("reset", lambda row: whole(row.reset_tokens)),
    Column("turned over per minute", lambda row: percent(row.turnover_ratio)),
    Column("never reused", lambda row: percent(row.never_reused_ratio)),
]
_OFFLOAD: list[Column[OffloadRow]] = [
    Column("tier", lambda row: row.tier, is_number=False),
    Column("verdict", lambda row: row.verdict, is_number=False),
    Column("why", lambda row: row.sentence, is_number=False),
    Column("written", lambda row: gib(row.stored_bytes)),
    Column("read", lambda row: gib(row.loaded_bytes)),
]


def prices(report: WeekReport) -> Markup | None:
    if not report.prices:
        return None
    columns: list[Column[PriceRow]] = [
        Column("model", lambda row: bdi(row.model), is_number=False),
        Column("prompt tokens", lambda row: whole(row.prompt_tokens)),
        Column("with a price", lambda row: percent(row.priced_ratio)),
        Column("input cost", lambda row: words.usd(row.input_usd)),
        Column("write surcharge", lambda row: words.usd(row.write_surcharge_usd)),
        Column("net saving", lambda row: words.usd(row.net_saved_usd)),
    ]
    sources = report.billed.price_sources if report.billed else ""
    return section(
        tag("h2", "Prices"),
        table("What the prompts cost", columns, report.prices),
        quiet(f"At list prices: {sources}.") if sources else None,
    )


def quality(report: WeekReport) -> Markup | None:
    made = report.quality
    if report.data.level is None:
        return None
    return section(
        tag("h2", "Data quality"),
        tag("ul", *(tag("li", line) for line in words.quality_lines(report))),
        table("Where the figures come from", [
            Column("source", lambda row: bdi(row.name), is_number=False),
            Column("known", lambda row: row.details, is_number=False),
        ], made.sources) if made.sources else None,
        table("Left out of every ratio, because no prefix cache could serve it", _INELIGIBLE,
              made.ineligible) if made.ineligible else None,
        table("Rows that could not be read, of those that arrived in the week", _REJECTS,
              made.rejects) if made.rejects else None,
    )  # fmt: skip


_INELIGIBLE: list[Column[Ineligible]] = [
    Column("reason", lambda row: row.reason.replace("_", " "), is_number=False),
    Column("requests", lambda row: whole(row.requests)),
    Column("prompt tokens", lambda row: whole(row.prompt_tokens)),
]
_REJECTS: list[Column[Reject]] = [
    Column("source", lambda row: bdi(row.source), is_number=False),
    Column("reason", lambda row: row.reason, is_number=False),
    Column("rows", lambda row: whole(row.rows)),
]


def definitions(report: WeekReport) -> Markup | None:
    if not report.definitions:
        return None
    parts: list[Markup] = []
    for each in report.definitions:
        parts.append(tag("dt", f"{each.name}: {each.question}"))
        parts += [
            tag("dd", tag("code", column.name), f" {column.meaning}") for column in each.columns
        ]
    note = "Every figure is an answer to these questions, a sum of such answers or a ratio of sums."
    return section(tag("h2", "Definitions"), quiet(note), tag("dl", *parts))


SECTIONS: tuple[Callable[[WeekReport], Markup | None], ...] = (
    steps, hours, who, missed_shown.html, latency, memory, prices, quality, definitions,
)  # fmt: skip
