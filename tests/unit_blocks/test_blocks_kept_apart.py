"""What must not be added up or pile up: models of one name, live and replayed, nothing at all."""

from dataclasses import replace
from datetime import timedelta

from exporter.blocks.order import StreamName
from exporter.blocks.pending import Pending
from exporter.blocks.tracker import Tracker
from exporter.store.blocks import known_streams, write_drained
from exporter.store.store import Store
from tests.log_path import store
from tests.unit_blocks.brute_force import hashes_of, tokens_of
from tests.unit_blocks.event_streams import KEY, Listener, moment, payload, removed, stored

__all__ = ["store"]

M1, M2 = StreamName("events", "pod", "m1"), StreamName("events", "pod", "m2")


def test_two_models_of_one_name_are_two_streams_and_said_to_be_uncertain(store: Store) -> None:
    tracker = Tracker(store.key, chains=False)
    for number, stream in enumerate((M1, M2)):
        tracker.hear(stream, 0, payload([stored([1, 2][: number + 1])]), moment(0))
    for at in (1, 2):
        write_drained(store, tracker.drain(moment(at)))
    found = store.cursor().execute(
        "SELECT model, batches, uncertain LIKE '%several models%' FROM block_streams ORDER BY 1"
    ).fetchall()  # fmt: skip
    assert found == [("m1", 1, True), ("m2", 1, True)]
    minutes = store.cursor().execute(
        "SELECT model, stored_blocks, uncertain IS NULL FROM block_minutes ORDER BY 1"
    ).fetchall()  # fmt: skip
    assert minutes == [("m1", 1, False), ("m2", 2, False)]
    assert all(stream.uncertain for stream in tracker.snapshot().streams)
    # Each goes on from its own past, and is right again where it is alone.
    again = Tracker(store.key, chains=False)
    again.restore(known_streams(store))
    again.hear(M2, 0, payload([stored([1, 2])]), moment(10))
    again.hear(M2, 1, payload([stored([3])], 10), moment(10))
    write_drained(store, again.drain(moment(11)))
    assert {row.model: row.batches for row in known_streams(store)} == {"m1": 1, "m2": 2}
    tracker.forget(M1)
    assert [stream.uncertain for stream in tracker.snapshot().streams] == [None]


def test_names_of_other_sources_replicas_and_ranks_are_shared_by_nobody() -> None:
    tracker = Tracker(KEY, chains=False)
    others = [
        M1,
        replace(M2, source="other"),
        replace(M2, replica="pod-2"),
        replace(M2, rank=1),
    ]
    for stream in others:
        tracker.connected(stream, True)
    assert [stream.uncertain for stream in tracker.snapshot().streams] == [None] * 4


def test_events_that_name_no_block_leave_nothing_behind() -> None:
    pending = Pending(named=False)
    for number in range(1_000):
        pending.removing(float(number))
        pending.store([], float(number), None)
    pending.store([7], 1_000.0, None)
    pending.removing(1_001.0).append(7)
    assert len(pending._starts) == 2
    operations = pending.take()
    assert operations.times.tolist() == [1_000.0, 1_001.0]
    assert operations.stores.tolist() == [True, False]


def test_a_stream_of_empty_events_holds_no_memory_and_changes_nothing() -> None:
    listener = Listener(chains=True)
    chain = hashes_of([1, 2])
    listener.hear(stored(chain[:1], tokens=tokens_of([1])))
    for number in range(200):
        listener.hear(removed([]), stored([]), removed([], medium="CPU"), seconds=number * 0.1)
    ((_, publisher),) = listener.tracker._publishers.items()
    waiting = [cache.pending for _, cache in publisher.tiers.caches()]
    assert [len(each._starts) <= 2 for each in waiting] == [True, True]
    # A block that comes after them is still the child of the one before.
    listener.hear(removed([]), stored(chain[1:], chain[0], tokens=tokens_of([2])), seconds=30)
    assert listener.cache().resident_blocks == 2
    (prefix,) = listener.tracker.drain(moment(40)).prefixes or ()
    assert (prefix.blocks, prefix.prefix_tokens) == (2, 32)


def test_of_a_minute_heard_in_part_when_it_happened_only_that_part_is_live() -> None:
    """Two batches of a minute come late by a replay, the third when it happens, the fourth late."""
    tracker = Tracker(KEY, chains=False, live_window=timedelta(seconds=60))
    stream = StreamName("events", "pod")
    for number, (blocks, late) in enumerate([(1, 600), (2, 600), (4, 0), (8, 600)]):
        hashes = [100 * number + place for place in range(blocks)]
        body = payload([stored(hashes)], seconds=number)
        tracker.hear(stream, number, body, moment(number + late), replayed=late > 0)
    (cache,) = tracker.snapshot().caches
    assert cache.stored_blocks == 4
    minutes = tracker.drain(moment(700)).minutes
    assert sum(minute.stored_blocks for minute in minutes) == 15
    (cache,) = tracker.snapshot().caches
    assert (cache.stored_blocks, cache.resident_blocks) == (4, 15)


def test_the_last_look_of_a_minute_is_what_it_shows(store: Store) -> None:
    listener = Listener(chains=True)
    listener.tracker = Tracker(store.key)
    for number, at in enumerate((0.0, 10.0, 20.0, 70.0)):
        block = [number + 1]
        listener.hear(stored(hashes_of(block), tokens=tokens_of(block)), seconds=at)
        write_drained(store, listener.tracker.drain(moment(at + 1)))
    found = store.cursor().execute(
        "SELECT unique_blocks, resident_blocks FROM block_copies ORDER BY minute"
    ).fetchall()  # fmt: skip
    assert found == [(3, 3), (4, 4)]


def test_two_recordings_of_a_minute_leave_one_row_of_the_fleet(store: Store) -> None:
    for replica in ("a", "b"):
        tracker = Tracker(store.key)
        body = payload([stored(hashes_of([1]), tokens=tokens_of([1]))])
        tracker.hear(StreamName("recorded", replica, "m"), 0, body, moment(0))
        write_drained(store, tracker.drain(moment(1)))
    rows = store.cursor().execute("SELECT count(*) FROM block_copies").fetchall()
    assert rows == [(1,)]
