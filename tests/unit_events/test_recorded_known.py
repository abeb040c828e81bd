"""Recordings of several ranks, and beside live streams: nothing is taken for what it is not."""

import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exporter.blocks.rows import BlockStream, Drained
from exporter.errors import PrefixscopeError
from exporter.sources.events import recorded
from exporter.sources.events.recorded import EventsSummary, ingest_events
from exporter.store.blocks import write_drained
from exporter.store.store import Store
from tests.unit_events.batches import batch, removed, stored
from tests.unit_events.test_recorded_events import (
    BEGAN,
    TABLES,
    ingest,
    opened,
    raw_line,
    rows,
    told,
)

RANK_0, RANK_1 = "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"
STORED = "replica, sum(stored_blocks)::BIGINT, sum(evicted_blocks)::BIGINT"
BY_REPLICA = "block_minutes GROUP BY replica"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = opened(tmp_path / "store")
    yield made
    made.close()


def of_rank(rank: int, *batches: Sequence[dict[str, object]], later: float = 0.0) -> list[bytes]:
    """A line a batch, a second apart; what rank 1 does is a little behind rank 0."""
    lines = []
    for number, events in enumerate(batches):
        at = BEGAN + later + number + rank * 0.01
        payload = batch(at - 0.001, *events, rank=rank)
        lines.append(raw_line(number, payload, at, RANK_1 if rank else RANK_0))
    return lines


ZERO = of_rank(0, [stored(1, 2)], [removed(2)], [stored(3)], [stored(4)])
ONE = of_rank(1, [stored(11)], [stored(12, 13)], [removed(11)], [removed(12)])
MERGED = [line for pair in zip(ZERO, ONE, strict=True) for line in pair]


def test_the_file_of_another_rank_is_refused_not_taken_for_known(store: Store) -> None:
    ingest(store, ZERO)
    before = {table: rows(store, table) for table in TABLES}
    with pytest.raises(PrefixscopeError, match="such as another rank's"):
        ingest(store, ONE)
    assert {table: rows(store, table) for table in TABLES} == before
    # In a folder of its own it is taken.
    assert ingest(store, ONE, "engine-1").stored_blocks == 3


def test_the_file_of_another_rank_that_goes_on_longer_is_refused_whole(store: Store) -> None:
    ingest(store, ZERO[:2])
    with pytest.raises(PrefixscopeError, match="such as another rank's"):
        ingest(store, ONE)
    assert told(store, STORED, BY_REPLICA) == [("engine", 2, 1)]


def test_an_older_recording_is_refused_not_taken_for_known(store: Store) -> None:
    newer = of_rank(0, [stored(7)], later=60)
    ingest(store, newer)
    with pytest.raises(PrefixscopeError, match="take older recordings first"):
        ingest(store, ZERO)


@pytest.mark.parametrize("lines", [ZERO, ONE])
def test_a_file_of_one_rank_after_one_of_all_adds_nothing(
    store: Store, lines: Sequence[bytes]
) -> None:
    ingest(store, MERGED)
    assert told(store, STORED, BY_REPLICA) == [("engine/0", 4, 1), ("engine/1", 3, 2)]
    before = {table: rows(store, table) for table in TABLES}
    again = ingest(store, lines)
    assert (again.known, again.batches) == (4, 0)
    assert {table: rows(store, table) for table in TABLES} == before


@pytest.mark.parametrize("cut", range(2, 8))
def test_each_rank_goes_on_where_the_store_has_it(store: Store, cut: int) -> None:
    """Ranks one behind the other in the second file: neither is judged by the other's time."""
    first = ingest(store, MERGED[:cut])
    second = ingest(store, [*ZERO, *ONE])
    assert (first.batches + second.batches, second.known) == (8, cut)
    assert told(store, STORED, BY_REPLICA) == [("engine/0", 4, 1), ("engine/1", 3, 2)]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_rank_that_was_not_recorded_before_is_new(store: Store, cut: int) -> None:
    """Rank 0 alone had the plain name; what was told of it goes by its rank since."""
    ingest(store, ZERO[:cut])
    assert {name for name, _, _ in told(store, STORED, BY_REPLICA)} == {"engine"}
    assert ingest(store, MERGED).known == cut
    assert ingest(store, MERGED).known == 8
    assert told(store, STORED, BY_REPLICA) == [("engine/0", 4, 1), ("engine/1", 3, 2)]
    assert told(store, "replica, batches", "block_streams") == [("engine/0", 4), ("engine/1", 4)]


def test_an_endpoint_that_speaks_late_is_known_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "LOOK_AHEAD_LINES", 1)
    ingest(store, MERGED)
    before = told(store, STORED, BY_REPLICA)
    assert before == [("engine", 4, 1), (f"engine@{RANK_1}", 3, 2)]
    assert ingest(store, MERGED).known == 8
    assert told(store, STORED, BY_REPLICA) == before


def test_contents_are_those_of_live_caches_while_any_is_heard(store: Store) -> None:
    """The recording's own contents are of another time."""
    at = datetime.fromtimestamp(BEGAN, UTC)
    live = BlockStream("events", "pod", None, at, at, 0, at, 1, 0, 0, 0, 0, True, None)
    write_drained(store, Drained(streams=[live]))
    before = {table: rows(store, table) for table in ("resident_prefixes", "block_copies")}
    assert summary_of(store).stored_blocks == 7
    assert {table: rows(store, table) for table in before} == before


def test_contents_of_a_recording_are_kept_where_nobody_is_heard(store: Store) -> None:
    assert summary_of(store).stored_blocks == 7
    assert rows(store, "resident_prefixes")
    assert rows(store, "block_copies")


def summary_of(store: Store) -> EventsSummary:
    stream = io.BytesIO(b"".join(MERGED))
    return ingest_events(store, stream, source="file", replica="engine", name="e")
