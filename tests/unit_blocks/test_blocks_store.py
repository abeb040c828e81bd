"""What the store keeps of the blocks, and what it must never keep."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from exporter.blocks.order import Heard, StreamName
from exporter.blocks.rows import Drained
from exporter.blocks.tracker import Tracker
from exporter.store.blocks import known_streams, write_drained
from exporter.store.retention import compact, retain
from exporter.store.store import Store
from tests.log_path import SMALL, store
from tests.unit_blocks.brute_force import bucket, hashes_of, tokens_of
from tests.unit_blocks.event_streams import (
    CLEARED,
    STREAM,
    Listener,
    moment,
    payload,
    removed,
    stored,
)

__all__ = ["store"]

MINUTES = """
    SELECT minute, replica, tier, sum(stored_blocks)::INT, sum(evicted_blocks)::INT,
        sum(reset_blocks)::INT, arg_max(resident_blocks, heard), arg_max(uncertain, heard),
        list_sum(map_values(sum_histograms(list(lifetime))))::INT
    FROM block_minutes GROUP BY ALL ORDER BY ALL
"""


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.cursor().execute(sql).fetchall()


@pytest.fixture
def chain() -> list[int]:
    return hashes_of([1, 2, 3])


def test_minutes_add_up_whatever_is_drained_when_and_stay_after_compaction(store: Store) -> None:
    listener = Listener()
    expected: Counter[int] = Counter()
    for number in range(60):
        seconds = number * 4.0
        listener.hear(stored([number + 1]), seconds=seconds)
        if number >= 10:
            listener.hear(removed([number - 9]), seconds=seconds)
            expected[bucket(40.0)] += 1
        if number % 2:
            write_drained(store, listener.tracker.drain(moment(seconds)))
    before = rows(store, MINUTES)
    # Fifteen batches of stores a minute; ten stay.
    figures = [(row[3], row[4], row[6]) for row in before]
    assert figures == [(15, 5, 10), (15, 15, 10), (15, 15, 10), (15, 15, 10)]
    assert sum(row[-1] or 0 for row in before) == sum(expected.values()) == 50
    assert rows(store, "SELECT count(*) FROM block_minutes")[0][0] > 4
    compact(store)
    assert rows(store, "SELECT count(*) FROM block_minutes") == [(4,)]
    assert rows(store, MINUTES) == before
    (histogram,) = rows(store, "SELECT sum_histograms(list(lifetime)) FROM block_minutes")[0]
    assert histogram == expected
    compact(store)
    assert rows(store, MINUTES) == before


def test_compaction_keeps_how_things_stood_last_also_where_they_were_unknown(store: Store) -> None:
    listener = Listener()
    listener.hear(stored([1]))
    listener.tracker.lost(STREAM, "a reason")
    listener.hear(stored([2]), seconds=1)
    write_drained(store, listener.tracker.drain(moment(2)))
    listener.hear(CLEARED, stored([3]), seconds=3)
    write_drained(store, listener.tracker.drain(moment(4)))
    compact(store)
    assert rows(store, "SELECT resident_blocks, uncertain FROM block_minutes") == [(1, None)]


def test_streams_are_replaced_and_prefixes_as_a_whole(store: Store) -> None:
    listener = Listener(chains=True)
    listener.hear(stored(hashes_of([1, 2]), tokens=tokens_of([1, 2])))
    write_drained(store, listener.tracker.drain(moment(1)))
    listener.hear(stored(hashes_of([5]), tokens=tokens_of([5])), removed(hashes_of([1, 2])))
    write_drained(store, listener.tracker.drain(moment(2)))
    assert rows(store, "SELECT source, replica, batches, last_sequence FROM block_streams") == [
        ("events", "pod", 2, 1)
    ]
    assert rows(store, "SELECT blocks, prefix_tokens FROM resident_prefixes") == [(1, 16)]
    write_drained(store, Drained())
    assert rows(store, "SELECT count(*) FROM resident_prefixes") == [(1,)]


def test_a_sequence_and_a_prefix_use_all_64_bits(store: Store) -> None:
    tracker = Tracker(store.key)
    tracker.give_up(STREAM, "joined late")
    tracker.hear(STREAM, 2**64 - 2, payload([stored([1])]), moment(0))
    write_drained(store, tracker.drain(moment(1)))
    assert rows(store, "SELECT last_sequence, uncertain FROM block_streams") == [
        (2**64 - 2, "joined late")
    ]


def test_numbers_out_of_the_blue_are_kept_and_shown(store: Store) -> None:
    """A batch number, a block size and hashes no engine would send."""
    listener = Listener()
    listener.hear(stored([1]))
    assert listener.hear(stored([2]), sequence=2**64 - 1).name == "GAP"
    assert "batches are missing" in str(listener.cache().uncertain)
    listener.tracker.give_up(STREAM, "no replay")
    listener.hear(stored([2, -(2**63)], block_size=-5), sequence=2**64 - 1)
    write_drained(store, listener.tracker.drain(moment(1)))
    assert rows(store, "SELECT missed_batches > 1e18, last_sequence FROM block_streams") == [
        (True, 2**64 - 1)
    ]
    assert rows(store, "SELECT resident_blocks, resident_tokens FROM block_minutes") == [(3, 48)]


def test_a_batch_of_odd_numbers_keeps_no_other_stream_from_the_store(store: Store) -> None:
    tracker = Tracker(store.key, chains=False)
    other = StreamName("events", "other")
    for number, size in enumerate([2**24, 2**24 + 1, 2**31, 2**62]):
        body = payload([stored([number], block_size=size)])
        heard = tracker.hear(STREAM, number, body, moment(0))
        assert heard is (Heard.UNREADABLE if number else Heard.APPLIED)
    tracker.hear(other, 0, payload([stored([1, 2])]), moment(0))
    write_drained(store, tracker.drain(moment(1)))
    assert rows(store, "SELECT replica, stored_blocks FROM block_minutes ORDER BY ALL") == [
        ("other", 2), ("pod", 1),
    ]  # fmt: skip
    assert rows(store, "SELECT unreadable_batches FROM block_streams ORDER BY replica") == [
        (0,), (3,)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [("block_size", 2**31), ("stored_blocks", 2**63), ("replica", "\ud800")],
)
def test_a_row_the_store_cannot_hold_is_left_out_and_told_of(
    store: Store, caplog: pytest.LogCaptureFixture, field: str, value: object
) -> None:
    listener = Listener()
    listener.hear(stored([1]))
    drained = listener.tracker.drain(moment(1))
    odd = replace(drained.minutes[0], **{field: value})
    write_drained(store, replace(drained, minutes=[*drained.minutes, odd]))
    assert rows(store, "SELECT replica, stored_blocks FROM block_minutes") == [("pod", 1)]
    assert f"cannot hold its {field}" in caplog.text
    assert str(2**31) not in caplog.text


def test_what_really_failed_is_what_is_said(store: Store) -> None:
    listener = Listener()
    listener.hear(stored([1]))
    with store.write() as cursor:
        cursor.execute("ALTER TABLE block_minutes DROP COLUMN tier")
    with pytest.raises(duckdb.BinderException, match="tier"):
        write_drained(store, listener.tracker.drain(moment(1)))


def test_what_was_told_before_a_second_rank_was_heard_goes_by_its_name_afterwards(
    store: Store,
) -> None:
    tracker = Tracker(store.key)
    first, second = StreamName("one", "pod", "tiny"), StreamName("two", "pod", "tiny")
    tracker.hear(first, 0, payload([stored([1])], rank=0), moment(0))
    write_drained(store, tracker.drain(moment(1)))
    assert rows(store, "SELECT DISTINCT replica FROM block_minutes") == [("pod",)]
    tracker.hear(second, 0, payload([stored([1])], rank=1), moment(2))
    write_drained(store, tracker.drain(moment(3)))
    for table in ("block_minutes", "block_streams"):
        assert rows(store, f"SELECT DISTINCT source, replica FROM {table} ORDER BY ALL") == [
            ("one", "pod/0"), ("two", "pod/1"),
        ]  # fmt: skip


def test_a_replica_whose_name_begins_with_anothers_is_another(store: Store) -> None:
    """Neither a pod in a namespace of a replica's name nor a rank is the same one's new name."""
    tracker = Tracker(store.key, chains=False)
    for number, name in enumerate(("prod", "prod/vllm-0", "prod/0")):
        stream = StreamName("events", name)
        tracker.hear(stream, 0, payload([stored([1, 2, 3][: number + 1])]), moment(0))
        write_drained(store, tracker.drain(moment(1)))
        write_drained(store, tracker.drain(moment(2)))
    expected = [("prod", 1), ("prod/0", 3), ("prod/vllm-0", 2)]
    assert rows(store, "SELECT replica, stored_blocks FROM block_minutes ORDER BY 1") == expected
    assert rows(store, "SELECT replica FROM block_streams ORDER BY 1") == [
        (name,) for name, _ in expected
    ]


def test_a_new_name_reaches_what_earlier_runs_and_drains_not_yet_written_told(
    store: Store,
) -> None:
    first, second = StreamName("one", "pod"), StreamName("two", "pod")
    tracker = Tracker(store.key, chains=False)
    tracker.hear(first, 0, payload([stored([1])], rank=0), moment(0))
    write_drained(store, tracker.drain(moment(1)))
    again = Tracker(store.key, chains=False)
    again.restore(known_streams(store))
    for number in (0, 1):
        again.hear(first, number, payload([stored([number + 1])], number, rank=0), moment(2))
    waiting = again.drain(moment(2))
    again.hear(second, 0, payload([stored([1])], 2, rank=1), moment(3))
    later = again.drain(moment(3))
    together = replace(later, minutes=[*waiting.minutes, *later.minutes])
    write_drained(store, together)
    assert rows(
        store,
        "SELECT source, replica, sum(stored_blocks)::INT FROM block_minutes GROUP BY ALL"
        " ORDER BY ALL",
    ) == [("one", "pod/0", 2), ("two", "pod/1", 1)]
    assert rows(store, "SELECT replica FROM block_streams ORDER BY 1") == [("pod/0",), ("pod/1",)]


def test_nobody_is_connected_when_a_store_is_opened_whatever_ended_before(tmp_path: Path) -> None:
    opened = Store.open(tmp_path / "store", SMALL)
    listener = Listener()
    listener.hear(stored([1]))
    listener.tracker.connected(STREAM, True)
    write_drained(opened, listener.tracker.drain(moment(1)))
    assert rows(opened, "SELECT connected FROM block_streams") == [(True,)]
    # The exporter is killed: nothing is written any more.
    opened.close()
    again = Store.open(tmp_path / "store", SMALL)
    assert rows(again, "SELECT connected, batches FROM block_streams") == [(False, 1)]
    again.close()


def test_t73_old_rows_are_forgotten_with_the_roll_ups(store: Store, chain: list[int]) -> None:
    listener = Listener(chains=True)
    listener.hear(stored(chain, tokens=tokens_of([1, 2, 3])))
    listener.hear(CLEARED, stored(chain, tokens=tokens_of([1, 2, 3])), seconds=1)
    write_drained(store, listener.tracker.drain(moment(2)))
    tables = ("block_minutes", "block_resets", "block_copies")
    kept = timedelta(days=store.settings.rollup_days)
    retain(store, moment(0) + kept - timedelta(hours=2))
    assert all(rows(store, f"SELECT count(*) FROM {table}") == [(1,)] for table in tables)
    retain(store, moment(0) + kept + timedelta(hours=2))
    assert all(rows(store, f"SELECT count(*) FROM {table}") == [(0,)] for table in tables)


def test_an_exporter_that_starts_again_counts_anew_and_says_that_it_joined_late(
    store: Store,
) -> None:
    listener = Listener()
    listener.hear(stored([1, 2]))
    write_drained(store, listener.tracker.drain(moment(1)))
    again = Listener()
    assert again.hear(removed([1]), sequence=1, seconds=2).name == "GAP"
    again.tracker.give_up(STREAM, "joined late")
    again.hear(removed([1]), stored([3]), sequence=1, seconds=2)
    write_drained(store, again.tracker.drain(moment(3)))
    assert again.cache().resident_blocks == 1
    (total,) = rows(
        store, "SELECT sum(stored_blocks)::INT, arg_max(uncertain, heard) FROM block_minutes"
    )
    assert total == (3, "joined late")


CANARY_TOKENS = [1_234_567_891 + place for place in range(48)]
CANARY_SALT, CANARY_ADAPTER = "canary-salt-of-acme", "canary-adapter"


def test_no_token_no_salt_and_no_key_reaches_a_file(tmp_path: Path) -> None:
    """Every byte of every file, after a run that stored, touched, drained, failed and closed."""
    opened = Store.open(tmp_path / "store", SMALL)
    listener = Listener(chains=True)
    listener.tracker = Tracker(opened.key)
    chain = hashes_of([1, 2, 3])
    keys: list[Any] = [[CANARY_ADAPTER, CANARY_SALT], [CANARY_ADAPTER], [CANARY_ADAPTER]]
    listener.hear(
        stored(chain, tokens=CANARY_TOKENS, extra_keys=keys, lora_name=CANARY_ADAPTER),
        stored([99], tokens=CANARY_TOKENS[:16], cache_salt=CANARY_SALT, medium="CPU"),
    )
    broken = payload([stored([1], tokens=[CANARY_SALT])], 1)
    listener.tracker.hear(STREAM, 1, broken, moment(1))
    listener.hear(removed(chain), sequence=2, seconds=2)
    write_drained(opened, listener.tracker.drain(moment(3)))
    compact(opened)
    shown = repr(listener.tracker.snapshot())
    opened.close()
    needles = [CANARY_SALT.encode(), CANARY_ADAPTER.encode()]
    needles += [str(CANARY_TOKENS[0]).encode(), CANARY_TOKENS[0].to_bytes(4, "little")]
    needles += [CANARY_TOKENS[0].to_bytes(4, "big")]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        assert not [needle for needle in needles if needle in content], path.name
    assert CANARY_SALT not in shown
