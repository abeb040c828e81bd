"""The file of a store: small row groups, whoever made it, and what it is when others open it."""

import shutil
from pathlib import Path

import duckdb
import pytest

from exporter.errors import PrefixscopeError
from exporter.store.database import cursor_beside
from exporter.store.store import FILE_NAME, KEY_NAME, Store
from exporter.store.store import _key as secret
from tests.full_disk import no_file_beyond

_ROWS = """INSERT INTO rejects SELECT TIMESTAMP '2026-03-01', 'log', 'ndjson', NULL, i, i,
    'too_long', 'row ' || i, NULL FROM range({}) made(i)"""
_GROUPS = """SELECT list(rows ORDER BY id) FROM (
    SELECT row_group_id AS id, sum(count)::BIGINT AS rows FROM pragma_storage_info('rejects')
    WHERE column_name = 'position' AND segment_type = 'BIGINT' GROUP BY ALL)"""


def groups(store: Store) -> list[int]:
    cursor = store.cursor()
    cursor.execute("CHECKPOINT")
    [(found,)] = cursor.execute(_GROUPS).fetchall()
    return [int(rows) for rows in found]


def add(store: Store, rows: int) -> None:
    with store.write() as cursor:
        cursor.execute(_ROWS.format(rows))


def test_row_groups_are_small_however_rows_come(tmp_path: Path) -> None:
    """A checkpoint writes the last one anew, so no more rows than these wait for it."""
    store = Store.open(tmp_path)
    add(store, 70_000)
    assert groups(store) == [30_720, 30_720, 70_000 - 2 * 30_720]
    for _ in range(40):
        add(store, 1_000)
    assert max(groups(store)) == 30_720
    assert sum(groups(store)) == 110_000
    store.close()


def test_a_file_with_large_row_groups_stays_and_grows_by_small_ones(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with duckdb.connect(str(tmp_path / FILE_NAME)) as plain:
        plain.execute(_ROWS.format(150_000))
    store = Store.open(tmp_path)
    add(store, 100_000)
    assert groups(store)[0] == 122_880
    assert max(groups(store)[2:]) <= 30_720
    with store.write() as cursor:
        cursor.execute("DELETE FROM rejects WHERE position % 2 = 0")
    store.close()
    again = Store.open(tmp_path)
    assert again.cursor().execute("SELECT count(*), sum(position) FROM rejects").fetchall() == [
        (125_000, 75_000**2 + 50_000**2)  # the odd numbers below 2 n sum up to n squared
    ]
    again.close()


def test_a_path_with_quotes_is_a_path(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s "mine"; --'
    store = Store.open(odd)
    store.set_meta("a", "b")
    store.close()
    with duckdb.connect(str(odd / FILE_NAME)) as plain:
        assert plain.execute("SELECT value FROM meta WHERE key = 'a'").fetchall() == [("b",)]


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database " * 1_000)
    with pytest.raises(PrefixscopeError, match=r"cannot open the store .*not a valid DuckDB"):
        Store.open(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == b"not a database " * 1_000


def test_the_file_of_an_open_store_is_not_opened_beside_it(tmp_path: Path) -> None:
    """Two that write one file, unknown to each other, would spoil it; locks are for processes."""
    store = Store.open(tmp_path)
    with pytest.raises(duckdb.Error, match="already attached"):
        duckdb.connect(str(tmp_path / FILE_NAME))
    store.close()


def test_a_further_cursor_sees_the_same_tables(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.set_meta("a", "b")
    read = "SELECT value FROM meta WHERE key = 'a'"
    assert cursor_beside(store.cursor()).execute(read).fetchall() == [("b",)]
    store.close()
    with duckdb.connect() as memory:
        memory.execute("CREATE TABLE meta AS SELECT 'a' AS key, 'in memory' AS value")
        assert cursor_beside(memory).execute(read).fetchall() == [("in memory",)]


@pytest.mark.parametrize("part", ["", ".wal"])
def test_a_damaged_file_is_told_with_what_to_do(tmp_path: Path, part: str) -> None:
    store = Store.open(tmp_path / "whole")
    add(store, 1_000)
    shutil.copytree(tmp_path / "whole", tmp_path / "hurt")  # as it is after a crash
    store.close()
    hurt = tmp_path / "hurt" / (FILE_NAME + part)
    content = bytearray(hurt.read_bytes())
    content[100] ^= 1
    hurt.write_bytes(content)
    with pytest.raises(PrefixscopeError, match=r"is damaged .*put a backup in its place"):
        Store.open(tmp_path / "hurt")
    assert hurt.read_bytes() == bytes(content)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_hashes_are_never_made_without_a_secret(tmp_path: Path, content: bytes) -> None:
    """As a crash or a full disk at the very first start could have left it."""
    key = tmp_path / KEY_NAME
    key.write_bytes(content)
    with pytest.raises(PrefixscopeError, match=r"hash\.key"):
        secret(tmp_path)
    key.unlink()
    assert secret(tmp_path) == secret(tmp_path) == key.read_text().strip()
    assert len(secret(tmp_path)) == 64
    assert key.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [key]


def test_a_secret_that_finds_no_room_leaves_none(tmp_path: Path) -> None:
    with no_file_beyond(10), pytest.raises(PrefixscopeError, match=r"hash\.key.*too large"):
        secret(tmp_path)
    assert not list(tmp_path.iterdir())
