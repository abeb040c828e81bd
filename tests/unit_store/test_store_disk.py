"""A disk that is full for a while: what was acknowledged is there, what was not comes once."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from exporter.store.database import is_of_disk
from exporter.store.store import FILE_NAME, Store
from exporter.store.trouble import SeldomAboutTheDisk
from tests.full_disk import no_file_beyond
from tests.log_path import SMALL, load

TOKENS = 10


def post(store: Store, first: int, count: int = 200) -> int:
    rows = [
        {"request_id": f"r{n:05}", "ts": datetime.now(UTC).isoformat(), "model": "m",
         "prompt_tokens": TOKENS, "cached_tokens": 0}
        for n in range(first, first + count)
    ]  # fmt: skip
    return load(store, rows, origin="http").accepted


def kept(store: Store) -> int:
    cursor = store.cursor()
    [(rows, ids)] = cursor.execute("SELECT count(*), count(DISTINCT request_id) FROM requests"
        ).fetchall()  # fmt: skip
    assert rows == ids, "nothing twice"
    return int(rows)


def counted(store: Store) -> int:
    """Requests as /metrics has them."""
    store.fold()
    rows = store.counters.snapshot().requests.values()
    return sum(row.prompt_tokens for row in rows) // TOKENS


def sizes(store: Store) -> tuple[int, int]:
    """Bytes of the file and of its log of changes."""
    log = store.path.with_name(FILE_NAME + ".wal")
    return store.path.stat().st_size, log.stat().st_size if log.exists() else 0


@pytest.fixture
def file_of_some_size(tmp_path: Path) -> Iterator[Store]:
    """As large as the log of changes may become in a test, and without free room within."""
    opened = Store.open(tmp_path / "store", SMALL)
    with opened.write() as cursor:
        cursor.execute(
            "CREATE TABLE room AS SELECT md5(i::VARCHAR) AS text FROM range(20_000) made(i)"
        )
    opened.cursor().execute("CHECKPOINT")
    yield opened
    opened.close()


def full_at_the_next_checkpoint(store: Store) -> AbstractContextManager[None]:
    store.cursor().execute(f"SET GLOBAL checkpoint_threshold = '{sizes(store)[1] + 1000}B'")
    return no_file_beyond(sizes(store)[0] + 1000)


def test_a_commit_whose_checkpoint_finds_no_room_is_refused_and_comes_again(
    file_of_some_size: Store,
) -> None:
    """DuckDB gives the file up: it answers nothing more from it until it is attached anew."""
    store = file_of_some_size
    post(store, 0)
    with full_at_the_next_checkpoint(store):
        with pytest.raises(duckdb.TransactionException, match="Checkpoint failed"):
            post(store, 200)
        assert kept(store) == 200, "questions are answered"
        assert post(store, 200) == 200, "there is room for the log of changes"
        assert kept(store) == counted(store) == 400
    directory = store.directory
    store.close()
    again = Store.open(directory, SMALL)
    assert kept(again) == counted(again) == 400
    again.close()


def test_a_file_that_a_question_still_holds_is_tried_again(
    file_of_some_size: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that began before goes on for a while, and DuckDB keeps the file for it."""
    store = file_of_some_size

    def in_use(*_: object) -> None:
        raise duckdb.ResourceInUseException("already attached")

    with monkeypatch.context() as patched:
        patched.setattr("exporter.store.store.attach_anew", in_use)
        with full_at_the_next_checkpoint(store), pytest.raises(duckdb.TransactionException):
            post(store, 0)
        for tried in (lambda: post(store, 0), lambda: kept(store)):
            with pytest.raises(duckdb.OperationalError) as refused:
                tried()
            assert is_of_disk(refused.value)
    assert kept(store) == 0, "a question opens it as well as a writer"
    assert post(store, 0) == 200
    assert kept(store) == counted(store) == 200


def test_a_commit_that_was_stored_counts_though_the_checkpoint_after_it_failed(
    file_of_some_size: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_of_some_size
    with full_at_the_next_checkpoint(store):
        for _ in range(3):
            with store.write() as cursor:
                cursor.execute("INSERT INTO room SELECT 'more' FROM range(2_000)")
    assert "COMMIT succeeded" in caplog.text
    more = store.cursor().execute("SELECT count(*) FROM room WHERE text = 'more'").fetchall()
    assert more == [(6_000,)]


def test_a_checkpoint_asked_for_that_finds_no_room(tmp_path: Path) -> None:
    """As the hourly forgetting does."""
    store = Store.open(tmp_path, SMALL)
    post(store, 0)
    store.cursor().execute("CHECKPOINT")
    post(store, 200)
    with no_file_beyond(sizes(store)[0] + 1000):
        with pytest.raises(duckdb.IOException, match="invalidated"), store.write() as cursor:
            cursor.execute("CHECKPOINT")
        assert kept(store) == 400
    assert store.trouble.now is not None
    assert post(store, 400) == 200
    assert kept(store) == counted(store) == 600
    store.close()


def test_rows_without_room_are_refused_and_come_again(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    post(store, 0)
    store.fold()
    post(store, 200)
    caplog.set_level(logging.INFO)
    with no_file_beyond(sizes(store)[1] + 1000):
        for _ in range(3):
            with pytest.raises(duckdb.Error) as refused:
                post(store, 400)
            assert is_of_disk(refused.value)
        with pytest.raises(duckdb.Error, match="Could not write file"):
            store.fold()
        assert kept(store) == 400
    assert counted(store) == 400, "what could not be folded waits, also where no further row comes"
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"], "said once"
    assert post(store, 400) == 200
    assert kept(store) == counted(store) == 600


def test_only_the_disk_is_told_as_trouble_with_the_disk(store: Store) -> None:
    with pytest.raises(duckdb.Error) as refused, store.write() as cursor:
        cursor.execute("INSERT INTO meta VALUES ('a', 'prompt'), ('a', 'prompt')")
    assert not is_of_disk(refused.value)
    assert store.trouble.now is None


def test_what_is_tried_often_says_seldom_that_the_disk_refuses() -> None:
    seldom = SeldomAboutTheDisk()

    def said(name: str, error: Exception) -> str | None:
        facts = (type(error), error, None)
        record = logging.LogRecord(name, logging.ERROR, "x.py", 1, "%s fails", ("this",), facts)
        return logging.Formatter().format(record) if seldom.filter(record) else None

    full = duckdb.IOException("100% full")
    assert said("scrape", full) == "this fails: 100% full"
    assert said("scrape", full) is None
    assert said("prices", full) == "this fails: 100% full"
    assert said("scrape", ValueError("no disk")) == said("scrape", ValueError("no disk"))


def test_rows_for_a_file_that_is_not_there_any_more_are_refused(tmp_path: Path) -> None:
    """DuckDB would take them into the removed file, and lose them with it."""
    store = Store.open(tmp_path / "store", SMALL)
    post(store, 0)
    (tmp_path / "store").rename(tmp_path / "moved")
    with pytest.raises(duckdb.IOException, match="removed or moved") as refused:
        post(store, 200)
    assert is_of_disk(refused.value)
    assert store.trouble.now is not None
    assert kept(store) == 200
    (tmp_path / "moved").rename(tmp_path / "store")
    assert post(store, 200) == 200
    assert store.trouble.now is None
    assert kept(store) == counted(store) == 400
    (tmp_path / "store").rename(tmp_path / "moved")
    store.close()
    assert not (tmp_path / "store").exists()
