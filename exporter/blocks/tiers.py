"""All caches of one replica (data-parallel rank included): its tiers, and of each the one group
of layers that stands for all.

A hybrid model stores the same tokens once in every group of layers; only one group is kept, that
of full attention where there is one, else the lowest number.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from exporter.blocks.chains import Chains
from exporter.blocks.naming import Naming
from exporter.blocks.residency import Residency
from exporter.blocks.wire import REMOVED, STORED, Batch, Hash, tier_of, unsigned_hash
from exporter.records import TIERS, Tier

# Operations that gather before they are applied together.
FLUSH_OPERATIONS = 16_384
# Tiers whose content outlives the engine's process.
_PERSISTENT: tuple[Tier, ...] = ("disk", "remote")
NEVER_STORED = "blocks left that were never seen coming: events are missing"
ABOVE_CAPACITY = "more blocks than the engine has room for: events are missing"
_RESTARTED = "the engine restarted; what this tier kept is not told"
_CLEARED = "the engine's cache was cleared; whether this tier was is not told"


@dataclass(frozen=True)
class Reset:
    """A cache lost all it held. `ts`: seconds since the epoch; `live`: heard when it happened."""

    ts: float
    tier: Tier
    reason: str
    blocks: int
    live: bool


@dataclass
class _Group:
    """The group of layers that stands for a tier."""

    index: int
    preference: int  # 0 = full attention, 1 = not said, 2 = another kind
    cache: Residency


def _preference(kind: str | None) -> int:
    if kind is None:
        return 1
    return 0 if "full" in kind or "mla" in kind else 2


class Tiers:
    """One replica's caches. Batches are applied in order; `flush` before figures are read."""

    def __init__(
        self,
        chains: Chains | None,
        live_seconds: float = math.inf,
        remember_seconds: float = 0.0,
    ) -> None:
        self._remember_seconds = remember_seconds
        self._naming = None if chains is None else Naming(chains)
        self._live_seconds = live_seconds
        self._live = True
        self._groups: dict[Tier, _Group] = {}
        self._by_medium: dict[str | None, Tier | None] = {}
        self._doubt: str | None = None
        self._tier_doubts: dict[Tier, str | None] = {}
        self._only_unseen = False
        self._minute = 0
        self._previous_ts: float | None = None
        self._heard = datetime.fromtimestamp(0, UTC)
        self._asleep = self._clear_due = False
        self.capacity_blocks: int | None = None
        self.resets: list[Reset] = []
        self.unknown_events = 0

    # ------------------------------------------------------------------ how things stand

    def caches(self) -> Iterator[tuple[Tier, Residency]]:
        """Tiers that were heard of, the fastest first."""
        for tier in TIERS:
            if tier in self._groups:
                yield tier, self._groups[tier].cache

    def uncertain(self, tier: Tier) -> str | None:
        """Why the state of a tier may be wrong; None = it is right."""
        return self._tier_doubts.get(tier, self._doubt)

    def block_size(self, tier: Tier) -> int | None:
        """Tokens a block; placeholders do not say it, and are taken for the device's."""
        sizes = [self._groups[each].cache.block_size for each in (tier, "device")
                 if each in self._groups]  # fmt: skip
        return next((size for size in sizes if size), None)

    def doubt(self, reason: str, only_unseen: bool = False) -> None:
        """From now on the state of every tier may be wrong. `only_unseen`: nothing in it is, but
        there may be blocks that were stored before."""
        self._doubt, self._tier_doubts = reason, {}
        self._only_unseen = only_unseen

    # ------------------------------------------------------------------ what happens

    def apply(self, batch: Batch, heard: datetime) -> None:
        """Take one batch in. What waits always lies in one minute, and is all live or all not."""
        minute = int(batch.ts // 60)
        live = heard.timestamp() - batch.ts <= self._live_seconds
        if (minute, live) != (self._minute, self._live):
            self.flush()
            self._minute, self._live = minute, live
            for _, cache in self.caches():
                cache.live = live
        self._heard = heard
        self.unknown_events += batch.unknown_events
        ts = batch.ts
        run: list[Hash] | None = None
        place: tuple[str | None, int | None] = (None, None)
        for number, event in enumerate(batch.events):
            kind = type(event)
            if kind in REMOVED:
                if run is None or (event.medium, event.group_idx) != place:
                    run, place = self._removing(event, ts), (event.medium, event.group_idx)
                run += event.block_hashes
                continue
            run = None
            if kind in STORED:
                self._store(event, ts)
            else:
                self._clear(ts, first=number == 0)
        self._previous_ts = ts
        self._clear_due = False
        if self.waiting >= FLUSH_OPERATIONS:
            self.flush()

    @property
    def waiting(self) -> int:
        """Operations not yet applied."""
        return sum(len(group.cache.pending) for group in self._groups.values())

    def _tier(self, medium: str | None) -> Tier | None:
        if medium not in self._by_medium:
            # Words come from outside: only so many are remembered.
            if len(self._by_medium) > 64:
                self._by_medium.clear()
            self._by_medium[medium] = tier_of(medium)
        return self._by_medium[medium]

    def _removing(self, event: Any, ts: float) -> list[Hash]:  # noqa: ANN401 - either form
        """Where to add the hashes of a removal, and of those that follow it from the same place."""
        tier = self._tier(event.medium)
        if tier is None:
            self.unknown_events += 1
            return []
        group = self._groups.get(tier)
        if group is None:
            group = self._begin(tier, event.group_idx or 0, 1)
        return group.cache.pending.removing(ts) if group.index == (event.group_idx or 0) else []

    def _store(self, event: Any, ts: float) -> None:  # noqa: ANN401 - any of four classes
        tier = self._tier(event.medium)
        if tier is None:
            self.unknown_events += 1
            return
        group = self._groups.get(tier)
        index, preference = event.group_idx or 0, _preference(event.kv_cache_spec_kind)
        if group is None or (preference, index) < (group.preference, group.index):
            group = self._begin(tier, index, preference)
        if group.index != index:
            return
        cache = group.cache
        if event.block_size > 0:
            cache.block_size = event.block_size
        parent = event.parent_block_hash
        parent = None if parent is None else unsigned_hash(parent)
        if self._naming is None:
            chained = event.block_size > 0
            cache.pending.store(event.block_hashes, ts, parent, chained=chained)
        else:
            others = [each for _, each in self.caches() if each is not cache]
            self._naming.store(event, ts, parent, cache, others)

    def _begin(self, tier: Tier, index: int, preference: int) -> _Group:
        """A tier's first group, or a better one: what was counted stays counted."""
        cache = Residency(self._naming is not None, self._remember_seconds)
        cache.live = self._live
        old = self._groups.get(tier)
        if old is not None:
            # What waits there is told by the better group too.
            cache.tallies = old.cache.tallies
            cache.uses_known_since = old.cache.uses_known_since
        self._groups[tier] = _Group(index, preference, cache)
        return self._groups[tier]

    def flush(self) -> None:
        """Apply what waits: lower tiers first, so that a block that moved down is found there."""
        caches = [cache for _, cache in self.caches()]
        for place in reversed(range(len(caches))):
            cache, lower = caches[place], caches[place + 1 :]
            cache.flush(lower, self._heard)
        if self._naming is not None:
            self._naming.applied()
        for tier, cache in self.caches():
            if cache.unknown_removals and self.uncertain(tier) is None:
                self._tier_doubts[tier] = NEVER_STORED
            cache.unknown_removals = 0
        self._check_capacity()

    def _check_capacity(self) -> None:
        """Too many blocks prove that removals were missed: what is known to be wrong is dropped.
        As many as there is room for prove that there are no others."""
        device = self._groups.get("device")
        if device is None or not self.capacity_blocks:
            return
        if device.cache.resident_blocks > self.capacity_blocks:
            self._reset("device", self._previous_ts or 0.0, "lost_events")
            self._tier_doubts["device"] = ABOVE_CAPACITY
        elif device.cache.resident_blocks == self.capacity_blocks and self._only_unseen:
            self._tier_doubts["device"] = None

    def decide(self) -> None:
        """Nothing more is on its way: judge what waited for its copy further down."""
        caches = [cache for _, cache in self.caches()]
        for place, cache in enumerate(caches):
            cache.decide(float("inf"), caches[place + 1 :])

    def forget_counts(self) -> None:
        """What was counted since it was last taken was told before."""
        for _, cache in self.caches():
            cache.tallies.clear()
        self.resets.clear()

    # ------------------------------------------------------------------ resets

    def _clear(self, ts: float, first: bool) -> None:
        """An engine publishes a clear with the batch after it: it happened when the batch before
        was over. Of lower tiers it says nothing."""
        if first and self._previous_ts is not None:
            ts = min(ts, self._previous_ts)
        self.flush()
        device = self._groups.get("device")
        if not self._clear_due or (device and device.cache.resident_blocks):
            self._reset("device", ts, "clear")
        self._tier_doubts["device"] = None
        for tier, _ in self.caches():
            if tier != "device" and self.uncertain(tier) is None:
                self._tier_doubts[tier] = _CLEARED

    def sleep(self, sampled: datetime) -> None:
        """The engine sleeps: its device cache is gone. Said again while it sleeps, nothing. The
        clear that goes with it is published on waking up."""
        ts = sampled.timestamp()
        if self._asleep or ts < (self._previous_ts or 0.0):
            return
        self.flush()
        self._heard = sampled
        self._be_live()
        self._reset("device", ts, "sleep")
        self._asleep = self._clear_due = True
        self._tier_doubts["device"] = None

    def wake(self) -> None:
        """The engine is awake."""
        self._asleep = False

    def restart(self, heard: datetime) -> None:
        """The process is another one: device and host memory are gone."""
        self.flush()
        self._heard, ts = heard, heard.timestamp()
        self._be_live()
        kept = [tier for tier in _PERSISTENT if tier in self._groups]
        gone: Sequence[Tier] = [tier for tier, _ in self.caches() if tier not in kept]
        for tier in gone or ("device",):
            self._reset(tier, ts, "restart")
        self._doubt = None
        self._tier_doubts = dict.fromkeys(kept, _RESTARTED)
        self._previous_ts = None
        self._only_unseen = self._asleep = self._clear_due = False

    def _be_live(self) -> None:
        """What follows was told by something else than a batch, just now."""
        self._live = True
        for _, cache in self.caches():
            cache.live = True

    def _reset(self, tier: Tier, ts: float, reason: str) -> None:
        group = self._groups.get(tier)
        blocks = group.cache.reset(ts, self._heard) if group else 0
        self.resets.append(Reset(ts, tier, reason, blocks, self._live))
