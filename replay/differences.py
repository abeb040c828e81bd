"""Two arms on the same requests: what differs, and how surely.

Intervals come from resampling stretches of the traffic, as requests of one minute are not
independent of each other.
"""

import math
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
    hundred not above it.

    Where that is is found among cells of values in ascending order, and then within one, as going
    through all values for every resample would take most of the time of an experiment.
    """
    order, stretches = np.argsort(values), times.shape[1]
    size = math.isqrt(len(values)) + 1
    cells = -(-len(values) // size)
    # What fills the last cell is of a stretch that nobody draws.
    own = np.full(cells * size, stretches)
    own[: len(values)] = label[order]
    weights = np.ones((len(times) + 1, stretches + 1))
    weights[1:, :-1], weights[:, -1] = times, 0
    place = np.arange(len(own)) // size * (stretches + 1) + own
    inside = np.bincount(place, minlength=cells * (stretches + 1)).reshape(cells, -1)
    # Not by `@`, which would wake a thread on every core for it.
    ahead = np.einsum("rs,cs->rc", weights, np.cumsum(inside, axis=0).astype(np.float64))
    wanted = np.array(PERCENTILES) / 100 * ahead[:, -1:]
    cell = (ahead[:, None, :] < wanted[:, :, None]).sum(axis=2)
    row = np.arange(len(weights))[:, None]
    before = np.where(cell > 0, ahead[row, cell - 1], 0)
    members = weights[row[:, :, None], own.reshape(cells, size)[cell]]
    reached = before[:, :, None] + np.cumsum(members, axis=2) >= wanted[:, :, None]
    found: Seconds = values[order][cell * size + reached.argmax(axis=2)]
    return found
