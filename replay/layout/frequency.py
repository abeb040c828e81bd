"""How often what stands at a place changes: once, or with every request, session, user or day."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Frequency = Literal["once", "request", "session", "user", "day"]

_DAY_SECONDS = 86_400
# So many of the requests of a group must agree for the group to explain the value; and so few may
# come in the other order for a change to be one, as deployments replace replicas one by one.
_AGREE_RATIO = 0.95
_LEAST_ON_A_SIDE = 2


@dataclass(frozen=True)
class Owner:
    """To whom and when a request belongs, as far as the log tells."""

    session: str | None
    user: str | None
    at: float | None


def frequency_of(
    values: Mapping[int, Hashable], owners: Sequence[Owner], by_looks: bool
) -> tuple[Frequency, int | None]:
    """How the values, by number of request in the order of time, change; with `once` also the
    number of the first request after the change.

    The coarsest grouping that explains the values wins. `by_looks`: they are of a kind that
    belongs to somebody (a name, a time, an id), so a session or day explains a single change better
    than a new version does.
    """
    numbers = sorted(values)
    change = _single_change([values[number] for number in numbers])
    explained = _explained(values, numbers, owners)
    if change is not None and not (by_looks and explained is not None):
        # With no more groups than two sides of the change, nothing tells one from the other.
        return "once", numbers[change]
    return explained or "request", None


def _explained(
    values: Mapping[int, Hashable], numbers: Sequence[int], owners: Sequence[Owner]
) -> Frequency | None:
    ways: list[tuple[int, int, Frequency]] = []
    for rank, (name, group) in enumerate(_groups(numbers, owners).items()):
        members: dict[Hashable, list[Hashable]] = {}
        for number in numbers:
            if group[number] is not None:
                members.setdefault(group[number], []).append(values[number])
        several = [each for each in members.values() if len(each) > 1]
        if len(several) > 1 and _agree(several) and sum(map(len, members.values())) == len(numbers):
            ways.append((len(members), rank, name))
    return min(ways)[2] if ways else None


def _groups(
    numbers: Sequence[int], owners: Sequence[Owner]
) -> dict[Frequency, dict[int, Hashable]]:
    return {
        "day": {n: None if (at := owners[n].at) is None else at // _DAY_SECONDS for n in numbers},
        "user": {n: owners[n].user for n in numbers},
        "session": {n: owners[n].session for n in numbers},
    }


def _agree(groups: Sequence[Sequence[Hashable]]) -> bool:
    """Is one value most of each group?"""
    same = sum(max(map(list(group).count, set(group))) for group in groups)
    return same >= _AGREE_RATIO * sum(map(len, groups))


def _single_change(values: Sequence[Hashable]) -> int | None:
    """Where the only change is; None where there are more, or too few on either side."""
    first, last = values[:1], values[-1:]
    if len(set(values)) != 2 or first == last:
        return None
    is_new = [value == last[0] for value in values]
    # How many stand on the wrong side of a change at each place.
    wrong = len(is_new) - sum(is_new)
    at, least = 0, wrong
    for place, new in enumerate(is_new, 1):
        wrong += 1 if new else -1
        if wrong < least:
            at, least = place, wrong
    too_few = min(at, len(values) - at) < _LEAST_ON_A_SIDE
    return None if too_few or least > (1 - _AGREE_RATIO) * len(values) else at
