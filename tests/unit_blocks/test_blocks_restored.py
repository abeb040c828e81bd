"""An exporter that starts again, and hears a replay of what it stored before."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.blocks.order import StreamName
from exporter.blocks.rows import BlockStream, Drained
from exporter.blocks.tracker import Tracker
from exporter.store.blocks import known_streams, write_drained
from exporter.store.store import Store
from tests.log_path import store
from tests.unit_blocks.event_streams import (
    CLEARED,
    KEY,
    STREAM,
    Event,
    moment,
    payload,
    removed,
    stored,
)

__all__ = ["store"]

# Stored 6, removed 2, cleared once (4 blocks), stored 1 again.
BATCHES: list[list[Event]] = [
    [stored([1, 2, 3])],
    [stored([4, 5, 6]), removed([1])],
    [removed([2])],
    [CLEARED, stored([7])],
]
TOLD = """SELECT sum(stored_blocks)::INT, sum(evicted_blocks)::INT, sum(reset_blocks)::INT,
    (SELECT count(*) FROM block_resets) FROM block_minutes"""


def run(
    store: Store,
    batches: Iterable[tuple[int, bytes]],
    at: float,
    stream: StreamName = STREAM,
) -> Tracker:
    """One start of the exporter: what the store knows, a replay, a drain."""
    tracker = Tracker(KEY, chains=False)
    tracker.restore(known_streams(store))
    for sequence, body in batches:
        tracker.hear(stream, sequence, body, moment(at), replayed=True)
        tracker.snapshot()
    write_drained(store, tracker.drain(moment(at)))
    return tracker


def numbered(batches: list[list[Event]], began: float = 0.0) -> list[tuple[int, bytes]]:
    return [(number, payload(events, began + number)) for number, events in enumerate(batches)]


def told(store: Store) -> tuple[int, ...]:
    (row,) = store.cursor().execute(TOLD).fetchall()
    return tuple(row)


def stream_of(store: Store) -> BlockStream:
    (row,) = known_streams(store)
    return row


def test_a_replay_of_what_the_store_has_counts_once_and_builds_the_state(store: Store) -> None:
    for start in range(3):
        tracker = run(store, numbered(BATCHES), at=100.0 * (start + 1))
        assert told(store) == (7, 2, 4, 1)
        (cache,) = tracker.snapshot().caches
        assert cache.resident_blocks == 1
        assert cache.stored_blocks == (7 if start == 0 else 0)
    row = stream_of(store)
    assert (row.batches, row.replayed_batches, row.last_sequence) == (4, 4, 3)
    assert (row.first_heard, row.last_heard, row.last_batch_ts) == (
        moment(100), moment(100), moment(3),
    )  # fmt: skip


@pytest.mark.parametrize("cut", range(1, 4))
def test_what_is_new_in_a_longer_replay_counts(store: Store, cut: int) -> None:
    run(store, numbered(BATCHES)[:cut], at=100)
    run(store, numbered(BATCHES), at=200)
    assert told(store) == (7, 2, 4, 1)
    assert stream_of(store).batches == 4


def test_a_start_in_which_nothing_is_heard_forgets_nothing(store: Store) -> None:
    run(store, numbered(BATCHES), at=100)
    tracker = Tracker(KEY, chains=False)
    tracker.restore(known_streams(store))
    tracker.connected(STREAM, True)
    write_drained(store, tracker.drain(moment(200)))
    # Interrupted in the middle of the replay, too.
    run(store, numbered(BATCHES)[:2], at=300)
    run(store, numbered(BATCHES), at=400)
    assert told(store) == (7, 2, 4, 1)


def test_another_process_with_the_same_numbers_is_new(store: Store) -> None:
    run(store, numbered(BATCHES), at=100)
    tracker = run(store, numbered(BATCHES[:2], began=150), at=200)
    assert told(store) == (13, 3, 4, 1)
    assert tracker.snapshot().caches[0].resident_blocks == 5


def test_a_batch_that_cannot_be_read_is_counted_once(store: Store) -> None:
    broken = [(0, b"\xc1"), (1, payload([stored([1])], 1)), (2, b"\xc1")]
    run(store, broken, at=100)
    tracker = run(store, [*broken, (3, b"\xc1")], at=200)
    assert stream_of(store).unreadable_batches == 3
    assert tracker.snapshot().caches[0].uncertain == "a batch could not be read"
    assert told(store)[0] == 1


def test_ranks_taken_from_the_batches_are_known_by_their_names(store: Store) -> None:
    for _ in range(2):
        tracker = Tracker(KEY, chains=False)
        tracker.restore(known_streams(store))
        for rank in (0, 1):
            stream = StreamName(f"source {rank}", "pod")
            tracker.hear(stream, 0, payload([stored([1, 2][: rank + 1])], rank=rank), moment(1))
            write_drained(store, tracker.drain(moment(2)))
    found = store.cursor().execute(
        "SELECT replica, sum(stored_blocks)::INT FROM block_minutes GROUP BY ALL ORDER BY ALL"
    ).fetchall()  # fmt: skip
    assert found == [("pod/0", 1), ("pod/1", 2)]


def test_a_stream_that_was_forgotten_and_is_heard_again_counts_once(store: Store) -> None:
    tracker = run(store, numbered(BATCHES), at=100)
    tracker.forget(STREAM)
    for number, body in numbered([*BATCHES, [stored([8])]]):
        tracker.hear(STREAM, number, body, moment(110), replayed=True)
    write_drained(store, tracker.drain(moment(120)))
    assert told(store) == (8, 2, 4, 1)
    assert stream_of(store).batches == 5


EVENTS = st.one_of(
    st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(stored),
    st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True).map(removed),
    st.just(CLEARED),
)
STARTS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=5)
Counts = tuple[int, ...]


def counted(drains: list[Drained]) -> Counts:
    minutes = [minute for drained in drains for minute in drained.minutes]
    names = ("stored_blocks", "evicted_blocks", "reset_blocks")
    sums = tuple(sum(getattr(minute, name) for minute in minutes) for name in names)
    return (*sums, sum(len(drained.resets) for drained in drains))


@given(st.lists(st.lists(EVENTS, max_size=3), min_size=1, max_size=40), STARTS)
def test_however_often_an_exporter_starts_everything_counts_once(
    batches: list[list[Event]], starts: list[tuple[int, bool]]
) -> None:
    """Every start is replayed from 0 up to some batch, and drained in the middle or not."""
    bodies = numbered(batches)
    once = Tracker(KEY, chains=False)
    for number, body in bodies:
        once.hear(STREAM, number, body, moment(number))
    expected = counted([once.drain(moment(100))])
    drains: list[Drained] = []
    known: list[BlockStream] = []
    for until, is_drained in [*starts, (len(bodies), False)]:
        tracker = Tracker(KEY, chains=False)
        tracker.restore(known)
        for number, body in bodies[:until]:
            tracker.hear(STREAM, number, body, moment(100), replayed=True)
            if is_drained and number == until // 2:
                drains.append(tracker.drain(moment(100)))
        drains.append(tracker.drain(moment(100)))
        known = [*drains[-1].streams] or known
    assert counted(drains) == expected
    assert known[0].batches == len(bodies)
    held = [[cache.resident_blocks for cache in each.snapshot().caches] for each in (once, tracker)]
    assert held[0] == held[1]
