"""What is planned to happen, in a heap: by time, and then by the order in which it was planned."""

from typing import NamedTuple

import numpy as np

from replay.compiled import part
from replay.traffic import Numbers, Small


class Events(NamedTuple):
    """A heap of ends to come, by time and then by the order in which they were planned."""

    time: Numbers
    order: Numbers
    request: Small
    counts: Numbers  # in the heap, planned


def empty_events(requests: int) -> Events:
    size = requests + 1
    return Events(
        time=np.empty(size, np.int64),
        order=np.empty(size, np.int64),
        request=np.empty(size, np.int32),
        counts=np.zeros(2, np.int64),
    )


@part
def plan(events: Events, time: int, request: int) -> None:
    """Put the end of a stage of a request into the heap."""
    at, order = events.counts[0], events.counts[1]
    events.counts[0] += 1
    events.counts[1] += 1
    while at > 0:
        parent = (at - 1) // 2
        if events.time[parent] <= time:  # planned earlier, so first where times agree
            break
        _move(events, parent, at)
        at = parent
    events.time[at] = time
    events.order[at] = order
    events.request[at] = request


@part
def take_next(events: Events) -> int:
    """Take the first out of the heap."""
    found = events.request[0]
    events.counts[0] -= 1
    count = events.counts[0]
    time, order = events.time[count], events.order[count]
    request = events.request[count]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _is_before(
            events, child + 1, events.time[child], events.order[child]
        ):
            child += 1
        if not _is_before(events, child, time, order):
            break
        _move(events, child, at)
        at = child
    events.time[at] = time
    events.order[at] = order
    events.request[at] = request
    return int(found)


@part
def _is_before(events: Events, at: int, time: int, order: int) -> bool:
    here = events.time[at]
    return bool(here < time or (here == time and events.order[at] < order))


@part
def _move(events: Events, source: int, target: int) -> None:
    events.time[target] = events.time[source]
    events.order[target] = events.order[source]
    events.request[target] = events.request[source]
