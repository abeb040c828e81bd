"""Two arms on the same requests: what differs, and how surely.

Intervals come from resampling stretches of the traffic, as requests of one minute are not
independent of each other.
"""

from dataclasses import dataclass, field

import numpy as np

from replay.serving import PERCENTILES, Outcome, Times
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


@dataclass
class Resamples:
    """The same resamples of the same requests for all arms that are compared; what one arm comes
    to in them is worked out once."""

    which: Flags
    seed: int
    _times: dict[int, Numbers] = field(default_factory=dict)
    _percentiles: dict[tuple[str, bytes], Seconds] = field(default_factory=dict)

    def differences(self, arm: str, served: Outcome, base: str, other: Outcome) -> list[Difference]:
        """Prefill seconds, and TTFT by percentile, of the requests that both served; none where
        these are few, or without a clock."""
        both = self.which & ~served.refused & ~other.refused
        count = int(both.sum())
        if served.times is None or other.times is None or count < _FEWEST_STRETCHES:
            return []
        prefill = (served.times.prefill - other.times.prefill)[both]
        label, times = self._drawn(count)
        sums: Seconds = times.astype(np.float64) @ np.bincount(label, prefill)
        found = [_difference(arm, base, PREFILL, float(prefill.sum()), sums)]
        mine = self._ttft(arm, served.times, both)
        theirs = self._ttft(base, other.times, both)
        for percentile, change in zip(PERCENTILES, (mine - theirs).T, strict=True):
            name = f"ttft_p{percentile}_seconds"
            found.append(_difference(arm, base, name, float(change[0]), change[1:]))
        return found

    def _drawn(self, count: int) -> tuple[Numbers, Numbers]:
        """The stretch of each request, and how often each is in each resample."""
        label = np.arange(count) * min(_STRETCHES, count) // count
        stretches = int(label[-1]) + 1
        if stretches not in self._times:
            self._times[stretches] = _draws(stretches, self.seed)
        return label, self._times[stretches]

    def _ttft(self, arm: str, times: Times, both: Flags) -> Seconds:
        key = (arm, both.tobytes())
        if key not in self._percentiles:
            label, drawn = self._drawn(int(both.sum()))
            self._percentiles[key] = _percentiles(times.ttft[both], label, drawn)
        return self._percentiles[key]


def _difference(arm: str, base: str, figure: str, change: float, resampled: Seconds) -> Difference:
    low, high = np.percentile(resampled, _INTERVAL).tolist()
    return Difference(arm, base, figure, change, low, high)


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
