"""Why tokens missed in the week, against the week before it, from questions."""

from datetime import datetime

from dashboard.figures.cause_words import MEANINGS, tokens_of
from dashboard.figures.rows import Row, Rows, count, number
from dashboard.figures.safe import plain
from dashboard.missed_words import caution, sentence
from dashboard.report.asking import Asking, utc
from dashboard.report.missed_values import (
    CauseShare,
    CrossedScope,
    LayoutFinding,
    NotExplained,
    TemplateMissed,
    WhyMissed,
)
from dashboard.report.text import told
from dashboard.report.week import Headline
from dashboard.report.weeks import a_week_earlier
from queries.on_call.asking import WINDOW
from queries.on_call.missed import may_be_told, missed_words
from replay.causes import CAUSES

MOST_TEMPLATES, MOST_FINDINGS, MOST_CROSSED = 5, 3, 3
_LONGEST_ADVICE, _LONGEST_COMMAND = 600, 300
REASONS = ("chainless", "late", "unreported")


def why_missed(ask: Asking, lead: Headline) -> WhyMissed:
    """The waterfall of the week; further questions only where something has causes."""
    row = ask.first("waterfall")
    if not number(row, "prompt_tokens"):
        return WhyMissed("", "", 0, 0, None, None, (), (), _not_explained(row), (), None, None, ())
    changed = ask.rows(
        "missed_change", baseline_since=lead.compared_since, baseline_until=lead.compared_until
    )
    findings = _findings(ask)
    since, until = _looked_at(findings)
    return WhyMissed(
        sentence=sentence(row),
        caution=caution(row),
        prompt_tokens=count(row, "prompt_tokens") or 0,
        cached_tokens=count(row, "cached_tokens") or 0,
        explained_ratio=number(row, "explained_ratio"),
        missed_change_ratio=number(next(iter(changed), {}), "missed_change_ratio"),
        causes=_causes(changed),
        templates=_templates(ask.rows("waterfall", by="template")),
        not_explained=_not_explained(row),
        layout=tuple(_finding(each) for each in findings),
        layout_since=since,
        layout_until=until,
        crossed=_crossed(ask.rows("cross_scope_reuse")),
    )


def grown_causes(ask: Asking, judged: Row) -> str:
    """Which causes grew in a judged hour since the same one a week before, as `/now` says it; ''
    where that is not known or nothing fell."""
    since = utc(judged["ts"])
    if since is None or not may_be_told(judged):
        return ""
    until = since + WINDOW
    ends = a_week_earlier(until, ask.week.zone)
    return missed_words(ask.rows(
        "missed_change", model=judged["model"], since=since, until=until,
        baseline_since=ends - WINDOW, baseline_until=ends,
    ))  # fmt: skip


def _causes(changed: Rows) -> tuple[CauseShare, ...]:
    """Those of the week or of the week before, as the waterfall tells them apart."""
    return tuple(
        CauseShare(
            cause=str(row["cause"]),
            meaning=MEANINGS[str(row["cause"])].says,
            tokens=count(row, "tokens") or 0,
            prompt_ratio=number(row, "prompt_ratio") or 0.0,
            prompt_ratio_before=number(row, "prompt_ratio_before"),
            change_ratio=number(row, "change_ratio"),
        )
        for row in sorted(changed, key=lambda row: CAUSES.index(str(row["cause"])))
    )


def _templates(rows: Rows) -> tuple[TemplateMissed, ...]:
    """Those that missed most tokens, where rows name any."""
    explained = [row for row in rows if number(row, "prompt_tokens")]
    if not any(row["template"] for row in explained):
        return ()
    ordered = sorted(explained, key=lambda row: (-_missed(row), str(row["template"])))
    return tuple(_template(row) for row in ordered[:MOST_TEMPLATES])


def _missed(row: Row) -> int:
    return (count(row, "prompt_tokens") or 0) - (count(row, "cached_tokens") or 0)


def _template(row: Row) -> TemplateMissed:
    prompt = count(row, "prompt_tokens") or 0
    most = max(CAUSES, key=lambda cause: tokens_of(row, cause))
    tokens = tokens_of(row, most)
    return TemplateMissed(
        template=plain(row["template"]),
        prompt_tokens=prompt,
        missed_tokens=_missed(row),
        missed_ratio=_missed(row) / prompt,
        cause=most if tokens else "",
        cause_ratio=tokens / prompt,
    )


def _not_explained(row: Row) -> tuple[NotExplained, ...]:
    return tuple(
        NotExplained(reason, requests, count(row, f"{reason}_prompt_tokens") or 0)
        for reason in REASONS
        if (requests := count(row, f"{reason}_requests") or 0)
    )


def _findings(ask: Asking) -> Rows:
    """What would win most, of prompts of the week or of the days until the next is over."""
    next_ends = ask.week.back(-1).until
    found = [
        row
        for row in ask.rows("layout")
        if number(row, "gain_tokens")
        and (as_of := utc(row["as_of"])) is not None
        and ask.week.since < as_of < next_ends
    ]
    return found[:MOST_FINDINGS]


def _looked_at(findings: Rows) -> tuple[datetime | None, datetime | None]:
    first = next(iter(findings), {})
    return utc(first.get("window_since")), utc(first.get("as_of"))


def _finding(row: Row) -> LayoutFinding:
    return LayoutFinding(
        template=plain(row["template"]),
        kind=str(row["kind"]),
        frequency=str(row["frequency"]),
        from_token=count(row, "from_token") or 0,
        until_token=count(row, "until_token") or 0,
        gain_tokens=count(row, "gain_tokens") or 0,
        gain_ratio=number(row, "gain_ratio"),
        advice=told(row["advice"], _LONGEST_ADVICE),
        command=told(row["command"], _LONGEST_COMMAND),
    )


def _crossed(rows: Rows) -> tuple[CrossedScope, ...]:
    """Where something was reused, most tokens first; not what nobody can tell."""
    return tuple(
        CrossedScope(
            model=plain(row["model"]),
            replica=plain(row["replica"]),
            tenant=plain(row["tenant"]),
            likely_other_tenants=told(row["likely_other_tenants"], 120),
            reused_requests=count(row, "reused_requests") or 0,
            reused_at_least_tokens=count(row, "reused_at_least_tokens") or 0,
        )
        for row in rows
        if row["scope"] is not None and number(row, "reused_at_least_tokens")
    )[:MOST_CROSSED]
