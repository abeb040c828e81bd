"""When blocks became available and were lost, as places in the order of look-ups.

Instead of comparing times over and over, every moment becomes the number of the first request
that looked up at or after it: what is available *from* request 7 on serves requests 7, 8, …
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from replay.traffic import Moments, Numbers, Seconds, Small, Traffic, starts_of

# Later than every request.
NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Timeline:
    """The order of look-ups, and each replica's time cut at its resets into *stays*: what a
    cache holds lasts for one stay at most.

    `order` sorts the requests of the traffic; all other columns are in that order. `ready_from`
    and `ended_from`: the first request that looked up once the first token, the end was there.
    `stay`: of the replica at the look-up; `ready_stay`, `ended_stay`: at those moments.
    `stay_replica` and `stay_until` are columns of the stays; until: first request after it.
    """

    order: Numbers
    looked_up: Seconds
    ready: Seconds
    ended: Seconds
    ready_from: Small
    ended_from: Small
    replica: Numbers
    stay: Small
    ready_stay: Small
    ended_stay: Small
    stay_replica: Numbers
    stay_until: Small
    replicas: "Replicas"

    @classmethod
    def of(cls, traffic: Traffic, resets: Moments, gone: Moments, told: int = 0) -> "Timeline":
        """From the traffic's own times, or from its order where it has none. `told`: how many
        replicas there are at least."""
        count = len(traffic)
        looked_up = traffic.looked_up
        if looked_up is None:
            looked_up = np.arange(count, dtype=np.float64)
        order = np.argsort(looked_up, kind="stable")
        looked_up = looked_up[order]
        # Nobody knows how long such a prompt took, but no time at all is wrong: requests of the
        # same moment, as clocks of whole seconds have many, did not find its blocks.
        unknown = np.nextafter(looked_up, np.inf)
        ready = _later(traffic.ready, looked_up, order, unknown)
        ended = np.maximum(_later(traffic.ended, ready, order, ready), ready)
        replica = np.zeros(count, np.int64) if traffic.replica is None else traffic.replica[order]
        replicas = Replicas.of(replica, resets, gone, told)
        stay = replicas.stay_at(replica, looked_up, including=True)
        return cls(
            order=order,
            looked_up=looked_up,
            ready=ready,
            ended=ended,
            ready_from=_first_after(looked_up, ready, behind=True),
            ended_from=_first_after(looked_up, ended, behind=True),
            replica=replica,
            stay=stay,
            ready_stay=np.maximum(stay, replicas.stay_at(replica, ready)),
            ended_stay=np.maximum(stay, replicas.stay_at(replica, ended)),
            stay_replica=replicas.of_stays(),
            stay_until=_first_after(looked_up, replicas.ends()),
            replicas=replicas,
        )

    def first_from(self, moments: Seconds) -> Small:
        """The first request that looked up at each moment or later; NEVER where none did."""
        return _first_after(self.looked_up, moments)

    def first_after(self, moments: Seconds) -> Small:
        """The first request that looked up later than each moment; NEVER where none did."""
        return _first_after(self.looked_up, np.nextafter(moments, np.inf))

    @property
    def is_serial(self) -> bool:
        """Did every request come to its first token before the next looked up?"""
        behind = np.arange(1, len(self.order), dtype=np.int32)
        return bool((self.ready_from[:-1] == behind).all())

    @property
    def has_endings(self) -> bool:
        """Did any cache lose all it held?"""
        return bool((self.stay_until < NEVER).any())


@dataclass(frozen=True)
class Replicas:
    """Resets of all replicas, sorted by replica and time; `starts`: where those of each begin.

    Replica r has the stays `starts[r] + r` and on, one more than it has resets.
    """

    resets: Seconds
    starts: Numbers
    gone: Seconds

    @classmethod
    def of(cls, replica: Numbers, resets: Moments, gone: Moments, told: int = 0) -> "Replicas":
        known = np.concatenate([replica, resets.replica, gone.replica])
        count = max(told, int(known.max(initial=-1)) + 1)
        order = np.lexsort((resets.seconds, resets.replica))
        left = np.full(count, np.inf)
        np.minimum.at(left, gone.replica, gone.seconds)
        starts = starts_of(np.bincount(resets.replica, minlength=count))
        return cls(resets.seconds[order], starts, left)

    def stay_at(self, replica: Numbers, seconds: Seconds, including: bool = False) -> Small:
        """The stay of each replica at a moment; a reset at the very moment counts as past if
        `including`."""
        stays: Small = (self.starts[replica] + replica).astype(np.int32)
        if not len(self.resets):
            return stays
        side: Literal["left", "right"] = "right" if including else "left"
        for number in np.flatnonzero(np.diff(self.starts)).tolist():
            own = self.resets[self.starts[number] : self.starts[number + 1]]
            where = replica == number
            stays[where] += np.searchsorted(own, seconds[where], side=side)
        return stays

    def of_stays(self) -> Numbers:
        """The replica of every stay."""
        return np.repeat(np.arange(len(self.gone)), np.diff(self.starts) + 1)

    def ends(self) -> Seconds:
        """When every stay ended: at a reset, or when its replica was gone; infinity if neither."""
        replica = self.of_stays()
        ends = self.gone[replica]
        last = np.append(np.diff(replica) > 0, True)[: len(replica)]
        ends[~last] = np.minimum(ends[~last], self.resets)
        return ends


def _later(times: Seconds | None, than: Seconds, order: Numbers, otherwise: Seconds) -> Seconds:
    """A column of times in the order of look-ups, none before another; `otherwise` where not
    known."""
    if times is None:
        return otherwise
    sorted_times = times[order]
    return np.where(np.isnan(sorted_times), otherwise, np.maximum(sorted_times, than))


def _first_after(looked_up: Seconds, moments: Seconds, behind: bool = False) -> Small:
    """`behind`: the moments are the requests' own, which no request comes before."""
    found = np.searchsorted(looked_up, moments).astype(np.int32)
    if behind:
        found = np.maximum(found, np.arange(1, len(looked_up) + 1, dtype=np.int32))
    found[found >= len(looked_up)] = NEVER
    return found
