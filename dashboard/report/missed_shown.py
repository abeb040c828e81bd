"""Why tokens missed, in HTML and Markdown: the same words in both."""

from dashboard.figures.numbers import percent, points, whole
from dashboard.report import charts
from dashboard.report.html_parts import Column, gaps, quiet, section, table
from dashboard.report.markdown_parts import Columns, bullets, escaped, titled, together
from dashboard.report.markdown_parts import gaps as markdown_gaps
from dashboard.report.markdown_parts import table as markdown_table
from dashboard.report.markup import Markup, bdi, joined, tag
from dashboard.report.missed_values import (
    CauseShare,
    CrossedScope,
    LayoutFinding,
    TemplateMissed,
)
from dashboard.report.span import shown
from dashboard.report.week import WeekReport
from replay.counted import counted

HEADING = "Why tokens missed"
_CAUSES = "Prompt tokens by cause, against the week before"
_TEMPLATES = "Templates that missed most"
_LAYOUT = "What a change of the layout would win"


def html(report: WeekReport) -> Markup | None:
    """The section; what is missing and the step to it where nothing is explained."""
    made = report.missed
    if not made.prompt_tokens:
        missing = gaps(report, "missed")
        return section(tag("h2", HEADING), missing) if missing else None
    return section(
        tag("h2", HEADING),
        tag("p", made.sentence),
        charts.waterfall(made),
        quiet(beneath(report)),
        table(_CAUSES, _CAUSE_COLUMNS, made.causes) if made.causes else None,
        table(_TEMPLATES, _TEMPLATE_COLUMNS, made.templates) if made.templates else None,
        _layout(report),
        *(tag("p", crossed_words(each), class_="missing") for each in made.crossed),
    )


_CAUSE_COLUMNS: list[Column[CauseShare]] = [
    Column("cause", lambda row: row.cause, is_number=False),
    Column("what it says", lambda row: row.meaning, is_number=False),
    Column("tokens", lambda row: whole(row.tokens)),
    Column("of prompt tokens", lambda row: percent(row.prompt_ratio)),
    Column("before", lambda row: percent(row.prompt_ratio_before)),
    Column("change", lambda row: points(row.change_ratio)),
]
_TEMPLATE_COLUMNS: list[Column[TemplateMissed]] = [
    Column("template", lambda row: bdi(row.template), is_number=False),
    Column("prompt tokens", lambda row: whole(row.prompt_tokens)),
    Column("missed tokens", lambda row: whole(row.missed_tokens)),
    Column("missed", lambda row: percent(row.missed_ratio)),
    Column("mostly", lambda row: row.cause or "–", is_number=False),
    Column("of its prompt tokens", lambda row: percent(row.cause_ratio)),
]


def _layout(report: WeekReport) -> Markup | None:
    if not report.missed.layout:
        return None
    lines = [
        tag("li", tag("strong", bdi(each.template)), f" {_where(each)}: {each.advice} ",
            tag("code", each.command))
        for each in report.missed.layout
    ]  # fmt: skip
    heading = tag("h2", _LAYOUT, class_="part")
    return joined(heading, tag("ol", *lines), quiet(layout_words(report)))


def markdown(report: WeekReport) -> str:
    """The same without the drawing; '' where nothing is missing and nothing explained."""
    made = report.missed
    heading = f"## {HEADING}"
    if not made.prompt_tokens:
        return titled(heading, markdown_gaps(report, "missed"))
    findings = bullets((f"{each.template} {_where(each)}: {each.advice} {each.command}"
                        for each in made.layout), "1.")  # fmt: skip
    return together(
        heading,
        escaped(made.sentence),
        escaped(beneath(report)),
        markdown_table(_CAUSE_CELLS, made.causes),
        titled(f"### {_TEMPLATES}", markdown_table(_TEMPLATE_CELLS, made.templates)),
        titled(f"### {_LAYOUT}", findings),
        escaped(layout_words(report)),
        bullets(crossed_words(each) for each in made.crossed),
    )


_CAUSE_CELLS: Columns[CauseShare] = [
    ("cause", lambda row: row.cause),
    ("what it says", lambda row: row.meaning),
    ("tokens", lambda row: whole(row.tokens)),
    ("of prompt tokens", lambda row: percent(row.prompt_ratio)),
    ("before", lambda row: percent(row.prompt_ratio_before)),
    ("change", lambda row: points(row.change_ratio)),
]
_TEMPLATE_CELLS: Columns[TemplateMissed] = [
    ("template", lambda row: row.template),
    ("prompt tokens", lambda row: whole(row.prompt_tokens)),
    ("missed tokens", lambda row: whole(row.missed_tokens)),
    ("missed", lambda row: percent(row.missed_ratio)),
    ("mostly", lambda row: row.cause or "–"),
    ("of its prompt tokens", lambda row: percent(row.cause_ratio)),
]


def beneath(report: WeekReport) -> str:
    """The change, what is left out, and what a cause does not say."""
    last = "A cause says where a token was lost, not what undoing it would win."
    return f"{change_words(report)} {report.missed.caution} {last}"


def change_words(report: WeekReport) -> str:
    """How much more missed than in the week before, as far as this one goes."""
    is_whole = report.headline.compared_until == report.week.since
    earlier = "the week before" if is_whole else "the same part of the week before"
    change = report.missed.missed_change_ratio
    if change is None:
        return f"Nothing is explained of {earlier}."
    return f"Missed in all {points(change)} against {earlier}."


def _where(each: LayoutFinding) -> str:
    """ "(unknown, with every request)": the kind, and how often it changes."""
    often = {"once": "once", "": ""}.get(each.frequency, f"always, changes per {each.frequency}")
    kind = each.kind.replace("_", " ")
    return f"({kind}, {often})" if often else f"({kind})"


def layout_words(report: WeekReport) -> str:
    """Which prompts findings are of; '' without any."""
    made = report.missed
    if made.layout_since is None or made.layout_until is None:
        return ""
    return (
        f"From a sample of the prompts from {shown(report.week, made.layout_since)} to "
        f"{shown(report.week, made.layout_until)}; gains are estimated by replay."
    )


def crossed_words(each: CrossedScope) -> str:
    """Who was served what another scope had computed."""
    likely = each.likely_other_tenants
    computed = f", likely computed for {likely}" if likely else ""
    return (
        f"Reuse across scopes: at least {whole(each.reused_at_least_tokens)} cached tokens in "
        f"{counted(each.reused_requests, 'request')} of tenant {each.tenant} on replica "
        f"{each.replica} came from another scope{computed}."
    )
