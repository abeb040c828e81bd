"""Which hours of the week are worth judging: those that fell furthest below what is usual.

To judge an hour as the alerts do takes the requests of the same hours of five weeks. Here a week of
hours is ranked by sums that are known already; only the first of them are judged.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from statistics import median

from dashboard.report.span import Course, Sums
from dashboard.report.weeks import Slot, Week

MOST_HOURS, MOST_RUNS = 24, 4
# To judge an hour between two costs less than to judge two spans.
LONGEST_GAP = timedelta(hours=2)
HOUR = timedelta(hours=1)
HISTORY_WEEKS = 4  # as the question peak_drop compares
LEAST_TOKENS = 20_000  # fewer it does not judge
# A ratio that lost its telemetry may look as usual.
COVERAGE_FALL = 0.2


def runs(course: Course, week: Week) -> list[tuple[datetime, datetime]]:
    """Spans of whole hours in order of time, together at most MOST_HOURS hours."""
    chosen: list[datetime] = []
    for since in _ranked(course, week):
        grown = sorted({*chosen, since})
        spans = _runs(grown)
        hours = sum((until - begin) / HOUR for begin, until in spans)
        if hours <= MOST_HOURS and len(spans) <= MOST_RUNS:
            chosen = grown
    return _runs(chosen)


def _runs(hours: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """Hours in a row, or nearly, as one span."""
    found: list[tuple[datetime, datetime]] = []
    for since in hours:
        if found and since - found[-1][1] <= LONGEST_GAP:
            found[-1] = (found[-1][0], since + HOUR)
        else:
            found.append((since, since + HOUR))
    return found


def _ranked(course: Course, week: Week) -> list[datetime]:
    """Starts of hours in which some model fell, most tokens first."""
    lost: dict[Slot, float] = {}
    for (name, slot, model), sums in course.by_model.items():
        if name == week.name:
            lost[slot] = max(lost.get(slot, 0.0), _lost_tokens(course, week, slot, model, sums))
    fell = [(tokens, course.slot_since[slot]) for slot, tokens in lost.items() if tokens > 0]
    return [since for _, since in sorted(fell, key=lambda each: (-each[0], each[1]))]


def _lost_tokens(course: Course, week: Week, slot: Slot, model: str, sums: Sums) -> float:
    """Tokens computed that usually come from cache; all tokens where coverage fell."""
    if sums.prompt_tokens < LEAST_TOKENS:
        return 0.0
    earlier = list(_earlier(course, week, slot, model)) or list(_week(course, week, model))
    if _lost_telemetry(sums, earlier):
        return float(sums.prompt_tokens)
    ratios = [each.ratio for each in earlier if each.ratio is not None]
    if not ratios or sums.ratio is None or sums.reported_tokens < LEAST_TOKENS:
        return 0.0
    return (median(ratios) - sums.ratio) * sums.reported_tokens


def _lost_telemetry(sums: Sums, earlier: Sequence[Sums]) -> bool:
    """Does far less of what could be served say what was cached? Not if nothing could be."""
    usual = [each.coverage for each in earlier if each.coverage is not None]
    return bool(
        usual and sums.coverage is not None and sums.coverage < median(usual) - COVERAGE_FALL
    )


def _earlier(course: Course, week: Week, slot: Slot, model: str) -> Iterator[Sums]:
    """The same hour of the weeks before."""
    for back in range(1, HISTORY_WEEKS + 1):
        sums = course.by_model.get((week.back(back).name, slot, model))
        if sums:
            yield sums


def _week(course: Course, week: Week, model: str) -> Iterator[Sums]:
    """All hours of the week, where there is no earlier one."""
    for (name, _, its_model), sums in course.by_model.items():
        if (name, its_model) == (week.name, model):
            yield sums
