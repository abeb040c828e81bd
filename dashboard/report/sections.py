"""What follows page one: who, memory, offload, data quality, definitions."""

from collections.abc import Sequence
from datetime import datetime

from dashboard.figures.numbers import percent, whole
from dashboard.figures.rows import Row, Rows, count, number
from dashboard.figures.safe import plain
from dashboard.report.asking import Asking, utc
from dashboard.report.detail_values import EvictionRow, MemoryRow, OffloadRow, Segment, Segments
from dashboard.report.figures import told_by_two
from dashboard.report.moved import DIMENSIONS, split
from dashboard.report.quality_values import Ineligible, Quality, Reject, SourceRow
from dashboard.report.span import shown
from dashboard.report.text import told
from dashboard.report.week import DefinedColumn, Definition, Headline
from queries import source_words
from queries.registry import questions
from replay.counted import counted

MOST_SEGMENTS = 12
MOST_ROWS = 12
RESPONSE_CACHE = "response_cache"  # a gateway's store of whole responses: no prefix cache


def segments(ask: Asking, lead: Headline) -> tuple[Segments, ...]:
    """The largest values of each dimension rows name, and all others together."""
    if lead.basis == "none":
        return ()
    dimensions = DIMENSIONS if lead.basis == "log" else ("replica", "model")
    found = [Segments(by, _segments(ask, lead, by)) for by in dimensions]
    return tuple(each for each in found if each.rows)


def _segments(ask: Asking, lead: Headline, by: str) -> tuple[Segment, ...]:
    name = "hit_ratio" if lead.basis == "log" else "engine_hit_ratio"
    rows = ask.rows(name, by=by)
    if not any(row[by] for row in rows):
        return ()
    before = _before(ask, lead, by)
    ordered = sorted(rows, key=lambda row: (-(count(row, "prompt_tokens") or 0), str(row[by])))
    made = [_segment(by, plain(row[by]), 0, [row], before) for row in ordered[:MOST_SEGMENTS]]
    rest = ordered[MOST_SEGMENTS:]
    if rest:
        made.append(_segment(by, f"{len(rest):,} others together", len(rest), rest, before))
    return tuple(made)


def _before(ask: Asking, lead: Headline, by: str) -> dict[object, tuple[int, int]]:
    """Reported and cached tokens of each value in the compared week."""
    if lead.basis == "engine":
        window = {"since": lead.compared_since, "until": lead.compared_until}
        rows = ask.rows("engine_hit_ratio", by=by, **window)
        return {row[by]: (count(row, "reported_prompt_tokens") or 0, _cached(row)) for row in rows}
    return {
        row[by]: (count(row, "reported_prompt_tokens_before") or 0,
                  count(row, "cached_tokens_before") or 0)
        for row in split(ask, lead, by)
    }  # fmt: skip


def _cached(row: Row) -> int:
    return (count(row, "reported_prompt_tokens") or 0) - (count(row, "computed_tokens") or 0)


def _segment(
    by: str, name: str, others: int, rows: Sequence[Row], before: dict[object, tuple[int, int]]
) -> Segment:
    """Sums over the rows, and ratios of these sums."""
    prompt, reported, ineligible, requests = (
        sum(count(row, column) or 0 for row in rows)
        for column in ("prompt_tokens", "reported_prompt_tokens", "ineligible_prompt_tokens",
                       "requests")
    )  # fmt: skip
    cached = sum(_cached(row) for row in rows)
    earlier = [before.get(row[by], (0, 0)) for row in rows]
    told_before = sum(tokens for tokens, _ in earlier)
    eligible = prompt - ineligible
    return Segment(
        by=by,
        name=name,
        others=others,
        requests=requests,
        prompt_tokens=prompt,
        cached_tokens=cached,
        reported_prompt_tokens=reported,
        token_hit_ratio=cached / reported if reported > 0 else None,
        token_hit_ratio_before=sum(c for _, c in earlier) / told_before if told_before else None,
        coverage_ratio=reported / eligible if eligible > 0 and "requests" in rows[0] else None,
    )


