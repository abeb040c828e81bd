"""One publisher as the tracker keeps it: its place in the stream, its caches, its totals."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from exporter.blocks.ages import Tally
from exporter.blocks.chains import Chains
from exporter.blocks.order import Order, StreamName
from exporter.blocks.residency import DEMOTION_WINDOW_SECONDS
from exporter.blocks.rows import BlockMinute, BlockReset, BlockStream, Renamed
from exporter.blocks.snapshot import CacheSnapshot, StreamSnapshot
from exporter.blocks.tiers import Tiers
from exporter.blocks.wire import Batch
from exporter.records import Tier
from replay.counted import counted

UNREADABLE = "a batch could not be read"
SHARED_NAME = (
    "streams of several models go by this replica's name: what they tell cannot be told apart; "
    "give each a name of its own"
)
# Numbers out of the blue must not outgrow what the store can hold.
MOST_BATCHES = 2**62
_COUNTS = ("batches", "missed_batches", "replayed_batches", "restarts", "unreadable_batches")
_LAST = ("last_heard", "last_sequence", "last_batch_ts")


@dataclass
class Totals:
    """Of one tier since this exporter started; what was only replayed is not in them."""

    tally: Tally = field(default_factory=Tally)
    resets: dict[str, int] = field(default_factory=dict)


class Publisher:
    """Counts of batches, and the rows of one publisher under the name `replica`, which the
    tracker gives: it depends on which ranks are heard."""

    def __init__(
        self,
        stream: StreamName,
        chains: Chains | None,
        live_seconds: float,
        remember_seconds: float = 0.0,
    ) -> None:
        self.stream = stream
        self.order = Order()
        self.tiers = Tiers(chains, live_seconds, remember_seconds)
        self.rank = stream.rank
        self.first_heard: datetime | None = None
        self.last_heard: datetime | None = None
        self.batches = self.missed_batches = self.replayed_batches = 0
        self.restarts = self.unreadable_batches = 0
        self.is_connected = False
        self.shares_name = False
        self._totals: dict[Tier, Totals] = {}
        # What an earlier run told of this stream, and whether nothing newer was heard yet.
        self._earlier: BlockStream | None = None
        self.rebuilds = False
        # The name its rows have in the store.
        self._known_as: str | None = None
        self._stood: dict[Tier, int] = {}
        self._last_ts = 0.0

    # ------------------------------------------------------------------ what is heard

    def recall(self, earlier: BlockStream | None) -> None:
        """An earlier run told this of the stream: batches up to there build the state again, and
        tell nothing. None changes nothing."""
        if earlier is not None:
            self._earlier, self._known_as = earlier, earlier.replica
            self.rebuilds = earlier.last_sequence is not None

    def take(self, sequence: int, batch: Batch | None, heard: datetime, replayed: bool) -> None:
        """A batch whose turn it is; None = it could not be read."""
        if self.rebuilds and not self._is_known(sequence, batch):
            self.tell(math.inf if batch is None else batch.ts)
        self.last_heard = heard
        if not self.rebuilds:
            self.first_heard = self.first_heard or heard
            self.batches += 1
            self.replayed_batches += replayed
            self.unreadable_batches += batch is None
        if batch is None:
            self.tiers.doubt(UNREADABLE)
            return
        self._last_ts = max(self._last_ts, batch.ts)
        self.tiers.apply(batch, heard)

    def _is_known(self, sequence: int, batch: Batch | None) -> bool:
        """Another process of the publisher uses the same numbers, but later."""
        earlier = self._earlier
        if earlier is None or sequence > (earlier.last_sequence or 0):
            return False
        # The store keeps microseconds.
        latest = 0.0 if earlier.last_batch_ts is None else earlier.last_batch_ts.timestamp() + 1e-5
        return batch is None or batch.ts <= latest

    def tell(self, ts: float) -> None:
        """The rebuilding is over: what comes from this moment on was never told."""
        if not self.rebuilds:
            return
        self.tiers.flush()
        if ts > self._last_ts + DEMOTION_WINDOW_SECONDS:
            # The earlier run had time to judge what left.
            self.tiers.decide()
        self.tiers.forget_counts()
        self.rebuilds = False

    def restart(self, heard: datetime) -> None:
        """The publisher's process is another one."""
        self.tell(heard.timestamp())
        self.restarts += 1
        self._last_ts = 0.0
        self.tiers.restart(heard)

    def uncertain(self, tier: Tier = "device") -> str | None:
        """Why a tier's state may be wrong; batches that a replay may still bring are a reason."""
        if self.shares_name:
            return SHARED_NAME
        missing = self.order.missing
        if missing:
            batches = counted(missing.stop - missing.start, "batch is", "batches are")
            return f"{batches} missing before {missing.stop}"
        return self.tiers.uncertain(tier)

    def is_quiet(self, now: datetime) -> bool:
        """Whether no batch came for so long that no copy can still be under way."""
        return (
            self.last_heard is None
            or (now - self.last_heard).total_seconds() > DEMOTION_WINDOW_SECONDS
        )

    # ------------------------------------------------------------------ rows

    def take_minutes(self, replica: str) -> Iterator[BlockMinute]:
        """What happened since the last call, a row for every minute and tier, and forget it."""
        if self.rebuilds:
            self.tiers.forget_counts()
        for tier, cache in self.tiers.caches():
            totals = self._totals.setdefault(tier, Totals())
            for (minute, _), tally in sorted(cache.tallies.items()):
                if tally.live:
                    totals.tally.merge(tally)
                yield self._minute(replica, tier, minute, tally)
            cache.tallies.clear()

    def stand(self, replica: str, now: datetime) -> Iterator[BlockMinute]:
        """How the caches stand at this moment, where the store does not know yet: built again from
        what was told before, they have told nothing."""
        for tier, cache in self.tiers.caches():
            if self._stood.get(tier) != cache.resident_blocks:
                self._stood[tier] = cache.resident_blocks
                yield self._nothing(replica, tier, now, cache.resident_blocks)

    def end(self, replica: str, now: datetime) -> Iterator[BlockMinute]:
        """Nobody will tell of the caches any more: from this moment on they hold nothing."""
        for tier, _ in self.tiers.caches():
            yield replace(self._nothing(replica, tier, now, 0), uncertain=None)

    def _nothing(self, replica: str, tier: Tier, now: datetime, resident: int) -> BlockMinute:
        """A row in which nothing happened."""
        tally = Tally(resident_blocks=resident, heard=now)
        return self._minute(replica, tier, int(now.timestamp() // 60), tally)

    def _minute(self, replica: str, tier: Tier, minute: int, tally: Tally) -> BlockMinute:
        size = self.tiers.block_size(tier)
        return BlockMinute(
            minute=datetime.fromtimestamp(minute * 60, UTC),
            heard=tally.heard or self.last_heard or datetime.fromtimestamp(minute * 60, UTC),
            source=self.stream.source,
            replica=replica,
            model=self.stream.model,
            tier=tier,
            block_size=size,
            stored_blocks=tally.stored,
            evicted_blocks=tally.evicted,
            demoted_blocks=tally.demoted,
            promoted_blocks=tally.promoted,
            reset_blocks=tally.reset,
            never_reused_blocks=tally.never_reused,
            reuse_known_blocks=tally.reuse_known,
            resident_blocks=tally.resident_blocks,
            resident_tokens=tally.resident_blocks * (size or 0),
            uncertain=self.uncertain(tier),
            lifetime=tally.lifetime.counts,
            idle=tally.idle.counts,
            reuse_gap=tally.reuse_gap.counts,
            evicted_reuse_gap=tally.evicted_reuse_gap.counts,
        )

    def take_resets(self, replica: str) -> Iterator[BlockReset]:
        for reset in self.tiers.resets:
            if reset.live:
                totals = self._totals.setdefault(reset.tier, Totals())
                totals.resets[reset.reason] = totals.resets.get(reset.reason, 0) + 1
            yield BlockReset(
                ts=datetime.fromtimestamp(reset.ts, UTC),
                source=self.stream.source,
                replica=replica,
                model=self.stream.model,
                tier=reset.tier,
                reason=reset.reason,
                blocks=reset.blocks,
            )
        self.tiers.resets.clear()

    def take_renamed(self, replica: str) -> Iterator[Renamed]:
        """The name its rows had until now, where that was another one."""
        if self._known_as not in (None, replica):
            yield Renamed(self.stream.source, self.stream.model, str(self._known_as), replica)
        self._known_as = replica

    def row(self, replica: str) -> BlockStream:
        row = self._own_row(replica)
        earlier = self._earlier
        if earlier is None:
            return row
        counts = {
            name: min(getattr(row, name) + getattr(earlier, name), MOST_BATCHES) for name in _COUNTS
        }
        row = replace(row, first_heard=earlier.first_heard or row.first_heard, **counts)
        if not self.rebuilds:
            return row
        return replace(row, **{name: getattr(earlier, name) for name in _LAST})

    def _own_row(self, replica: str) -> BlockStream:
        return BlockStream(
            source=self.stream.source,
            replica=replica,
            model=self.stream.model,
            first_heard=self.first_heard,
            last_heard=self.last_heard,
            last_sequence=self.order.last,
            last_batch_ts=datetime.fromtimestamp(self._last_ts, UTC) if self._last_ts else None,
            batches=self.batches,
            missed_batches=self.missed_batches,
            replayed_batches=self.replayed_batches,
            restarts=self.restarts,
            unreadable_batches=self.unreadable_batches,
            connected=self.is_connected,
            uncertain=self.uncertain(),
        )

    # ------------------------------------------------------------------ snapshot

    def snapshot(self, replica: str) -> StreamSnapshot:
        return StreamSnapshot(
            self.stream.source, replica, self.is_connected, self.missed_batches, self.uncertain()
        )

    def cache_snapshots(self, replica: str) -> Iterator[CacheSnapshot]:
        for tier, cache in self.tiers.caches():
            totals = self._totals.get(tier) or Totals()
            tally = Tally()
            for each in (totals.tally, *cache.tallies.values()):
                if each.live:
                    tally.merge(each)
            resets = dict(totals.resets)
            for reset in self.tiers.resets:
                if reset.tier == tier and reset.live:
                    resets[reset.reason] = resets.get(reset.reason, 0) + 1
            yield CacheSnapshot(
                source=self.stream.source,
                replica=replica,
                model=self.stream.model,
                tier=tier,
                block_size=self.tiers.block_size(tier),
                stored_blocks=tally.stored,
                evicted_blocks=tally.evicted,
                demoted_blocks=tally.demoted,
                promoted_blocks=tally.promoted,
                reset_blocks=tally.reset,
                resets=resets if tier == "device" else {},
                resident_blocks=cache.resident_blocks,
                resident_tokens=cache.resident_blocks * (self.tiers.block_size(tier) or 0),
                uncertain=self.uncertain(tier),
                lifetime=tally.lifetime.counts,
                lifetime_seconds=tally.lifetime.seconds,
                evicted_reuse_gap=tally.evicted_reuse_gap.counts,
                evicted_reuse_gap_seconds=tally.evicted_reuse_gap.seconds,
            )
