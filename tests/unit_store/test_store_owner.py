"""One process owns the file, opens it once, and whoever is turned away is told what to do."""

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from exporter.errors import PrefixscopeError, StoreLocked
from exporter.store.owner import OWNER_FILE, write_owner
from exporter.store.store import FILE_NAME, Store, StoreSettings
from tests.log_path import NOON, SMALL, hit_ratio, load

ROW = {"request_id": "a", "ts": NOON, "prompt_tokens": 10, "cached_tokens": 5}
OPEN = """
import sys
from pathlib import Path
from exporter.errors import PrefixscopeError
from exporter.store.store import Store
try:
    Store.open(Path(sys.argv[1]))
except PrefixscopeError as error:
    print(type(error).__name__, error)
"""


def in_another_process(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(directory)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_t69_a_second_process_is_told_who_owns_the_store(store: Store) -> None:
    said = in_another_process(store.directory)
    assert said.startswith("StoreLocked the store ")
    assert str(store.path) in said
    assert f"PID {os.getpid()}" in said
    assert "by default --url http://127.0.0.1:9465" in said
    write_owner(store.directory, "http://127.0.0.1:9777")
    assert "ask that exporter instead (--url http://127.0.0.1:9777)" in in_another_process(
        store.directory
    )
    # One that was left behind by another process tells nothing of this one.
    (store.directory / OWNER_FILE).write_text('{"pid": 1, "url": "http://127.0.0.1:9777"}')
    assert "9777" not in in_another_process(store.directory)
    load(store, [ROW])
    assert hit_ratio(store)["cached_tokens"] == 5, "the owner is not disturbed"


def test_t69_the_store_is_free_once_its_owner_is_gone(store: Store) -> None:
    store.close()
    assert in_another_process(store.directory) == ""


def test_t70_one_connection_serves_readers_beside_the_writer(store: Store) -> None:
    readers = [store.cursor() for _ in range(5)]
    with store.write() as cursor:
        cursor.execute("INSERT INTO meta VALUES ('k', 'v')")
        seen = [r.execute("SELECT count(*) FROM meta WHERE key = 'k'").fetchone() for r in readers]
        assert seen == [(0,)] * 5, "nobody sees half a transaction"
    seen = [r.execute("SELECT count(*) FROM meta WHERE key = 'k'").fetchone() for r in readers]
    assert seen == [(1,)] * 5


@pytest.mark.parametrize("settings", [SMALL, StoreSettings(memory_limit="300MB")])
def test_t70_opening_twice_in_one_process_is_refused_in_words(
    store: Store, settings: StoreSettings
) -> None:
    with pytest.raises(StoreLocked, match="already open in this process"):
        Store.open(store.directory, settings)
    load(store, [ROW])
    store.close()
    again = Store.open(store.directory, settings)
    assert hit_ratio(again)["cached_tokens"] == 5
    again.close()


@pytest.mark.parametrize(("chosen", "for_loads"), [(1, 2), (3, 3)])
def test_a_large_load_takes_two_threads_and_leaves_one(
    tmp_path: Path, chosen: int, for_loads: int
) -> None:
    """DuckDB's own default, one a core, needs more than the memory limit where cores are many."""
    store = Store.open(tmp_path, StoreSettings(threads=chosen))

    def threads() -> list[tuple[int]]:
        return store.cursor().execute("SELECT current_setting('threads')").fetchall()

    assert threads() == [(chosen,)]
    with store.large_load():
        assert threads() == [(for_loads,)]
    assert threads() == [(chosen,)]
    store.close()


def test_write_is_all_or_nothing(store: Store) -> None:
    def stop_half_way() -> None:
        with store.write() as cursor:
            cursor.execute("INSERT INTO meta VALUES ('half', 'done')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stop_half_way()
    assert store.cursor().execute("SELECT 1 FROM meta WHERE key = 'half'").fetchall() == []
    store.set_meta("whole", "done")
    assert store.cursor().execute("SELECT value FROM meta WHERE key = 'whole'").fetchall()


def test_store_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    store.set_meta("schema_version", "999")
    store.close()
    with pytest.raises(PrefixscopeError, match=r"schema version 999.*upgrade prefixscope"):
        Store.open(tmp_path / "store", SMALL)
    with duckdb.connect(str(tmp_path / "store" / FILE_NAME)) as connection:
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'")
        assert version.fetchone() == ("999",)


def test_store_of_an_unreleased_build_with_other_columns_is_refused_at_once(tmp_path: Path) -> None:
    """It would open, and then take no rows."""
    store = Store.open(tmp_path / "store", SMALL)
    store.set_meta("definitions", "of another build")
    with store.write() as cursor:
        cursor.execute("ALTER TABLE rejects DROP COLUMN excerpt")
    store.close()
    with pytest.raises(PrefixscopeError, match="table rejects has other columns: move it away"):
        Store.open(tmp_path / "store", SMALL)


def test_definitions_of_another_release_are_replaced_and_rows_stay(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", SMALL)
    load(store, [ROW])
    store.set_meta("definitions", "of another release")
    with store.write() as cursor:
        cursor.execute("CREATE OR REPLACE VIEW reject_totals AS SELECT 'old' AS source")
    store.close()
    again = Store.open(tmp_path / "store", SMALL)
    assert again.cursor().execute("SELECT count(*) FROM reject_totals").fetchone() == (0,)
    assert hit_ratio(again)["cached_tokens"] == 5
    again.close()


def test_a_file_that_is_no_store_and_a_place_that_is_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "garbage").mkdir()
    (tmp_path / "garbage" / FILE_NAME).write_bytes(b"this is no database" * 1000)
    with pytest.raises(PrefixscopeError, match=r"cannot open the store .*garbage"):
        Store.open(tmp_path / "garbage", SMALL)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PrefixscopeError, match=r"cannot create the store .*file"):
        Store.open(tmp_path / "file" / "store", SMALL)
