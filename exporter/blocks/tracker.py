"""The door to what caches hold: batches of events in, rows and a snapshot out."""

import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from exporter.blocks.chains import Chains
from exporter.blocks.contents import Contents, Holding
from exporter.blocks.held import HeldCache
from exporter.blocks.known import KnownStreams
from exporter.blocks.order import Heard, Order, StreamName, digest
from exporter.blocks.publisher import MOST_BATCHES, Publisher
from exporter.blocks.residency import Residency
from exporter.blocks.rows import BlockMinute, BlockReset, BlockStream, Drained, Renamed, UsedPrefix
from exporter.blocks.snapshot import BlocksSnapshot, CacheSnapshot, StreamSnapshot
from exporter.blocks.wire import BadBatch, Decoder
from exporter.records import EngineSample, Tier
from queries.times import as_utc
from replay.hashes import HASH_GRAIN_TOKENS, hash_key_id

__all__ = ["Heard", "StreamName", "Tracker"]

SEVERAL_RANKS = "batches of several data-parallel ranks come in one stream"


class Tracker:
    """All streams of one exporter. Safe to use from several threads; every call is short but
    `drain`, which looks through all that is resident, most of the time without the lock.

    `key` is the store's secret: with `chains`, blocks get names of our own made with it, which
    costs more than all the rest; without them there are no copies, no prefixes and no last uses
    by requests. Events older than `live_window` when they are heard (replayed) reach the rows, but
    not the totals of the snapshot, so that a rate of them stays true. What left a cache is
    remembered for `remember`, to tell what was held then.
    """

    def __init__(
        self,
        key: str,
        *,
        chains: bool = True,
        live_window: timedelta = timedelta(minutes=10),
        remember: timedelta = timedelta(),
    ) -> None:
        self._lock = threading.RLock()
        self._key, self._has_names = key, chains
        self._key_id = hash_key_id(key)
        self._live_seconds = live_window.total_seconds()
        self._remember_seconds = remember.total_seconds()
        self._decoder = Decoder(tokens=chains)
        self._publishers: dict[StreamName, Publisher] = {}
        self._leaving: list[Publisher] = []
        # Base names of replicas of which several ranks were heard.
        self._ranked: set[str] = set()
        self._contents = Contents(self._key_id)
        self._known = KnownStreams()

    def restore(self, streams: Iterable[BlockStream]) -> None:
        """What the store has of streams, before any is heard. Batches up to there, which a replay
        sends again, build the state and are not told again: neither in rows nor in totals."""
        with self._lock:
            self._known.remember(streams)

    # ------------------------------------------------------------------ from the streams

    def hear(
        self,
        stream: StreamName,
        sequence: int,
        payload: bytes,
        heard_at: datetime,
        replayed: bool = False,
    ) -> Heard:
        """Take one batch in. The meaning of the answer stands at `Heard`.

        GAP, and RESTARTED while something is `missing`: the batch is to be heard again after the
        missing ones, or after `give_up`.
        """
        with self._lock:
            publisher = self._publisher(stream)
            before = publisher.order.last
            expected = publisher.order.expected
            heard = publisher.order.place(sequence, digest(payload), replayed)
            if heard is Heard.RESTARTED:
                publisher.restart(heard_at)
                expected, before = 0, None
            if heard in (Heard.REPEATED, Heard.GAP) or publisher.order.last != sequence:
                return heard
            if before is not None:
                missed = publisher.missed_batches + sequence - expected
                publisher.missed_batches = min(missed, MOST_BATCHES)
            return self._apply(publisher, sequence, payload, heard_at, replayed) or heard

    def _apply(
        self,
        publisher: Publisher,
        sequence: int,
        payload: bytes,
        heard_at: datetime,
        replayed: bool,
    ) -> Heard | None:
        try:
            batch = self._decoder.decode(payload)
        except BadBatch:
            publisher.take(sequence, None, heard_at, replayed)
            return Heard.UNREADABLE
        self._see_rank(publisher, batch.rank)
        publisher.take(sequence, batch, heard_at, replayed)
        return None

    def _see_rank(self, publisher: Publisher, rank: int | None) -> None:
        if publisher.stream.rank is not None or rank is None or rank == publisher.rank:
            return
        if publisher.rank is not None:
            publisher.tiers.doubt(SEVERAL_RANKS)
            return
        publisher.rank = rank
        base = publisher.stream.replica
        earlier = self._known.of(publisher.stream, rank)
        publisher.recall(earlier)
        if earlier is not None and earlier.replica != base:
            self._ranked.add(base)
        ranks = {each.rank for each in self._publishers.values() if each.stream.replica == base}
        # One rank alone goes by the plain name: its metrics page, too, shows no other.
        if len(ranks - {None}) > 1:
            self._ranked.add(base)

    def missing(self, stream: StreamName) -> range:
        """The numbers to ask a replay for; empty while nothing waits for them."""
        with self._lock:
            return self._publisher(stream).order.missing

    def give_up(self, stream: StreamName, reason: str) -> None:
        """The missing batches will not come: the next one heard is applied, whatever its number,
        and the state is uncertain for that reason.

        Uncertain ends with a clear, a restart, or, where only the beginning was missed, when as
        many blocks are known as the engine has room for.
        """
        with self._lock:
            publisher = self._publisher(stream)
            publisher.tiers.doubt(reason, only_unseen=publisher.order.last is None)
            publisher.order.give_up()

    def lost(self, stream: StreamName, reason: str) -> None:
        """Events may have been lost that no number shows: the state is uncertain from now on."""
        with self._lock:
            self._publisher(stream).tiers.doubt(reason)

    def restarted(self, stream: StreamName, heard_at: datetime) -> None:
        """The publisher is known to be another process: its state is dropped, it counts from 0."""
        with self._lock:
            publisher = self._publisher(stream)
            publisher.order = Order()
            publisher.restart(heard_at)

    def malformed(self, stream: StreamName) -> None:
        """A message came whose number could not be read."""
        with self._lock:
            self._publisher(stream).unreadable_batches += 1

    def connected(self, stream: StreamName, is_connected: bool) -> None:
        """Whether the transport has a connection to the publisher."""
        with self._lock:
            self._publisher(stream).is_connected = is_connected

    def forget(self, stream: StreamName) -> None:
        """The stream will not be heard again: what was counted is drained once more, and its
        memory is free. Heard of later, it begins anew."""
        with self._lock:
            publisher = self._publishers.pop(stream, None)
            if publisher is not None:
                self._leaving.append(publisher)
                self._see_shared_name(stream)
                self._known.remember([publisher.row(self._name(publisher))])

    def _publisher(self, stream: StreamName) -> Publisher:
        if stream not in self._publishers:
            chains = Chains(self._key, stream.model_fingerprint) if self._has_names else None
            made = Publisher(stream, chains, self._live_seconds, self._remember_seconds)
            made.recall(self._known.of(stream, stream.rank))
            self._publishers[stream] = made
            self._see_shared_name(stream)
        return self._publishers[stream]

    def _see_shared_name(self, stream: StreamName) -> None:
        """Streams that differ in nothing but their model have one name in all figures."""
        same = [
            publisher
            for name, publisher in self._publishers.items()
            if name.replica == stream.replica
            and (name.source, name.rank) == (stream.source, stream.rank)
        ]
        for publisher in same:
            publisher.shares_name = len(same) > 1

    # ------------------------------------------------------------------ from elsewhere

    def touch(self, rows: Iterable[UsedPrefix]) -> None:
        """Requests that were stored: which blocks they used, when, and for whom.

        A row counts where its chain was made with our key and its replica is heard here; a row
        without a replica only where a single one serves its model.
        """
        if not self._has_names:
            return
        for row in rows:
            if row.hash_scope == "global" and row.hash_key_id == self._key_id:
                # Row by row: batches that come meanwhile need not wait for all.
                with self._lock:
                    self._touch(row)

    def _touch(self, row: UsedPrefix) -> None:
        chain = np.array(row.block_hashes or (), np.uint64)
        if not len(chain):
            return
        self._contents.remember(row, chain)
        ts = as_utc(row.ts).timestamp()
        cached = math.inf if row.cached_tokens is None else row.cached_tokens
        for publisher in self._serving(row):
            publisher.tiers.flush()
            for tier, cache in publisher.tiers.caches():
                every, rest = divmod(publisher.tiers.block_size(tier) or 0, HASH_GRAIN_TOKENS)
                if not every or rest:
                    continue
                cache.uses_known_since = min(cache.uses_known_since, ts)
                names = chain[every - 1 :: every]
                cache.touch(names[: int(min(len(names), cached // (every * 16)))], ts)

    def _serving(self, row: UsedPrefix) -> list[Publisher]:
        found = [
            publisher
            for stream, publisher in self._publishers.items()
            if (row.replica == self._name(publisher))
            or (row.replica is None and stream.model in (None, row.model))
        ]
        return found if row.replica is not None or len(found) == 1 else []

    def sampled(self, samples: Iterable[EngineSample]) -> None:
        """Capacity and sleep, from the engines' own pages."""
        with self._lock:
            by_name = {self._name(each): each for each in self._publishers.values()}
            for sample in samples:
                publisher = by_name.get(sample.replica)
                if publisher is None or sample.observer != "engine":
                    continue
                size = publisher.tiers.block_size("device") or sample.block_size
                if sample.kv_capacity_tokens and size:
                    publisher.tiers.capacity_blocks = sample.kv_capacity_tokens // size
                if sample.awake is False:
                    publisher.tiers.sleep(sample.ts)
                elif sample.awake:
                    publisher.tiers.wake()

    # ------------------------------------------------------------------ to the store and /metrics

    def _name(self, publisher: Publisher) -> str:
        """The name the scraper gives the same engine: with its rank where there are several."""
        base = publisher.stream.replica
        if publisher.stream.rank is not None:
            return f"{base}/{publisher.stream.rank}"
        return f"{base}/{publisher.rank or 0}" if base in self._ranked else base

    def drain(self, now: datetime) -> Drained:
        """What happened since the last drain, and how things stand at `now`."""
        with self._lock:
            minutes: list[BlockMinute] = []
            resets: list[BlockReset] = []
            streams: list[BlockStream] = []
            renamed: list[Renamed] = []
            leaving, self._leaving = self._leaving, []
            for publisher in (*leaving, *self._publishers.values()):
                replica = self._name(publisher)
                has_left = publisher in leaving
                publisher.tiers.flush()
                if has_left or publisher.is_quiet(now):
                    publisher.tiers.decide()
                minutes += publisher.take_minutes(replica)
                if has_left and publisher.stream not in self._publishers:
                    minutes += publisher.end(replica, now)
                elif not has_left and publisher.rebuilds and publisher.is_quiet(now):
                    minutes += publisher.stand(replica, now)
                resets += publisher.take_resets(replica)
                renamed += publisher.take_renamed(replica)
                streams.append(publisher.row(replica))
            drained, changed = Drained(minutes, resets, streams, renamed), bool(minutes or leaving)
            blocks = sum(cache.distinct_blocks for _, _, cache in self._caches())
            if not self._has_names or not self._contents.is_due(blocks, changed, now):
                return drained
            holdings, uses = list(self._holdings()), self._contents.uses()
        copies, prefixes = self._contents.look_through(holdings, uses, now)
        return replace(drained, copies=copies, prefixes=prefixes)

    def _caches(self) -> Iterator[tuple[Publisher, Tier, Residency]]:
        for publisher in self._publishers.values():
            for tier, cache in publisher.tiers.caches():
                yield publisher, tier, cache

    def _holdings(self) -> Iterator[Holding]:
        for publisher, tier, cache in self._caches():
            if size := publisher.tiers.block_size(tier):
                stream = publisher.stream
                yield Holding(self._name(publisher), stream.model, tier, size, *cache.holding())

    def held_since(self, moment: float) -> list[HeldCache]:
        """What every cache held after a moment, of those whose state is not in doubt; all tiers, as
        a replica can reach them. Nothing without names of our own."""
        with self._lock:
            found = []
            for publisher, tier, cache in self._caches() if self._has_names else ():
                publisher.tiers.flush()
                size = publisher.tiers.block_size(tier)
                if size and publisher.uncertain(tier) is None:
                    replica = self._name(publisher)
                    found.append(HeldCache(replica, size, self._key_id, *cache.stays(moment)))
            return found

    def snapshot(self) -> BlocksSnapshot:
        """What /metrics shows. Totals begin at 0 when this exporter starts, never fall,
        and leave out what was replayed from before the live window."""
        with self._lock:
            caches: list[CacheSnapshot] = []
            streams: list[StreamSnapshot] = []
            for publisher in self._publishers.values():
                publisher.tiers.flush()
                replica = self._name(publisher)
                caches += publisher.cache_snapshots(replica)
                streams.append(publisher.snapshot(replica))
            return BlocksSnapshot(caches, streams, self._contents.copies)

    def unknown_events(self) -> int:
        """Events of types or tiers this release does not know, which were passed over."""
        with self._lock:
            return sum(each.tiers.unknown_events for each in self._publishers.values())

    def memory_bytes(self) -> int:
        """What the state of all caches takes."""
        with self._lock:
            return sum(cache.bytes for _, _, cache in self._caches())
