"""Recorded streams: every shape of line, the same tables as live, and nothing twice."""

import base64
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import PrefixscopeError
from exporter.records import EngineSample
from exporter.sources.events.recorded import EventsSummary, ingest_events
from exporter.sources.events.recorded_lines import is_recorded, read_recorded
from exporter.sources.packed import open_input
from exporter.store.samples import append_samples
from exporter.store.store import Store
from tests.unit_events.batches import CLEARED, batch, removed, resident, stored

CAPTURES = Path(__file__).parents[3] / "shared" / "captures" / "vllm-0.32.0"
needs_captures = pytest.mark.skipif(not CAPTURES.exists(), reason="no captures on this machine")
BEGAN = 1_764_500_000.0  # 2025-11-30 10:53:20 UTC
TABLES = ("block_minutes", "block_resets", "block_streams", "resident_prefixes", "block_copies")
# Of the same caches under the same key.
KEY = "5c" * 32


def raw_line(sequence: int, payload: bytes, at: float, endpoint: str = "tcp://h:5557") -> bytes:
    frames = [b"kv-events", sequence.to_bytes(8, "big"), payload]
    line = {
        "received_unix": at, "endpoint": endpoint,
        "frames_base64": [base64.b64encode(frame).decode() for frame in frames],
    }  # fmt: skip
    return json.dumps(line).encode() + b"\n"


def recording(*batches: Sequence[dict[str, object]], gap: int = 0, first: int = 0) -> list[bytes]:
    """A line a batch, a second apart; `gap` batches are missing after the first."""
    lines = []
    for place, events in enumerate(batches):
        sequence = first + place + (gap if place else 0)
        at = BEGAN + place
        lines.append(raw_line(sequence, batch(at - 0.001, *events), at))
    return lines