def memory(ask: Asking) -> tuple[MemoryRow, ...]:
    """The latest split of the week by model, the largest first."""
    rows = sorted(
        ask.rows("memory_split", by="model"),
        key=lambda row: (-(count(row, "capacity_tokens") or 0), str(row["model"])),
    )
    return tuple(
        MemoryRow(
            model=plain(row["model"]),
            replicas=count(row, "replicas") or 0,
            as_of=utc(row["as_of"]),
            capacity_tokens=count(row, "capacity_tokens"),
            running_tokens=count(row, "running_tokens"),
            cached_tokens=count(row, "cached_tokens"),
            free_tokens=count(row, "free_tokens"),
            kv_usage_ratio=number(row, "kv_usage_ratio"),
            basis=str(row["basis"] or ""),
        )
        for row in rows[:MOST_ROWS]
    )


def evictions(ask: Asking) -> tuple[EvictionRow, ...]:
    """What left each tier in the week; bases are never added."""
    rows = sorted(
        ask.rows("evictions"), key=lambda row: [str(row[c]) for c in ("basis", "observer", "tier")]
    )
    return tuple(
        EvictionRow(
            basis=str(row["basis"]),
            observer=str(row["observer"]),
            tier=str(row["tier"]),
            evicted_tokens=count(row, "evicted_tokens"),
            demoted_tokens=count(row, "demoted_tokens"),
            reset_tokens=count(row, "reset_tokens"),
            turnover_ratio=number(row, "turnover_ratio"),
            never_reused_ratio=number(row, "never_reused_ratio"),
        )
        for row in rows[:MOST_ROWS]
    )


def offload(ask: Asking) -> tuple[OffloadRow, ...]:
    """Whether each lower tier at work pays, with what was written and read."""
    costs = {row["tier"]: row for row in ask.rows("offload_cost")}
    # The verdict compares requests, which takes its time: only where a tier is at work.
    verdicts = sorted(ask.rows("offload_verdict"), key=_tier) if costs else []
    return tuple(
        OffloadRow(
            tier=str(row["tier"]),
            verdict=str(row["verdict"]),
            sentence=told(row["sentence"]),
            stored_bytes=count(costs.get(row["tier"], {}), "stored_bytes"),
            loaded_bytes=count(costs.get(row["tier"], {}), "loaded_bytes"),
        )
        for row in verdicts
    )


def _tier(row: Row) -> str:
    return str(row["tier"])


def quality(ask: Asking, lead: Headline, last: datetime) -> Quality:
    """Sources, rejects, what is ineligible, what came late, what counts twice."""
    health, late = ask.rows("ingest_health"), ask.first("report_late")
    ineligible = [
        Ineligible(str(row["reason"] or "not kept"), count(row, "requests") or 0,
                   count(row, "prompt_tokens") or 0)
        for row in ask.rows("report_ineligible")
    ]  # fmt: skip
    stored = [each for each in ineligible if each.reason == RESPONSE_CACHE]
    engine = ask.first("engine_hit_ratio")
    revised, loaded = _late_words(ask, late, lead)
    return Quality(
        sources=_sources(ask.rows("figure_sources")),
        rejects=_rejects(ask.rows("rejects")),
        rejected_rows=_total(health, "rejected"),
        duplicates=_total(health, "duplicate"),
        conflicts=_total(health, "conflicting"),
        counted_twice=tuple(
            source_words.compared(pair, plain) for pair in told_by_two(ask, last)
            if pair["added"]
        )[:MOST_ROWS],
        response_cache_requests=sum(each.requests for each in stored),
        response_cache_prompt_tokens=sum(each.prompt_tokens for each in stored),
        ineligible=tuple(each for each in ineligible if each not in stored),
        late_requests=count(late, "late_requests") or 0,
        late_prompt_tokens=count(late, "late_prompt_tokens") or 0,
        late_last_arrived=utc(late.get("last_arrived")),
        ratio_before_late=number(late, "token_hit_ratio_without_late"),
        revised=revised,
        loaded_afterwards=loaded,
        engine_resets=count(engine, "resets"),
        engine_gaps=count(engine, "gaps"),
        cautions=_cautions(ask, engine),
    )  # fmt: skip


def _total(rows: Rows, column: str) -> int:
    return sum(count(row, column) or 0 for row in rows)


def _sources(rows: Rows) -> tuple[SourceRow, ...]:
    ordered = sorted(rows, key=lambda row: (str(row["kind"]), str(row["source"]), str(row["basis"]),
                                            str(row["observer"])))  # fmt: skip
    return tuple(
        SourceRow(source_words.counted(row, plain), source_words.details(row))
        for row in ordered[:MOST_ROWS]
    )


