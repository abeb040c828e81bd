"""Ages of blocks as log-spaced histograms, and what one minute did to a cache."""

import math
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from exporter.store.rollup import BUCKET_RATIO

Seconds = npt.NDArray[np.float64]

# Events have the time of their batch: nothing is told apart below this.
SHORTEST_SECONDS = 0.001
_LOWEST = math.floor(math.log(SHORTEST_SECONDS) / math.log(BUCKET_RATIO))
_LOG_RATIO = math.log(BUCKET_RATIO)


class Ages:
    """How many blocks had which age: bucket i holds [1.08^i, 1.08^(i+1)) seconds. Ages below a
    millisecond, and negative ones of a clock that was set back, count as one millisecond."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.seconds = 0.0

    def add(self, ages: Seconds) -> None:
        if not len(ages):
            return
        ages = np.maximum(ages, SHORTEST_SECONDS)
        self.seconds += float(ages.sum())
        buckets = np.floor(np.log(ages) / _LOG_RATIO).astype(np.int64)
        counted = np.bincount(buckets - _LOWEST)
        for place in np.nonzero(counted)[0].tolist():
            bucket = place + _LOWEST
            self.counts[bucket] = self.counts.get(bucket, 0) + int(counted[place])

    def merge(self, other: "Ages") -> None:
        self.seconds += other.seconds
        for bucket, blocks in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + blocks


@dataclass
class Tally:
    """What happened to one cache in one minute, in blocks. `resident_blocks` after the last of
    it, `heard` then; `live`: heard when it happened, not replayed later. Ages are of blocks of
    which no copy is left."""

    stored: int = 0
    evicted: int = 0
    demoted: int = 0
    promoted: int = 0
    reset: int = 0
    never_reused: int = 0
    reuse_known: int = 0
    lifetime: Ages = field(default_factory=Ages)
    idle: Ages = field(default_factory=Ages)
    reuse_gap: Ages = field(default_factory=Ages)
    evicted_reuse_gap: Ages = field(default_factory=Ages)
    resident_blocks: int = 0
    heard: datetime | None = None
    live: bool = True

    def merge(self, other: "Tally") -> None:
        """Add what happened; how things stood afterwards stays."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _AGES:
            getattr(self, name).merge(getattr(other, name))


_AGES = ("lifetime", "idle", "reuse_gap", "evicted_reuse_gap")
_COUNTS = (
    "stored", "evicted", "demoted", "promoted", "reset", "never_reused", "reuse_known",
)  # fmt: skip
