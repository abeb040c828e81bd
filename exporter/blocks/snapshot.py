"""What /metrics shows of the caches: totals since this exporter started, and how things stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CacheSnapshot:
    """One cache. Totals never fall; `resident_*` is how things stand, `uncertain` why that may
    be wrong (None = it is right).

    Histograms: bucket i holds ages in [1.08^i, 1.08^(i+1)) seconds, counts of blocks; the sums
    beside them are of the same ages. `resets` is empty on tiers other than device, so that
    nobody counts one reset twice.
    """

    source: str
    replica: str
    model: str | None
    tier: str
    block_size: int | None
    stored_blocks: int
    evicted_blocks: int
    demoted_blocks: int
    promoted_blocks: int
    reset_blocks: int
    resets: Mapping[str, int]
    resident_blocks: int
    resident_tokens: int
    uncertain: str | None
    lifetime: Mapping[int, int]
    lifetime_seconds: float
    evicted_reuse_gap: Mapping[int, int]
    evicted_reuse_gap_seconds: float


@dataclass(frozen=True)
class StreamSnapshot:
    """One publisher's stream of events."""

    source: str
    replica: str
    connected: bool
    missed_batches: int
    uncertain: str | None


@dataclass(frozen=True)
class BlocksSnapshot:
    """All of them. `copies`: model ('' if not known) -> (different blocks, blocks) on devices,
    as of the last drain; only caches whose blocks have names of our own are in it."""

    caches: Sequence[CacheSnapshot] = ()
    streams: Sequence[StreamSnapshot] = ()
    copies: Mapping[str, tuple[int, int]] | None = None
