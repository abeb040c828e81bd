"""The report as one HTML file: styles and charts inside, no script, nothing fetched."""

from collections.abc import Iterable, Sequence

from dashboard.report import charts, words
from dashboard.report.html_parts import document, gaps, next_step, quiet, section
from dashboard.report.html_sections import SECTIONS
from dashboard.report.markup import Markup, bdi, joined, tag
from dashboard.report.week import Change, Mover, WeekReport


def render(report: WeekReport) -> bytes:
    """The whole file, UTF-8. The same report gives the same bytes."""
    made = (made for build in SECTIONS for made in [build(report)] if made)
    return document(words.title(report), page_one(report), *made)


def page_one(report: WeekReport) -> Markup:
    """All that a platform owner needs on Monday, on one printed page."""
    return section(
        tag("h1", words.title(report)),
        quiet(words.span_words(report)),
        quiet(words.data_words(report)),
        *(tag("span", mark, class_="mark") for mark in words.marks(report)),
        tag("p", report.headline.sentence, class_="lead"),
        *(quiet(line) for line in _beside(report)),
        gaps(report, "headline"),
        _figures(report),
        _trust(report),
        _weeks(report),
        _movers(report),
        _changes(report),
        _peak(report),
        class_="page-one",
    )


def _part(heading: str) -> Markup:
    """A heading of page one."""
    return tag("h2", heading, class_="part")


def _beside(report: WeekReport) -> list[str]:
    lines = [words.engine_words(report), words.response_cache_words(report)]
    return [line for line in lines if line]


def _figures(report: WeekReport) -> Markup | None:
    if report.headline.token_hit_ratio is None:
        return None
    boxes = [
        tag(
            "div", tag("div", figure.label, class_="label"),
            tag("div", figure.value, class_="value"),
            tag("div", figure.note, next_step(figure.step), class_="quiet"), class_="figure",
        )
        for figure in words.figures(report)
    ]  # fmt: skip
    return joined(tag("div", *boxes, class_="figures"), quiet(words.NOT_ADDED))


def _trust(report: WeekReport) -> Markup | None:
    lines = words.trust_lines(report)
    if not lines:
        return None
    return joined(_part("Can it be trusted?"), *(tag("p", line) for line in lines))


def _weeks(report: WeekReport) -> Markup | None:
    if all(point.token_hit_ratio is None for point in report.weeks):
        return None
    return joined(
        _part("Thirteen weeks"),
        charts.weeks(report),
        quiet("▲ drops, resets and hours without data (of earlier weeks resets only). "
              "Dashed: a partial week."),
    )  # fmt: skip


def _movers(report: WeekReport) -> Markup | None:
    if report.headline.token_hit_ratio is None:
        return None
    if not (report.up or report.down):
        return joined(_part("What moved"), gaps(report, "movers") or
                      quiet("Nothing moved by its own ratio."))  # fmt: skip
    return tag(
        "div", _mover_list("Up", report.up), _mover_list("Down", report.down), class_="columns"
    )


def _mover_list(heading: str, movers: Sequence[Mover]) -> Markup:
    lines = [
        tag("li", tag("strong", bdi(mover.name)), f" ({mover.by}) {words.mover_words(mover)}.")
        for mover in movers
    ]
    return tag("div", _part(heading), tag("ul", *lines) if lines else quiet("None."))


def _changes(report: WeekReport) -> Markup | None:
    if report.headline.basis == "none":
        return None
    lines = tag("ol", *(_change(each) for each in report.changes))
    return joined(_part("Changes to make"), lines if report.changes else quiet(words.NO_CHANGES))


def _change(change: Change) -> Markup:
    overlaps = f" {change.overlaps}." if change.overlaps else None
    said = f": {words.change_tokens(change)}. {change.evidence}"
    return tag("li", tag("strong", change.sentence), said, overlaps)


def _peak(report: WeekReport) -> Markup | None:
    if report.headline.token_hit_ratio is None:
        return None
    told: Iterable[Markup | None] = (
        (gaps(report, "peak"),) if report.peak is None else (tag("p", report.peak.sentence),)
    )
    return joined(_part("The hour that cost most"), *told)
