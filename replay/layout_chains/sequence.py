"""How what stands at a place changes: once and for all, by day, user or session, or always."""

from dataclasses import dataclass

import numpy as np

from replay.layout_chains.prompts import NOT_GIVEN, Codes, Prompts
from replay.traffic import Flags, Numbers, Seconds

# In which share of pairs of requests the values must be equal (or differ) to be said to be so.
_NEARLY_ALL_RATIO, _FEW_RATIO = 0.9, 0.5
# Fewer pairs of requests than these tell nothing.
_MIN_PAIRS = 3
# A version has at least so many witnesses (sessions, or requests of none), and a template no more
# versions than these in the time looked at.
_MIN_WITNESSES, _MOST_VERSIONS = 3, 4
_DAY_SECONDS = 86_400.0
# A date takes no more blocks than this; what is longer and changes at midnight was deployed then.
_DATE_BLOCKS = 3


@dataclass(frozen=True)
class Change:
    """`frequency`: once, day, user, session or request. `since`: when the newest value was first
    seen, where values follow each other in time; else None."""

    frequency: str
    since: float | None = None


def versions(
    values: Codes, units: Codes, started: Seconds, witnesses: int = _MIN_WITNESSES
) -> list[float] | None:
    """When each value but the first was first seen, where every one replaced the one before for
    good; None where they do not, or where fewer than `witnesses` have one. In any order."""
    found, value = np.unique(values, return_inverse=True)
    if not 2 <= len(found) <= _MOST_VERSIONS:
        return None
    order = np.argsort(started, kind="stable")
    value, began, unit = value[order], started[order], units[order]
    firsts = np.array([np.argmax(value == number) for number in range(len(found))])
    in_time = np.argsort(firsts)
    if min(len(np.unique(unit[value == number])) for number in in_time) < witnesses:
        return None
    # The version in force at each request, as if every one ended where the next began.
    expected = in_time[np.searchsorted(np.sort(firsts), np.arange(len(value)), side="right") - 1]
    kept = [(expected[value == number] == number).mean() for number in in_time]
    if min(kept) < _NEARLY_ALL_RATIO or not _ends(value, in_time):
        return None
    return [float(began[first]) for first in np.sort(firsts)[1:]]


def _ends(value: Codes, in_time: Numbers) -> bool:
    """Is the last fifth of the requests of the last version alone? A way that merely came up late
    does not end the others."""
    tail = value[-max(_MIN_WITNESSES, int((value == in_time[-1]).sum() // 2)) :]
    return bool((tail == in_time[-1]).mean() >= _NEARLY_ALL_RATIO)


def change_of(
    prompts: Prompts, rows: Numbers, values: Codes, classes: Codes, length_blocks: int
) -> Change:
    """How the value of a place changes. `classes`: values are compared within one only;
    `length_blocks`: of the place, as blocks."""
    largest = classes == np.bincount(classes).argmax()
    own = rows[largest]
    # What agrees again behind the place is of one template anyhow.
    moments = versions(values[largest], prompts.unit[own], prompts.started[own], witnesses=2)
    if moments is not None:
        is_date = length_blocks <= _DATE_BLOCKS and _at_midnights(prompts, own, moments)
        return Change("day" if is_date else "once", moments[-1])
    same = values[:, None] == values[None, :]
    comparable = (classes[:, None] == classes[None, :]) & ~np.eye(len(rows), dtype=np.bool_)
    unit = prompts.unit[rows]
    apart = comparable & (unit[:, None] != unit[None, :])
    day = np.floor(prompts.started[rows] / _DAY_SECONDS).astype(np.int64)
    if length_blocks <= _DATE_BLOCKS and _goes_by(day, same, apart):
        return Change("day", float(prompts.started[rows][day == day.max()].min()))
    if _goes_by(prompts.tenant[rows], same, apart):
        return Change("user")
    if _goes_by(prompts.session[rows], same, comparable):
        return Change("session")
    return Change("request")


def _goes_by(labels: Codes, same: Flags, comparable: Flags) -> bool:
    """Is the value the same within nearly every group of this label, and another in others?"""
    known = labels != NOT_GIVEN
    pairs = comparable & known[:, None] & known[None, :]
    together = labels[:, None] == labels[None, :]
    within, across = same[pairs & together], same[pairs & ~together]
    if len(within) < 2 * _MIN_PAIRS or len(across) < 2 * _MIN_PAIRS:
        return False
    return bool(within.mean() >= _NEARLY_ALL_RATIO and across.mean() <= _FEW_RATIO)


def _at_midnights(prompts: Prompts, rows: Numbers, moments: list[float]) -> bool:
    """Did every new value first come just after a midnight (UTC), the request before it being of
    the day before?"""
    started = np.sort(prompts.started[rows])
    for moment in moments:
        before = started[started < moment]
        midnight = np.floor(moment / _DAY_SECONDS) * _DAY_SECONDS
        if not len(before) or before[-1] >= midnight:
            return False
    return True
