"""Two arms on the same requests: what differs, and how surely.

Intervals come from resampling stretches of the traffic, as requests of one minute are not
independent of each other.
"""

from dataclasses import dataclass

import numpy as np

from replay.serving import PERCENTILES, Outcome
from replay.traffic import Flags, Numbers, Seconds

PREFILL = "prefill_seconds"
_STRETCHES, _RESAMPLES, _INTERVAL = 100, 200, (2.5, 97.5)
# Of fewer requests an interval says nothing.
_FEWEST_STRETCHES = 10


@dataclass(frozen=True)
class Difference:
    """`arm` less `base` in one figure, and where it lies in 95 of 100 resamples."""

    arm: str
    base: str
    figure: str
    change: float
    low: float
    high: float


def differences(
    arm: str, served: Outcome, base: str, other: Outcome, which: Flags, seed: int = 1
) -> list[Difference]:
    """Prefill seconds, and TTFT by percentile, of those of some requests that both served; none
    where there are few, or without a clock."""
    both = which & ~served.refused & ~other.refused
    own, others = served.times, other.times
    if own is None or others is None or int(both.sum()) < _FEWEST_STRETCHES:
        return []
    label = _stretches(int(both.sum()))
    prefill = (own.prefill - others.prefill)[both]
    times = _draws(int(label[-1]) + 1, seed)
    sums: Seconds = times.astype(np.float64) @ np.bincount(label, prefill)
    found = [_difference(arm, base, PREFILL, float(prefill.sum()), sums)]
    mine, theirs = (_percentiles(each.ttft[both], label, times) for each in (own, others))
    for place, percentile in enumerate(PERCENTILES):
        change = mine[:, place] - theirs[:, place]
        name = f"ttft_p{percentile}_seconds"
        found.append(_difference(arm, base, name, float(change[0]), change[1:]))
    return found


def _difference(arm: str, base: str, figure: str, change: float, resampled: Seconds) -> Difference:
    low, high = np.percentile(resampled, _INTERVAL).tolist()
    return Difference(arm, base, figure, change, low, high)


def _stretches(requests: int) -> Numbers:
    """The stretch of the traffic that each request belongs to."""
    return np.arange(requests) * min(_STRETCHES, requests) // requests


def _draws(stretches: int, seed: int) -> Numbers:
    """How often each stretch is in each resample: as many are drawn as there are, with
    replacement."""
    drawn = np.random.default_rng(seed).multinomial(
        stretches, [1 / stretches] * stretches, _RESAMPLES
    )
    return drawn.astype(np.int64)


def _percentiles(values: Seconds, label: Numbers, times: Numbers) -> Seconds:
    """Of the values, in the first row, and of every resample: the least value with so many of a
    hundred not above it."""
    order = np.argsort(values)
    ascending, own = values[order], label[order]
    found = np.empty((len(times) + 1, len(PERCENTILES)))
    for row, weight in enumerate((np.ones(len(times[0]), np.int64), *times)):
        ahead = np.cumsum(weight[own])
        wanted = np.array(PERCENTILES) / 100 * ahead[-1]
        found[row] = ascending[np.searchsorted(ahead, wanted)]
    return found