def _rejects(rows: Rows) -> tuple[Reject, ...]:
    ordered = sorted(rows, key=lambda row: (-(count(row, "rejects") or 0), str(row["source"]),
                                            str(row["reason"])))  # fmt: skip
    return tuple(
        Reject(plain(row["source"]), told(row["reason"], 80), count(row, "rejects") or 0)
        for row in ordered[:MOST_ROWS]
    )


def _late_words(ask: Asking, late: Row, lead: Headline) -> tuple[str, str]:
    """What rows that came late changed, and whether all did; '' for what is not so."""
    requests, arrived = count(late, "late_requests") or 0, utc(late.get("last_arrived"))
    if not requests or arrived is None:
        return "", ""
    when = f"more than a day after the week, the last {shown(ask.week, arrived)}"
    if requests == count(late, "requests"):
        return "", f"All rows of the week were loaded afterwards: {when}."
    said = (
        f"Revised: {counted(requests, 'row')} with {whole(count(late, 'late_prompt_tokens'))} "
        f"prompt tokens arrived {when}."
    )
    then = number(late, "token_hit_ratio_without_late")
    if then is None or lead.basis != "log":
        return said, ""
    now = percent(lead.token_hit_ratio)
    return f"{said} A report made before them said {percent(then)}, now {now}.", ""


def _cautions(ask: Asking, engine: Row) -> tuple[str, ...]:
    """What to know before using engine figures, and metrics that pages lack (never 0)."""
    found = [f"Engine counters: {told(engine['caution'])}"] if engine.get("caution") else []
    for row in ask.rows("replicas"):
        missing = [plain(name) for name in row["missing_metrics"] or ()]
        if missing:
            found.append(f"{plain(row['replica'])} exposes no {', '.join(sorted(missing)[:5])}")
        if row["frozen"]:
            found.append(f"counters of {plain(row['replica'])} stand still while traffic flows")
        if row["up"] is False:
            found.append(f"{plain(row['replica'])} does not answer")
    return tuple(sorted(set(found))[:MOST_ROWS])


# What the report shows of each question; the meaning is read from the question's own header.
SHOWN = {
    "hit_ratio": ("token_hit_ratio", "coverage_ratio", "reported_prompt_tokens",
                  "ineligible_prompt_tokens", "cached_tokens"),
    "engine_hit_ratio": ("token_hit_ratio", "reported_prompt_tokens", "resets", "gaps"),
    "costs": ("net_saved_usd", "write_surcharge_usd", "priced_ratio", "freed_gpu_hours",
              "freed_gpu_usd"),
    "prefill": ("saved_tokens", "saved_seconds"),
    "ttft_by_outcome": ("outcome", "ttft_point", "within_from", "p50_seconds"),
    "engine_ttft": ("p50_seconds", "p95_seconds"),
    "explain": ("within_tokens", "mix_tokens", "change_ratio"),
    "peak_drop": ("expected_ratio", "expected_low_ratio", "load_part_ratio", "is_drop", "class"),
    "waterfall": ("explained_ratio", "new_warming_tokens"),
    "missed_change": ("prompt_ratio", "change_ratio"),
    "layout": ("gain_tokens", "frequency"),
    "cross_scope_reuse": ("reused_at_least_tokens",),
    "changes": ("tokens_per_day_lower", "tokens_per_day_upper", "basis"),
    "load_over_time": ("kv_usage_ratio", "computed_tokens_per_second"),
    "memory_split": ("running_tokens", "cached_tokens", "free_tokens"),
    "evictions": ("evicted_tokens", "demoted_tokens", "reset_tokens", "turnover_ratio"),
    "offload_verdict": ("verdict", "basis"),
    "reconciliation": ("verdict", "our_prompt_tokens", "their_prompt_tokens"),
    "source_pairs": ("kind", "difference_ratio", "added"),
    "report_late": ("late_requests", "token_hit_ratio_without_late"),
    "report_ineligible": ("reason",),
}  # fmt: skip


def definitions(ask: Asking) -> tuple[Definition, ...]:
    """The questions behind this report, in the order above."""
    known = questions()
    return tuple(
        Definition(
            name,
            known[name].question,
            known[name].grain,
            tuple(
                DefinedColumn(c, known[name].columns[c].unit, known[name].columns[c].meaning)
                for c in columns
            ),
        )
        for name, columns in SHOWN.items()
        if name in ask.names
    )
