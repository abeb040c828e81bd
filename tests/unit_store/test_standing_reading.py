"""A reading that stays running gives what the same reading gives when it is run for each batch."""

import io
import itertools
from random import Random
from typing import Any

import duckdb
import pytest

from exporter.sources.formats import FORMATS, format_named
from exporter.sources.formats.mapping import LogFormat
from exporter.sources.lines import LineBatch, LineReader
from exporter.store import standing
from exporter.store.append import Stream, append
from exporter.store.store import Store
from tests import strategies
from tests.log_path import NOON, ndjson, requests, utc

NDJSON = format_named("ndjson")
ARRIVED = utc("2026-03-02 12:05")


def batch(rows: list[Any]) -> LineBatch:
    (lines,) = LineReader(io.BytesIO(ndjson(rows)))
    return lines


def fine(name: str) -> dict[str, Any]:
    return {"request_id": name, "ts": NOON, "prompt_tokens": 1000, "cached_tokens": 500}


def stored(store: Store, source: str) -> list[dict[str, Any]]:
    rows = [{**row, "source": None, "batch": None} for row in requests(store, source)]
    return sorted(rows, key=repr)


@pytest.mark.parametrize("log_format", FORMATS, ids=lambda log_format: log_format.name)
def test_standing_reading_is_the_one_run_once(shared_store: Store, log_format: LogFormat) -> None:
    if log_format.reshape or log_format.documents:
        pytest.skip("its rows are no lines of the table")
    chance = Random(log_format.name)
    batches = [
        batch([strategies.line_of(log_format, chance) for _ in range(chance.choice([1, 7, 40]))])
        for _ in range(3)
    ]
    for way in ("once", "standing"):
        stream = Stream(f"{way} {log_format.name}", log_format, "file", began=ARRIVED)
        for lines in batches:
            if way == "once":  # a reading nobody knows of is run once
                shared_store.readings.forget()
            append(shared_store, lines, stream, ARRIVED)
    once, standing = (stored(shared_store, f"{s} {log_format.name}") for s in ("once", "standing"))
    assert once == standing
    assert once, "no line was a good one, so nothing was compared"


def test_standing_reading_hands_on_every_row_of_a_batch_and_no_other(store: Store) -> None:
    stream = Stream("log", NDJSON, "file")
    for number in range(8):
        rows = [fine(f"{number}-{n}") for n in range(number * 300)] or ["{"]
        assert append(store, batch(rows), stream).accepted == number * 300
    assert len(requests(store)) == sum(number * 300 for number in range(8))


def test_rows_that_repeat_one_another_are_settled_in_a_standing_reading_too(store: Store) -> None:
    """By hand: of four rows of one id one stays with its first attempt and one with its second, one
    is the first again, and one contradicts it."""
    stream = Stream("log", NDJSON, "file")
    for name in "ab":
        append(store, batch([fine(name)]), stream)
    row = fine("c")
    result = append(
        store, batch([row, row, {**row, "attempt": 2}, {**row, "cached_tokens": 0}]), stream
    )
    assert (result.accepted, result.duplicate, result.conflicting) == (2, 1, 1)
    assert append(store, batch([fine("a"), fine("d")]), stream).duplicate == 1
    assert [(r["request_id"], r["attempt"]) for r in requests(store)] == [
        ("a", 1), ("b", 1), ("c", 1), ("c", 2), ("d", 1)
    ]  # fmt: skip


def test_batch_without_a_line_to_hand_on_tells_of_its_bad_lines(store: Store) -> None:
    stream = Stream("log", NDJSON, "file")
    for name in "ab":
        append(store, batch([fine(name)]), stream)
    (lines,) = LineReader(io.BytesIO(b'{"request_id": "\xff"}\n'))
    assert append(store, lines, stream).reasons == {"invalid_utf8": 1}
    assert append(store, batch([fine("c")]), stream).accepted == 1


def test_batch_after_a_failed_one_is_stored_whole(store: Store) -> None:
    stream = Stream("log", NDJSON, "file")

    def fail(_: duckdb.DuckDBPyConnection) -> None:
        raise RuntimeError("the disk is full")

    for name in "abc":
        append(store, batch([fine(name)]), stream)
    with pytest.raises(RuntimeError):
        append(store, batch([fine("lost"), "{"]), stream, also=fail)
    for name in "def":
        append(store, batch([fine(name), "{"]), stream)
    assert sorted(row["request_id"] for row in requests(store)) == list("abcdef")


def test_more_sources_than_readings_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    monkeypatch.setattr(standing, "_KEPT", 2)
    for _ in range(3):
        for source in (0, 0, 1, 1, 2, 2):
            stream = Stream(f"log {source}", NDJSON, "file")
            assert append(store, batch([fine(str(next(numbers)))]), stream).accepted == 1
    assert len(requests(store)) == 18
