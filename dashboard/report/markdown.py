"""The report as Markdown. Names are escaped: they are shown as they are and make no markup."""

from collections.abc import Callable, Iterator, Sequence

from dashboard.figures.numbers import gib, percent, seconds, whole
from dashboard.report import charts, missed_shown, words
from dashboard.report.detail_values import HourCell, Segment
from dashboard.report.markdown_parts import (
    Columns,
    bullets,
    escaped,
    gaps,
    next_step,
    table,
    titled,
    together,
)
from dashboard.report.span import shown
from dashboard.report.week import Change, Mover, WeekReport
from dashboard.report.weeks import DAYS, Slot
from dashboard.words import point_name


def render(report: WeekReport) -> bytes:
    """The whole file, UTF-8. The same report gives the same bytes."""
    parts = [*_page_one(report), *_sections(report)]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()


def _page_one(report: WeekReport) -> Iterator[str]:
    yield f"# {escaped(words.title(report))}"
    yield f"{escaped(words.span_words(report))}. {escaped(words.data_words(report))}"
    yield bullets(words.marks(report))
    yield f"**{escaped(report.headline.sentence)}**"
    yield from (escaped(line) for line in
                (words.engine_words(report), words.response_cache_words(report)))  # fmt: skip
    yield gaps(report, "headline")
    if report.headline.token_hit_ratio is not None:
        yield "\n".join(
            f"- {escaped(f'{figure.label}: {figure.value}. {figure.note}')}{next_step(figure.step)}"
            for figure in words.figures(report)
        )
        yield escaped(words.NOT_ADDED)
    yield titled("### Can it be trusted?", bullets(words.trust_lines(report)))
    if any(point.token_hit_ratio is not None for point in report.weeks):
        weeks = bullets(words.week_words(point) for point in report.weeks)
        yield titled("### Thirteen weeks", weeks)
    yield titled("### Up", _movers(report.up))
    yield titled("### Down", _movers(report.down))
    yield gaps(report, "movers")
    if report.headline.basis != "none":
        yield titled("### Changes to make", _changes(report.changes) or words.NO_CHANGES)
    if report.headline.token_hit_ratio is not None:
        told = escaped(report.peak.sentence) if report.peak else gaps(report, "peak")
        yield titled("### The hour that cost most", told)


def _movers(movers: Sequence[Mover]) -> str:
    return bullets(f"{mover.name} ({mover.by}) {words.mover_words(mover)}." for mover in movers)


def _changes(changes: Sequence[Change]) -> str:
    return bullets(
        (
            " ".join(filter(None, [
                f"{each.sentence}: {words.change_tokens(each)}.", each.evidence,
                f"{each.overlaps}." if each.overlaps else "",
                f"Next: {each.next_step}" if each.next_step else "",
            ]))
            for each in changes
        ), "1.",
    )  # fmt: skip


def _sections(report: WeekReport) -> Iterator[str]:
    if report.headline.token_hit_ratio is not None:
        yield titled("## The week by hour", _hours(report))
    yield table(
        [("When", lambda row: shown(report.week, row.ts)), ("What", lambda row: row.kind),
         ("Where", lambda row: row.subject), ("Told", lambda row: row.sentence),
         ("Severity", lambda row: row.severity)],
        report.incidents,
    )  # fmt: skip
    yield escaped(words.judged_words(report))
    yield from (
        titled(f"## By {each.by}", table(_segment_columns(each.by), each.rows))
        for each in report.segments
    )
    yield missed_shown.markdown(report)
    yield titled("## Latency", _latency(report))
    yield titled("## Memory and offload", _memory(report))
    yield titled("## Prices", _prices(report))
    yield titled("## Data quality", _quality(report))
    yield titled("## Definitions", _definitions(report))


def _hours(report: WeekReport) -> str:
    """Days in rows, the hours the clocks show in columns; ! marks a drop."""
    by_slot = {cell.slot: cell for cell in report.hours}
    again = sorted({slot.hour for slot in by_slot if slot.again})
    hours = sorted([(hour, False) for hour in range(24)] + [(hour, True) for hour in again])
    columns: Columns[int] = [("Day", lambda day: DAYS[day][:3])]
    for hour, second in hours:
        heading = f"{hour:02}{' again' if second else ''}"
        columns = [*columns, (heading, _cell_at(by_slot, hour, second))]
    note = f"In percent, by the clocks of {report.week.zone}; ! = a drop; empty = no traffic."
    return f"{table(columns, range(7))}\n\n{escaped(note)}"


