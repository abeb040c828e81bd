"""A load takes few, large transactions; what fails in one leaves nothing of it."""

import io
import json
import math
from pathlib import Path

import pytest

from exporter.sources.intake import Intake
from exporter.sources.lines import STEP_BYTES
from exporter.store import feed
from exporter.store import store as opened
from exporter.store.store import Store
from tests.log_path import NOON, load, requests


def batches(store: Store) -> int:
    [(count,)] = store.cursor().execute("SELECT count(*) FROM ingest_batches").fetchall()
    return int(count)


def rows(count: int, **more: object) -> bytes:
    made = ({"request_id": f"r{n}", "ts": NOON, "prompt_tokens": 10, **more} for n in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in made)


class Breaking(io.BytesIO):
    """A file on a disk that fails after its first megabytes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 1 << 24:
            raise OSError(5, "Input/output error")
        return super().read(size)


def test_a_disk_that_fails_is_named_and_leaves_nothing_half_stored(store: Store) -> None:
    data = rows(80_000, session="s" * 200)
    assert len(data) > 1 << 24
    with pytest.raises(OSError, match="Input/output error"):
        Intake(store).ingest(Breaking(data), source="log", format="ndjson")
    assert requests(store) == []
    # Nothing is in the way of the next try.
    load(store, data)
    assert len(requests(store)) == 80_000


def test_a_file_is_one_transaction_until_it_fills_its_row_groups(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(store, rows(80_000, session="s" * 200))
    assert batches(store) == 1
    monkeypatch.setattr(feed, "_ROWS", 40_000)
    load(store, rows(80_000, session="t" * 200), "again")
    assert batches(store) == 3


def test_a_load_keeps_few_pages_of_what_it_loaded_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB keeps every page it wrote, up to its memory limit: a load would grow by them."""
    cursor = store.cursor()

    def held_bytes() -> int:
        asked = "SELECT sum(memory_usage_bytes) FROM duckdb_memory()"
        [(figure,)] = cursor.execute(asked).fetchall()
        return int(figure)

    kept = """SELECT sum(prompt_tokens * length(request_id)), current_setting('memory_limit')
        FROM requests"""
    load(store, rows(80_000, session="s" * 200))
    before = cursor.execute(kept).fetchall()
    assert held_bytes() > 1_500_000
    monkeypatch.setattr(opened, "_PAGES_LEFT", "1MB")
    for _ in range(2):  # the second time there is nothing to forget
        with store.large_load():
            assert held_bytes() <= 1_000_000
    # Refused, as nothing fits: all goes on as it was.
    monkeypatch.setattr(opened, "_PAGES_LEFT", "1B")
    with store.large_load():
        pass
    assert cursor.execute(kept).fetchall() == before


def test_doubtful_rows_are_held_a_bite_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_ASIDE_BYTES", 1 << 20)
    data = rows(80_000, session="s" * 200, cached_tokens=11)  # more cached than prompt
    load(store, data)
    assert len(requests(store)) == 80_000
    # Each step is beyond the bite; another one may be under way when that is noticed.
    steps = math.ceil(len(data) / STEP_BYTES)
    assert steps / 2 <= batches(store) <= steps


def test_over_http_each_block_of_lines_is_stored_by_itself(store: Store, tmp_path: Path) -> None:
    load(store, rows(80_000, session="s" * 200), origin="http")
    assert batches(store) == 2
