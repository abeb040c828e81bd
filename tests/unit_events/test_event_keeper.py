"""Between tracker and store: rows are shown once, and a drain that cannot be written is kept."""

import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from exporter.blocks.rows import BlockReset, BlockStream, Drained, UsedPrefix
from exporter.sources.events import keeper as keeper_module
from exporter.sources.events import touched
from exporter.sources.events.keeper import BlockKeeper
from exporter.sources.events.touched import past_rows
from exporter.sources.intake import Intake
from exporter.store.store import Store
from tests.unit_events.publishing import wait_until

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Scripted:
    """Says what a test wants, and remembers what it is shown."""

    def __init__(self) -> None:
        self.shown: list[UsedPrefix] = []
        self.drains: list[Drained] = []
        self.fails_after: int | None = None
        self.error: Exception | None = None
        self.failures = 0

    def touch(self, rows: Iterable[UsedPrefix]) -> None:
        if len(self.shown) == self.fails_after and self.error is not None:
            self.failures += 1
            raise self.error
        self.shown += rows

    def drain(self, now: datetime) -> Drained:
        assert now.tzinfo is not None
        return self.drains.pop(0) if self.drains else Drained()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path / "store")
    yield made
    made.close()


def ingest(store: Store, *rows: str) -> None:
    Intake(store).ingest(
        io.BytesIO("\n".join(rows).encode() + b"\n"), source="s", format="ndjson", origin="http"
    )


def chained(store: Store, name: str, hashes: list[int], key_id: str | None = None) -> str:
    return json.dumps({
        "id": name, "ts": "2026-11-30T12:00:00Z", "prompt_tokens": 64, "cached_tokens": 32,
        "replica": "v", "block_size": 16, "block_hashes": hashes, "hash_scope": "global",
        "hash_key_id": key_id or store.hash_key_id,
    })  # fmt: skip


def reset(blocks: int) -> BlockReset:
    return BlockReset(AT, "events", "v", None, "device", "clear", blocks)


def test_rows_are_shown_once_with_their_chains(store: Store) -> None:
    ingest(store, chained(store, "before", [1, 2]))
    tracker = Scripted()
    keeper = BlockKeeper(store, tracker)
    ingest(store, chained(store, "a", [1, 2**64 - 1, 3]), chained(store, "b", [7]))
    ingest(store, '{"id": "c", "ts": "2026-11-30T12:00:00Z", "prompt_tokens": 5}')
    ingest(store, chained(store, "elsewhere", [9], key_id="deadbeef"))
    keeper.keep_once()
    keeper.keep_once()
    shown = sorted((list(row.block_hashes or ()), row.replica, row.cached_tokens)
                   for row in tracker.shown)  # fmt: skip
    assert shown == [([1, 2**64 - 1, 3], "v", 32), ([7], "v", 32)]
    ingest(store, chained(store, "d", [8]))
    keeper.keep_once()
    assert [list(row.block_hashes or ()) for row in tracker.shown[2:]] == [[8]]


def test_what_cannot_be_written_is_written_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Scripted()
    stream = BlockStream("events", "v", None, AT, AT, 5, AT, 6, 0, 0, 0, 0, True, None)
    tracker.drains = [Drained(resets=[reset(1)]), Drained(resets=[reset(2)], streams=[stream])]
    keeper = BlockKeeper(store, tracker)
    written = keeper_module.write_drained

    def full(_store: Store, _drained: Drained) -> None:
        raise duckdb.IOException("disk full")

    monkeypatch.setattr(keeper_module, "write_drained", full)
    keeper.keep_once()
    monkeypatch.setattr(keeper_module, "write_drained", written)
    keeper.keep_once()
    keeper.keep_once()
    cursor = store.cursor()
    assert cursor.execute("SELECT blocks FROM block_resets ORDER BY ALL").fetchall() == [(1,), (2,)]
    assert cursor.execute("SELECT last_sequence FROM block_streams").fetchall() == [(5,)]


@pytest.mark.parametrize("error", [duckdb.OutOfMemoryException("full"), MemoryError()])
def test_a_round_that_fails_is_taken_up_where_it_broke_off(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Two of three rows are worked on, then memory is short: the drain is written all the same,
    and the third row comes with the next round. No row is shown twice."""
    monkeypatch.setattr(touched, "ROWS_AT_ONCE", 1)
    tracker = Scripted()
    keeper = BlockKeeper(store, tracker)
    ingest(store, *(chained(store, f"r{number}", [number]) for number in (1, 2, 3)))
    tracker.drains = [Drained(resets=[reset(5)])]
    tracker.fails_after, tracker.error = 2, error
    keeper.keep_once()
    assert store.cursor().execute("SELECT blocks FROM block_resets").fetchall() == [(5,)]
    ingest(store, chained(store, "later", [4]))
    tracker.fails_after = None
    for _ in range(3):
        keeper.keep_once()
    assert [list(row.block_hashes or ()) for row in tracker.shown] == [[1], [2], [3], [4]]


def test_the_thread_lives_on_when_rows_cannot_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "DRAIN_SECONDS", 0.01)
    tracker = Scripted()
    keeper = BlockKeeper(store, tracker)
    ingest(store, chained(store, "a", [1]))
    tracker.fails_after, tracker.error = 0, duckdb.OutOfMemoryException("full")
    keeper.start()
    wait_until(lambda: tracker.failures > 2, "rounds after the first that failed")
    tracker.fails_after = None
    wait_until(lambda: tracker.shown, "the row")
    assert keeper.alive
    keeper.stop()


def test_at_the_end_all_is_in_the_store(store: Store) -> None:
    tracker = Scripted()
    keeper = BlockKeeper(store, tracker)
    keeper.start()
    assert keeper.alive
    tracker.drains = [Drained(resets=[reset(3)])]
    keeper.stop()
    assert not keeper.alive
    assert store.cursor().execute("SELECT blocks FROM block_resets").fetchall() == [(3,)]


def test_stored_rows_come_as_recorded_time_passes(store: Store) -> None:
    """Each once, when its time has come; what began before the recording is left out."""
    rows = [
        chained(store, f"r{second}", [second]).replace("12:00:00Z", f"12:00:{second:02}Z")
        for second in (9, 1, 5, 3)
    ]
    ingest(store, *rows)
    stored = past_rows(store, AT + timedelta(seconds=2))
    told = [
        [list(row.block_hashes or ()) for row in stored.until(AT + timedelta(seconds=second))]
        for second in (2, 3, 3, 8, 60, 61)
    ]
    assert told == [[], [[3]], [], [[5]], [[9]], []]


def test_no_query_stays_open_while_a_recording_is_taken_in(store: Store) -> None:
    """What came into the store meanwhile is there when its time comes."""
    ingest(store, chained(store, "first", [1]))
    stored = past_rows(store, AT - timedelta(minutes=1))
    assert stored.until(AT - timedelta(minutes=1)) == []
    ingest(store, chained(store, "second", [2]))
    assert sorted(list(row.block_hashes or ()) for row in stored.until(AT)) == [[1], [2]]
    later = chained(store, "third", [3]).replace("12:00:00Z", "15:30:59Z")
    ingest(store, later)
    assert [list(row.block_hashes or ()) for row in stored.until(AT + timedelta(days=1))] == [[3]]
