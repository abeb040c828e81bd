"""Builds a weekly report from answers of questions alone, the same of a store and of an exporter.

Nothing here reads the clock: the same store and week give the same report.
"""

from dataclasses import replace
from datetime import datetime
from functools import partial

from dashboard.figures.rows import Row, Rows, count, number
from dashboard.report import figures, incidents, moved, sections, span
from dashboard.report.asking import Answers, Asking, utc
from dashboard.report.missed import grown_causes, why_missed
from dashboard.report.missing import missing
from dashboard.report.rounding import rounded
from dashboard.report.week import Headline, WeekReport
from dashboard.report.weeks import Week


def build(answers: Answers, week: Week) -> WeekReport:
    """The report of one week; a store without data gives one that says so."""
    ask = Asking(answers, week)
    basis = span.basis_of(ask)
    course = span.course(ask, basis)
    lead = span.headline(ask, basis)
    last = span.last_busy(course, week)
    beside = _beside(ask, lead)
    judged = incidents.judged(ask, lead, course)
    drops = incidents.drops_of(judged)
    happened, more = incidents.incidents(ask, drops, course)
    state = ask.first("store_state")
    whole = [span.is_whole(each, state, basis) for each in course.weeks]
    up, down = moved.movers(ask, lead, drops)
    point, classes = figures.ttft_classes(ask)
    report = WeekReport(
        week=week,
        data=span.data_state(ask, basis, course),
        headline=lead,
        engine_ratio=number(beside, "token_hit_ratio"),
        engine_reported_prompt_tokens=count(beside, "reported_prompt_tokens"),
        billed=figures.billed(ask),
        freed=figures.freed(ask),
        ttft=figures.ttft_pair(point, classes),
        trust=figures.trust(ask, lead, last),
        weeks=incidents.weeks(ask, lead, course, happened, more, whole),
        judged_hours=len({row["ts"] for row in judged}),
        incidents=happened,
        more_incidents=more,
        up=up,
        down=down,
        changes=moved.changes(ask),
        peak=incidents.peak(week, judged, partial(grown_causes, ask)),
        hours=span.cells(ask, course, _moments(drops), span.load_by_slot(ask)),
        segments=sections.segments(ask, lead),
        ttft_classes=classes,
        outcomes=figures.outcomes(ask),
        engine_ttft=figures.engine_ttft(ask),
        memory=sections.memory(ask),
        evictions=sections.evictions(ask),
        offload=sections.offload(ask),
        prices=figures.prices(ask),
        missed=why_missed(ask, lead),
        quality=sections.quality(ask, lead, last),
        definitions=sections.definitions(ask),
        missing=(),
    )
    return rounded(replace(report, missing=missing(report)))


def _beside(ask: Asking, lead: Headline) -> Row:
    """Engine counters beside a log that leads; {} where none does."""
    return ask.first("engine_hit_ratio") if lead.basis == "log" else {}


def _moments(rows: Rows) -> list[datetime]:
    return [moment for row in rows if (moment := utc(row["ts"]))]
