"""Do our rows agree with usage reports? The facts from the question, and what is said of them."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from dashboard.figures.numbers import percent
from prefixscope.doctor.asked import Asked, Row
from prefixscope.doctor.facts import ReportFacts
from prefixscope.doctor.findings import Finding, Severity
from replay.counted import counted

# Up to the last day reported. Reports come by the day and settle late: fewer would often be none.
LOOKED_AT = timedelta(days=13)
_MOST_MODELS = 10
_WHERE_TO_READ = "see docs/provider-usage.md and prefixscope query reconciliation"
# What to do about the first reason named.
_REMEDIES = {
    "repeated_rows": "take one log of a call in, and give retries one id with a number each",
    "failed_rows": "none is needed: the provider does not count calls that failed",
    "exclusive_counts": "let the log state prompt tokens with cached ones in them; see "
    "docs/formats/README.md",
    "counted_twice": "let the log state prompt tokens once; see docs/formats/README.md",
    "day_border": "let whoever makes the table count days of UTC; check the clocks",
    "missing_rows": "take the log of that time in again: prefixscope ingest FILE",
    "rows_without_counts": 'send stream_options: {"include_usage": true}, or let the gateway do so',
    "other_name": "name the model alike on both sides",
    "elsewhere": "let those calls pass the gateway or the tap, or take their log in",
    "cached_unreported": "let every row name its cached tokens (see coverage)",
}


def asked_reports(asked: Asked) -> tuple[ReportFacts, ...]:
    """Verdicts of the last two weeks reported, by reporter, provider and model."""
    newest: dict[str, Row] = {}
    for row in asked.rows("provider_usage"):
        newest[row["reporter"]] = row  # in order of days
    found: list[ReportFacts] = []
    for reporter, last in newest.items():
        since = f"{(last['day'] - LOOKED_AT).isoformat()}Z"
        by_model: dict[tuple[str, str], list[Row]] = {}
        for row in asked.rows("reconciliation", since=since, reporter=reporter):
            by_model.setdefault((row["provider"], row["model"]), []).append(row)
        found += [_facts(reporter, *key, rows) for key, rows in by_model.items()]
    return tuple(found)


def _facts(reporter: str, provider: str, model: str, rows: Sequence[Row]) -> ReportFacts:
    days: dict[str, list[Row]] = {}
    for row in rows:
        days.setdefault(row["verdict"], []).append(row)
    differing = days.get("differs", [])
    latest = (differing or rows)[-1]
    return ReportFacts(
        reporter=reporter, provider=provider, model=model,
        agreeing_days=len(days.get("agrees", [])),
        differing_days=len(differing),
        uncompared_days=len(days.get("cannot be compared", [])),
        latest=f"{latest['day']:%Y-%m-%d}",
        last_day=f"{rows[-1]['day']:%Y-%m-%d}",
        difference_ratio=latest["difference_ratio"],
        reasons=tuple((latest["reasons"] or "").split(", ")) if latest["reasons"] else (),
        evidence=latest["evidence"] or "",
    )  # fmt: skip


def check_reports(reports: Sequence[ReportFacts]) -> Iterator[Finding]:
    """One line per reporter for what agrees, one per model that does not."""
    for reporter in dict.fromkeys(report.reporter for report in reports):
        own = [report for report in reports if report.reporter == reporter]
        where = f"usage report of {reporter}"
        agreeing = sum(report.agreeing_days for report in own)
        if agreeing:
            compared = agreeing + sum(report.differing_days for report in own)
            last = max(report.last_day for report in own)
            yield Finding(
                "usage-reports", Severity.OK, where,
                f"our rows agree with it on {agreeing:,} of {counted(compared, 'day')}, model "
                f"by model, in the two weeks up to {last}",
            )  # fmt: skip
        differing = [report for report in own if report.differing_days]
        yield from (_differs(where, report) for report in differing[:_MOST_MODELS])
        if len(differing) > _MOST_MODELS:
            yield Finding(
                "usage-reports", Severity.WARNING, where,
                counted(len(differing) - _MOST_MODELS, "more model differs", "more models differ"),
                _WHERE_TO_READ,
            )  # fmt: skip
        elif not agreeing and not differing and own:
            yield Finding(
                "usage-reports", Severity.NOTE, where,
                f"nothing of it can be compared with our rows yet: {own[0].evidence}",
            )  # fmt: skip


def _differs(where: str, report: ReportFacts) -> Finding:
    days = report.differing_days + report.agreeing_days
    share = ""
    if report.difference_ratio is not None:
        more = "more" if report.difference_ratio > 0 else "fewer"
        share = f", ours {percent(abs(report.difference_ratio))} {more} prompt tokens"
    differs = f"{report.model} differs" if report.model else "all models differ"
    return Finding(
        "usage-reports", Severity.WARNING, where,
        f"{differs} on {report.differing_days} of {counted(days, 'day')} "
        f"(last {report.latest}{share}): {', '.join(report.reasons)}: {report.evidence}",
        next((_REMEDIES[r] for r in report.reasons if r in _REMEDIES), _WHERE_TO_READ),
    )  # fmt: skip