def opened(folder: Path) -> Store:
    folder.mkdir()
    (folder / "hash.key").write_text(KEY + "\n")
    return Store.open(folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = opened(tmp_path / "store")
    yield made
    made.close()


def ingest(store: Store, lines: Sequence[bytes], replica: str = "engine") -> EventsSummary:
    stream = io.BytesIO(b"".join(lines))
    return ingest_events(store, stream, source="file", replica=replica, name="events.jsonl")


def rows(store: Store, table: str) -> list[tuple[Any, ...]]:
    return store.cursor().execute(f"FROM {table} ORDER BY ALL").fetchall()


def told(store: Store, columns: str, table: str) -> list[tuple[Any, ...]]:
    return store.cursor().execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


SUMS = "replica, tier, sum(stored_blocks), sum(evicted_blocks), sum(reset_blocks)"


def test_t27_what_events_tell_is_in_the_tables(store: Store) -> None:
    """Stored 1 2 3, cleared, stored 1 again: one resident, none evicted, one reset."""
    events = [[stored(1, 2, 3)], [CLEARED], [stored(1)]]
    summary = ingest(store, recording(*events))
    assert (summary.batches, summary.stored_blocks, summary.evicted_blocks) == (3, 4, 0)
    assert (summary.resets, summary.reset_blocks) == ({"clear": 1}, 3)
    assert summary.resident_blocks == {"engine device": 1}
    assert told(store, SUMS, "block_minutes GROUP BY ALL") == [("engine", "device", 4, 0, 3)]
    assert told(store, "replica, reason, blocks", "block_resets") == [("engine", "clear", 3)]
    (stream,) = told(store, "source, replica, last_sequence, batches, connected", "block_streams")
    assert stream == ("file", "engine", 2, 3, False)


def test_t26_a_number_that_goes_back_is_a_restart(store: Store) -> None:
    lines = recording([stored(1, 2)], [stored(3)])
    lines.append(raw_line(0, batch(BEGAN + 5, stored(9)), BEGAN + 5))
    summary = ingest(store, lines)
    assert (summary.restarts, summary.resets) == (1, {"restart": 1})
    assert summary.resident_blocks == {"engine device": 1}
    assert (summary.reset_blocks, summary.evicted_blocks) == (3, 0)


def test_t29_missing_batches_are_counted_and_leave_a_mark(store: Store) -> None:
    summary = ingest(store, recording([stored(1)], [stored(2)], gap=3))
    assert (summary.batches, summary.missed_batches) == (2, 3)
    assert summary.uncertain == {"engine": "batches are missing before 4"}
    assert told(store, "uncertain", "block_streams") == [("batches are missing before 4",)]


def test_a_recording_that_begins_late_says_so(store: Store) -> None:
    summary = ingest(store, recording([stored(1)], [stored(2)], first=40))
    assert summary.batches == 2
    assert summary.uncertain == {"engine": "the recording begins with batch 40"}


def test_decoded_lines_tell_the_same(tmp_path: Path) -> None:
    """Bytes stand as hex in JSON; here one hash is bytes."""
    line = {
        "received_unix": BEGAN, "endpoint": "tcp://h:5557", "topic": "t", "seq": 0,
        "batch": [BEGAN, [{
            "type": "BlockStored", "block_hashes": [{"hex": "00" * 31 + "07"}, 2**64 - 1],
            "parent_block_hash": None, "token_ids": list(range(32)), "block_size": 16,
            "medium": "GPU",
        }], 0],
    }  # fmt: skip
    later = {
        **line, "received_unix": BEGAN + 1, "seq": 1, "batch": [BEGAN + 1, [removed(7)], 0],
    }  # fmt: skip
    store = opened(tmp_path / "store")
    summary = ingest(store, [json.dumps(one).encode() + b"\n" for one in (line, later)])
    store.close()
    assert (summary.unreadable, summary.stored_blocks, summary.evicted_blocks) == (0, 2, 1)
    assert summary.resident_blocks == {"engine device": 1}


def test_the_same_again_adds_nothing(store: Store) -> None:
    lines = recording([stored(1, 2)], [removed(1)], [stored(3, parent=2)])
    ingest(store, lines)
    before = {table: rows(store, table) for table in TABLES}
    again = ingest(store, lines)
    assert (again.known, again.batches, again.stored_blocks) == (3, 0, 0)
    assert {table: rows(store, table) for table in TABLES} == before


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_longer_recording_adds_the_rest(tmp_path: Path, cut: int) -> None:
    """Whatever was taken before: the sums are those of the whole."""
    lines = recording(
        [stored(1, 2)], [removed(2)], [stored(2, parent=1)], [CLEARED, stored(5)],
        [stored(6, parent=5)], [removed(5)],
    )  # fmt: skip
    sums = []
    for name, parts in (("whole", [lines]), ("parts", [lines[:cut], lines])):
        store = opened(tmp_path / name)
        summaries = [ingest(store, part) for part in parts]
        sums.append((told(store, SUMS, "block_minutes GROUP BY ALL"), rows(store, "block_resets"),
                     rows(store, "block_streams"), summaries[-1].resident_blocks))  # fmt: skip
        assert sum(one.batches for one in summaries) == len(lines)
        store.close()
    assert sums[0] == sums[1]


def test_several_endpoints_are_ranks_by_their_ports(store: Store) -> None:
    lines = [
        raw_line(0, batch(BEGAN, stored(1, 2), rank=0), BEGAN, "tcp://127.0.0.1:18557"),
        raw_line(0, batch(BEGAN, stored(1), rank=2), BEGAN, "tcp://127.0.0.1:18559"),
    ]
    assert ingest(store, lines).resident_blocks == {"engine/0 device": 2, "engine/2 device": 1}


def test_lines_that_are_none_are_counted_and_not_quoted(store: Store) -> None:
    good = recording([stored(1)], [stored(2)])
    secret = b"tell nobody 4711"
    bad = [
        b"not json " + secret, b'{"received_unix": "' + secret + b'"}', b"[1, 2]",
        b'{"received_unix": 1e99, "frames_base64": []}', b'{"received_unix": 5}',
        json.dumps({"received_unix": 5, "frames_base64": ["%%" + secret.decode()]}).encode(),
        json.dumps({"received_unix": 5, "seq": -1, "batch": [1, [], 0]}).encode(),
        json.dumps({"received_unix": 5, "seq": 1, "batch": [{"hex": "zz"}]}).encode(),
        b'{"received_unix": 5, "seq": 1, "batch": ' + b"[" * 5_000,
    ]  # fmt: skip
    summary = ingest(store, [good[0], *(line + b"\n" for line in bad), b"\n", good[1]])
    assert (summary.batches, summary.unreadable) == (2, len(bad))
    assert summary.messages[0].startswith("events.jsonl:2: ")
    assert not any("4711" in message for message in summary.messages)


def test_a_batch_that_cannot_be_read_is_counted(store: Store) -> None:
    lines = [raw_line(0, b"\xc1 no msgpack", BEGAN), *recording([stored(1)], first=1)]
    summary = ingest(store, lines)
    assert (summary.batches, summary.unreadable) == (1, 1)
    assert summary.uncertain


def test_packed_and_damaged(store: Store) -> None:
    lines = b"".join(recording(*[[stored(number)] for number in range(400)]))
    packed = gzip.compress(lines)
    whole = ingest_events(
        store, open_input(io.BytesIO(packed)), source="file", replica="packed", name="e.gz"
    )
    assert whole.batches == 400
    with pytest.raises(PrefixscopeError, match=r"e\.gz: the compressed data is damaged"):
        ingest_events(
            store, open_input(io.BytesIO(packed[: len(packed) // 2])), source="file",
            replica="damaged", name="e.gz",
        )  # fmt: skip
    (taken,) = told(store, "batches", "block_streams WHERE replica = 'damaged'")
    assert 0 < taken[0] < 400


def test_nothing_is_nothing(store: Store) -> None:
    assert ingest(store, []) == EventsSummary()
    assert rows(store, "block_streams") == []


def test_told_from_a_request_log_by_its_first_line() -> None:
    assert is_recorded(raw_line(0, b"x", 1.0))
    assert is_recorded(b'\n {"received_unix": 1, "seq": 0, "topic": "", "batch": [1, [], 0]}')
    assert is_recorded(raw_line(0, b"x" * 500, 1.0)[:200])  # longer than what was read of it
    assert not is_recorded(b'{"ts": 1, "prompt_tokens": 5}\n' + raw_line(0, b"x", 1.0))
    assert not is_recorded(b'{"received_unix": 1, "seq": 0}')
    assert not is_recorded(b"")


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_any_bytes_are_messages_or_counted(lines: list[bytes]) -> None:
    text = b"\n".join(lines)
    summary = EventsSummary()
    taken = list(read_recorded(io.BytesIO(text), "x", summary))
    given_lines = [line for line in text.split(b"\n") if line.strip()]
    assert len(taken) + summary.unreadable == len(given_lines)


def _events(file: Path) -> list[tuple[str, dict[str, object]]]:
    """Endpoint and event, from the decoded file, by json alone."""
    lines = (json.loads(line) for line in file.read_text().splitlines())
    return [(line["endpoint"], event) for line in lines for event in line["batch"][1]]


@needs_captures
@pytest.mark.parametrize("capture", ["main", "evict", "dp2", "external"])
def test_captures_end_with_what_plain_counting_holds(store: Store, capture: str) -> None:
    file = CAPTURES / capture / "kv-events.decoded.jsonl"
    summary = ingest(store, [file.read_bytes()], capture)
    by_endpoint: dict[str, list[dict[str, object]]] = {}
    for endpoint, event in _events(file):
        by_endpoint.setdefault(endpoint, []).append(event)
    expected = sorted(resident(events).total() for events in by_endpoint.values())
    assert sorted(summary.resident_blocks.values()) == expected
    assert (summary.missed_batches, summary.unreadable, summary.uncertain) == (0, 0, {})
    removed_blocks = sum(
        len(event["block_hashes"])  # type: ignore[arg-type]
        for _, event in _events(file)
        if event["type"] == "BlockRemoved"
    )
    assert summary.evicted_blocks == removed_blocks


@needs_captures
@pytest.mark.parametrize("capture", ["main", "evict"])
def test_raw_frames_and_decoded_events_fill_the_same_tables(tmp_path: Path, capture: str) -> None:
    tables = []
    for kind in ("raw", "decoded"):
        store = opened(tmp_path / kind)
        ingest(store, [(CAPTURES / capture / f"kv-events.{kind}.jsonl").read_bytes()], capture)
        tables.append({table: rows(store, table) for table in TABLES})
        store.close()
    assert tables[0] == tables[1]
    assert all(tables[0][table] for table in ("block_minutes", "block_streams"))


def page(store: Store, at: float, **told: object) -> None:
    """What a metric page of the replica said."""
    moment = datetime.fromtimestamp(at, UTC)
    sample = EngineSample(target="t", replica="engine", engine="vllm", ts=moment, **told)  # type: ignore[arg-type]
    with store.write() as cursor:
        append_samples(cursor, [sample])


def test_t24_a_page_that_says_asleep_empties_the_cache_in_its_turn(store: Store) -> None:
    """Two blocks, asleep, awake, one block: the two are a reset of sleep and no eviction."""
    page(store, BEGAN + 0.5, awake=False)
    page(store, BEGAN + 0.7, awake=True)
    summary = ingest(store, recording([stored(1, 2)], [stored(3)]))
    assert summary.resets == {"sleep": 1}
    assert (summary.reset_blocks, summary.evicted_blocks) == (2, 0)
    assert summary.resident_blocks == {"engine device": 1}


def test_more_resident_than_there_is_room_for_is_given_up(store: Store) -> None:
    """The page tells of 32 tokens, two blocks; three are stored and none left: removals are
    missing, so what is held is not known any more."""
    page(store, BEGAN + 0.5, kv_capacity_tokens=32, block_size=16)
    summary = ingest(store, recording([stored(1, 2)], [stored(3)]))
    assert (summary.resets, summary.evicted_blocks) == ({"lost_events": 1}, 0)
    assert summary.resident_blocks == {"engine device": 0}
    assert "more blocks than the engine has room for" in summary.uncertain["engine"]