def _cell_at(by_slot: dict[Slot, HourCell], hour: int, again: bool) -> Callable[[int], str]:
    def cell(day: int) -> str:
        found = by_slot.get(Slot(day, hour, again))
        if found is None or found.token_hit_ratio is None:
            return ""
        return f"{found.token_hit_ratio * 100:.0f}{'!' if found.is_drop else ''}"

    return cell


def _segment_columns(by: str) -> Columns[Segment]:
    return [
        (by, lambda row: row.name),
        ("hit ratio", lambda row: percent(row.token_hit_ratio)),
        ("before", lambda row: percent(row.token_hit_ratio_before)),
        ("prompt tokens", lambda row: whole(row.prompt_tokens)),
        ("cached tokens", lambda row: whole(row.cached_tokens)),
        ("coverage", lambda row: percent(row.coverage_ratio)),
    ]


def _latency(report: WeekReport) -> str:
    classes = table(
        [("prompt", charts.length_words), ("hit p50", lambda row: seconds(row.hit_p50_seconds)),
         ("miss p50", lambda row: seconds(row.miss_p50_seconds)),
         ("hits", lambda row: whole(row.hit_requests)),
         ("misses", lambda row: whole(row.miss_requests))],
        report.ttft_classes,
    )  # fmt: skip
    outcomes = table(
        [("outcome", lambda row: row.outcome), ("at", lambda row: point_name(row.ttft_point)),
         ("requests", lambda row: whole(row.requests)),
         ("p50", lambda row: seconds(row.p50_seconds)),
         ("p95", lambda row: seconds(row.p95_seconds))],
        report.outcomes,
    )  # fmt: skip
    engines = table(
        [("model (engine histogram)", lambda row: row.model),
         ("requests", lambda row: whole(row.requests)),
         ("p50", lambda row: seconds(row.p50_seconds)),
         ("p95", lambda row: seconds(row.p95_seconds))],
        report.engine_ttft,
    )  # fmt: skip
    return together(classes, outcomes, engines, gaps(report, "ttft"))


def _memory(report: WeekReport) -> str:
    split = table(
        [("model", lambda row: row.model),
         ("capacity tokens", lambda row: whole(row.capacity_tokens)),
         ("running", lambda row: whole(row.running_tokens)),
         ("cached", lambda row: whole(row.cached_tokens)),
         ("free", lambda row: whole(row.free_tokens)),
         ("KV usage", lambda row: percent(row.kv_usage_ratio))],
        report.memory,
    )  # fmt: skip
    evicted = table(
        [("told by", lambda row: row.basis), ("tier", lambda row: row.tier),
         ("evicted tokens", lambda row: whole(row.evicted_tokens)),
         ("demoted", lambda row: whole(row.demoted_tokens)),
         ("reset", lambda row: whole(row.reset_tokens)),
         ("never reused", lambda row: percent(row.never_reused_ratio))],
        report.evictions,
    )  # fmt: skip
    tiers = table(
        [("tier", lambda row: row.tier), ("verdict", lambda row: row.verdict),
         ("why", lambda row: row.sentence), ("written", lambda row: gib(row.stored_bytes)),
         ("read", lambda row: gib(row.loaded_bytes))],
        report.offload,
    )  # fmt: skip
    return together(split, evicted, tiers, gaps(report, "memory"))


def _prices(report: WeekReport) -> str:
    return table(
        [("model", lambda row: row.model),
         ("prompt tokens", lambda row: whole(row.prompt_tokens)),
         ("input cost", lambda row: words.usd(row.input_usd)),
         ("write surcharge", lambda row: words.usd(row.write_surcharge_usd)),
         ("net saving", lambda row: words.usd(row.net_saved_usd))],
        report.prices,
    )  # fmt: skip


def _quality(report: WeekReport) -> str:
    if report.data.level is None:
        return ""
    made = report.quality
    sources = table([("source", lambda row: row.name), ("known", lambda row: row.details)],
                     made.sources)  # fmt: skip
    left_out = table(
        [("ineligible", lambda row: row.reason.replace("_", " ")),
         ("requests", lambda row: whole(row.requests)),
         ("prompt tokens", lambda row: whole(row.prompt_tokens))],
        made.ineligible,
    )  # fmt: skip
    rejects = table(
        [("rejected from", lambda row: row.source), ("reason", lambda row: row.reason),
         ("rows", lambda row: whole(row.rows))],
        made.rejects,
    )  # fmt: skip
    return together(bullets(words.quality_lines(report)), sources, left_out, rejects)


def _definitions(report: WeekReport) -> str:
    return "\n".join(
        "\n".join([
            f"- `{each.name}`: {escaped(each.question)}",
            *(f"  - `{column.name}`: {escaped(column.meaning)}" for column in each.columns),
        ])
        for each in report.definitions
    )  # fmt: skip
