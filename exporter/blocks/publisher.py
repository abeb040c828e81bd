"""One publisher as the tracker keeps it: its place in the stream, its caches, its totals."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from exporter.blocks.ages import Tally
from exporter.blocks.chains import Chains
from exporter.blocks.order import Order, StreamName
from exporter.blocks.residency import DEMOTION_WINDOW_SECONDS
from exporter.blocks.rows import BlockMinute, BlockReset, BlockStream
from exporter.blocks.snapshot import CacheSnapshot, StreamSnapshot
from exporter.blocks.tiers import Tiers
from exporter.records import Tier


@dataclass
class Totals:
    """Of one tier since this exporter started; what was only replayed is not in them."""

    tally: Tally = field(default_factory=Tally)
    resets: dict[str, int] = field(default_factory=dict)


class Publisher:
    """Counts of batches, and the rows of one publisher under the name `replica`, which the
    tracker gives: it depends on which ranks are heard."""

    def __init__(self, stream: StreamName, chains: Chains | None, live_seconds: float) -> None:
        self.stream = stream
        self.order = Order()
        self.tiers = Tiers(chains, live_seconds)
        self.rank = stream.rank
        self.first_heard: datetime | None = None
        self.last_heard: datetime | None = None
        self.batches = self.missed_batches = self.replayed_batches = 0
        self.restarts = self.unreadable_batches = 0
        self.is_connected = False
        self._totals: dict[Tier, Totals] = {}

    def uncertain(self, tier: Tier = "device") -> str | None:
        """Why a tier's state may be wrong; batches that a replay may still bring are a reason."""
        missing = self.order.missing
        if missing:
            return f"{missing.stop - missing.start} batches are missing before {missing.stop}"
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
        for tier, cache in self.tiers.caches():
            totals = self._totals.setdefault(tier, Totals())
            for minute, tally in sorted(cache.tallies.items()):
                if tally.live:
                    totals.tally.merge(tally)
                yield self._minute(replica, tier, minute, tally)
            cache.tallies.clear()

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

    def row(self, replica: str) -> BlockStream:
        return BlockStream(
            source=self.stream.source,
            replica=replica,
            model=self.stream.model,
            first_heard=self.first_heard,
            last_heard=self.last_heard,
            last_sequence=self.order.last,
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
