"""Replicas that are gone for good: what they held is resident no more, in any figure."""

from datetime import datetime
from typing import Any

from exporter.blocks.order import StreamName
from exporter.blocks.tracker import Tracker
from exporter.store.blocks import write_drained
from exporter.store.store import Store
from queries import registry
from tests.log_path import store
from tests.unit_blocks.brute_force import hashes_of, tokens_of
from tests.unit_blocks.event_streams import moment, payload, stored

__all__ = ["store"]

BLOCKS = [1, 2]
DAY = 86_400.0


def pod(number: int) -> StreamName:
    return StreamName("events", f"pod-{number}", "tiny")


def hear(tracker: Tracker, stream: StreamName, seconds: float, sequence: int = 0) -> None:
    """The first two blocks of a prompt, or one more for every further batch."""
    blocks = BLOCKS if sequence == 0 else [sequence + 2]
    chain = hashes_of([*BLOCKS, *range(3, sequence + 3)])
    parent = chain[sequence] if sequence else None
    event = stored(chain[-len(blocks) :], parent, tokens=tokens_of(blocks))
    tracker.hear(stream, sequence, payload([event], seconds), moment(seconds))


def ask(store: Store, question: str, **params: object) -> list[dict[str, Any]]:
    cursor = store.cursor()
    try:
        return registry.rows(registry.run(cursor, question, params))
    finally:
        cursor.close()


def resident(store: Store) -> dict[str, int]:
    """The last word on every device cache, in blocks."""
    found = store.cursor().execute(
        """SELECT replica, arg_max(resident_blocks, stood_at) FROM residency
           WHERE tier = 'device' GROUP BY ALL"""
    )
    return dict(found.fetchall())


def fleet(store: Store) -> list[tuple[int, int]]:
    return [
        (row["unique_blocks"], row["resident_blocks"])
        for row in ask(store, "block_copies")
        if row["replica_b"] is None
    ]


def test_three_generations_of_a_pod_are_one_a_day_later(store: Store) -> None:
    tracker = Tracker(store.key)
    for number in range(3):
        at = number * 3_600.0
        hear(tracker, pod(number), at)
        write_drained(store, tracker.drain(moment(at + 1)))
        if number:
            tracker.forget(pod(number - 1))
        write_drained(store, tracker.drain(moment(at + 60)))
    write_drained(store, tracker.drain(moment(DAY)))
    assert resident(store) == {"pod-0": 0, "pod-1": 0, "pod-2": 2}
    assert fleet(store) == [(2, 2)]
    assert [row["blocks"] for row in ask(store, "resident_prefixes")] == [2]
    assert sum(row["tokens"] for row in ask(store, "resident_contents")) == 32
    shown = tracker.snapshot()
    assert shown.copies == {"tiny": (2, 2)}
    assert [cache.replica for cache in shown.caches] == ["pod-2"]
    # What came and went stays counted: nothing was evicted, nothing reset.
    (row,) = ask(store, "evictions")
    assert (row["stored_blocks"], row["evicted_blocks"], row["reset_blocks"]) == (6, 0, 0)


def test_the_last_one_to_go_leaves_nothing_in_any_figure(store: Store) -> None:
    tracker = Tracker(store.key)
    hear(tracker, pod(1), 0)
    offloaded = stored(hashes_of(BLOCKS), block_size=0, medium="CPU")
    tracker.hear(pod(1), 1, payload([offloaded], 1), moment(1))
    write_drained(store, tracker.drain(moment(2)))
    assert fleet(store) == [(2, 2), (2, 2)]
    tracker.forget(pod(1))
    write_drained(store, tracker.drain(moment(3)))
    assert tracker.memory_bytes() == 0
    assert tracker.snapshot().copies == {}
    for question in ("block_copies", "resident_prefixes", "resident_contents"):
        assert ask(store, question) == []
    last = store.cursor().execute(
        """SELECT tier, arg_max(resident_blocks, heard), arg_max(resident_tokens, heard),
               max(heard) FROM block_minutes GROUP BY ALL ORDER BY ALL"""
    ).fetchall()  # fmt: skip
    ended = moment(3).replace(tzinfo=None)
    assert last == [("device", 0, 0, ended), ("host", 0, 0, ended)]
    write_drained(store, tracker.drain(moment(60)))
    assert ask(store, "block_copies") == []


def test_a_cache_that_comes_back_stands_again_once_it_was_built(store: Store) -> None:
    tracker = Tracker(store.key)
    hear(tracker, pod(1), 0)
    write_drained(store, tracker.drain(moment(1)))
    tracker.forget(pod(1))
    write_drained(store, tracker.drain(moment(100)))
    assert resident(store) == {"pod-1": 0}
    hear_again = moment(200)
    replay(tracker, hear_again)
    write_drained(store, tracker.drain(moment(201)))
    write_drained(store, tracker.drain(moment(300)))
    assert resident(store) == {"pod-1": 2}
    assert fleet(store) == [(2, 2)]
    rows = len(store.cursor().execute("FROM block_minutes").fetchall())
    write_drained(store, tracker.drain(moment(400)))
    assert len(store.cursor().execute("FROM block_minutes").fetchall()) == rows
    hear(tracker, pod(1), 500, sequence=1)
    write_drained(store, tracker.drain(moment(501)))
    assert resident(store) == {"pod-1": 3}
    assert ask(store, "evictions")[0]["stored_blocks"] == 3


def test_a_cache_that_left_and_came_within_one_drain_is_not_ended(store: Store) -> None:
    tracker = Tracker(store.key)
    hear(tracker, pod(1), 0)
    write_drained(store, tracker.drain(moment(1)))
    tracker.forget(pod(1))
    replay(tracker, moment(2))
    write_drained(store, tracker.drain(moment(3)))
    assert resident(store) == {"pod-1": 2}


def replay(tracker: Tracker, heard: datetime) -> None:
    event = stored(hashes_of(BLOCKS), tokens=tokens_of(BLOCKS))
    tracker.hear(pod(1), 0, payload([event]), heard, replayed=True)
