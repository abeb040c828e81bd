"""Rows that come late, go, come again, or move while they are read: each counts once."""

import contextlib
import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from exporter.sources.log_settings import LogSettings
from exporter.sources.passes import PassFollower
from exporter.sources.spend_logs import intake
from exporter.sources.spend_logs.database import Database, DatabaseError, Rows
from exporter.sources.spend_logs.follow import follow_database
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.sources.spend_logs.place import SpendLogSettings
from exporter.store.store import Store
from tests.log_path import SMALL, ask
from tests.running import ENVIRONMENT, ROOT, eventually
from tests.unit_spend_logs.conftest import TABLE, Owner, ReaderOf, make_slow
from tests.unit_spend_logs.spend_rows import minutes_ago, prompts, row


def tallied(store: Store) -> dict[str, int]:
    """What the store says of the rows it was given."""
    (health,) = ask(store, "ingest_health")
    return {name: health[name] for name in ("accepted", "duplicate", "conflicting", "rejected")}


ALL_ONCE = {"duplicate": 0, "conflicting": 0, "rejected": 0}


@pytest.fixture
def before_query(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """Does something before the nth query from now, 0 being the first."""
    asked: Callable[..., Rows] = Database.rows

    def install(number: int, action: Callable[[], object]) -> None:
        count = itertools.count()

        def rows(self: Database, query: str, *values: object) -> Rows:
            if next(count) == number:
                action()
            return asked(self, query, *values)

        monkeypatch.setattr(Database, "rows", rows)

    return install


# ---------------------------------------------------------------- late, gone, again


def test_late_rows_are_taken_within_the_window(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """A request that ended long after younger ones appears long after them."""
    owner.add(row(n, minutes_ago(50 - n)) for n in range(10))
    reader = reader_of(owner)
    reader.run()
    owner.add([row(50, minutes_ago(55)), row(51, minutes_ago(45.5)), row(52, minutes_ago(0))])
    assert reader.run().accepted == 3
    assert reader.run().accepted == 0
    assert prompts(store) == [*range(100, 110), 150, 151, 152]
    assert tallied(store) == {"accepted": 13, **ALL_ONCE}


def test_rows_later_than_the_window_are_not_seen(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """That is what the window costs; a wider one sees them."""
    owner.add([row(1, minutes_ago(5))])
    reader_of(owner, overlap_seconds=600).run()
    owner.add([row(2, minutes_ago(30))])
    assert reader_of(owner, overlap_seconds=600).run().accepted == 0
    assert prompts(store) == [101]


def test_deleted_rows_stay_counted_and_reinserted_ones_are_not_counted_again(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    rows = [row(n, minutes_ago(90 - 10 * n)) for n in range(8)]
    owner.add(rows)
    reader = reader_of(owner)
    reader.run()
    owner.run(f"DELETE FROM {TABLE}")
    assert reader.run().accepted == 0
    owner.add(rows)
    summary = reader.run()
    assert (summary.accepted, summary.duplicate) == (0, 0)
    assert prompts(store) == list(range(100, 108))


def test_a_row_that_comes_again_with_another_time_is_a_duplicate(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    owner.add([row(1, minutes_ago(30))])
    reader = reader_of(owner)
    reader.run()
    owner.run(f"DELETE FROM {TABLE}")
    owner.add([row(1, minutes_ago(20))])
    summary = reader.run()
    assert (summary.accepted, summary.duplicate) == (0, 1)
    assert prompts(store) == [101]


def test_a_table_emptied_and_filled_by_retention_is_followed_on(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """LiteLLM's clean-up deletes from the old end while new rows come."""
    reader = reader_of(owner)
    for number in range(6):
        owner.add([row(number, minutes_ago(6 - number))])
        if number % 2:
            owner.run(f"DELETE FROM {TABLE} WHERE request_id < 'r-{number:05}'")
        reader.run()
    assert prompts(store) == list(range(100, 106))
    assert tallied(store) == {"accepted": 6, **ALL_ONCE}


def test_rows_with_a_time_ahead_of_the_clock_hold_nothing_up(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    owner.add([row(1, minutes_ago(-120)), row(2, minutes_ago(3))])
    reader = reader_of(owner)
    reader.run()
    owner.add([row(3, minutes_ago(2)), row(4, minutes_ago(-60))])
    reader.run()
    assert prompts(store) == [101, 102, 103, 104]
    assert tallied(store) == {"accepted": 4, **ALL_ONCE}


# ---------------------------------------------------------------- while it is read


REWRITES = {
    "vacuum full": [f"VACUUM FULL {TABLE}"],
    "every row": [f"UPDATE {TABLE} SET spend = spend + 1"],
    "another table in its place": [
        f"CREATE TABLE copied (LIKE {TABLE} INCLUDING ALL)",
        f"INSERT INTO copied SELECT * FROM {TABLE}",
        f"DROP TABLE {TABLE}",
        'ALTER TABLE copied RENAME TO "LiteLLM_SpendLogs"',
        f"GRANT SELECT ON {TABLE} TO reader",
    ],
    "a migration": [
        f"ALTER TABLE {TABLE} ADD COLUMN more TEXT DEFAULT 'x'",
        f'ALTER TABLE {TABLE} ALTER COLUMN "endTime" TYPE TIMESTAMP(6)',
    ],
    "another order": [f'CLUSTER {TABLE} USING "LiteLLM_SpendLogs_litellm_call_id_idx"'],
}


@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize("number", [4, 7])
def test_a_table_rewritten_while_it_is_read(
    owner: Owner, reader_of: ReaderOf, store: Store, rewrite: str, number: int,
    before_query: Callable[[int, Callable[[], object]], None],
) -> None:  # fmt: skip
    owner.add(map(row, range(12)))
    before_query(number, lambda: [owner.run(part) for part in REWRITES[rewrite]])
    reader = reader_of(owner)
    reader.run()
    reader.run()
    assert prompts(store) == list(range(100, 112))
    assert tallied(store) == {"accepted": 12, **ALL_ONCE}


def test_rows_that_come_and_go_while_it_is_read(
    owner: Owner, reader_of: ReaderOf, store: Store,
    before_query: Callable[[int, Callable[[], object]], None],
) -> None:  # fmt: skip
    """More rows between two keys than a page holds, and a page gone when it is asked for."""
    begun = [minutes_ago(40 - n) for n in range(12)]
    owner.add(row(n, begun[n]) for n in range(12))

    def change() -> None:
        owner.add(row(100 + n, begun[4]) for n in range(9))
        owner.run(f"DELETE FROM {TABLE} WHERE request_id IN ('r-00009', 'r-00010', 'r-00011')")

    before_query(6, change)  # between the keys of the second page and its rows
    reader = reader_of(owner)
    reader.run()
    reader.run()
    assert prompts(store) == [*range(100, 109), *range(200, 209)]
    assert tallied(store) == {"accepted": 18, **ALL_ONCE}


# ---------------------------------------------------------------- broken off


class _Broken(Exception):
    """Like a kill: nobody catches it."""


def test_t71_broken_off_before_any_query_nothing_is_lost_or_doubled(
    owner: Owner, store: Store, password: str, monkeypatch: pytest.MonkeyPatch,
    before_query: Callable[[int, Callable[[], object]], None],
) -> None:  # fmt: skip
    """Old rows, rows of one moment across the border of pages, and rows in the window."""
    monkeypatch.setattr(intake, "BATCH_BYTES", 2000)  # some rows a transaction
    moment = minutes_ago(61)
    owner.add(row(n, minutes_ago(300 - n)) for n in range(3))
    owner.add(row(n, moment) for n in range(3, 6))
    owner.add(row(n, minutes_ago(30 - n)) for n in range(6, 8))
    address = owner.server.address(owner.database)
    settings = SpendLogSettings(page_rows=2)

    def fail() -> None:
        raise error

    for number in range(12):  # of these queries eleven are for the rows
        source = f"broken {number}"
        error = DatabaseError("lost") if number % 2 else _Broken()
        before_query(number, fail)
        with contextlib.suppress(_Broken):
            SpendLogReader(store, address, source=source, settings=settings).run()
        before_query(-1, fail)
        reader = SpendLogReader(store, address, source=source, settings=settings)
        assert reader.run().duplicate == 0
        assert prompts(store, source) == list(range(100, 108))


def test_t71_a_store_that_fails_to_take_rows_is_given_them_again(
    owner: Owner, reader_of: ReaderOf, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and bookmark are one transaction: without the one there is not the other."""
    owner.add(map(row, range(8)))
    reader = reader_of(owner)

    def full(*_: object) -> None:
        raise duckdb.IOException("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(reader._bookmark, "move", full)
        with pytest.raises(duckdb.IOException):
            reader.run()
    assert prompts(store) == []
    assert reader.run().accepted == 8
    assert tallied(store) == {"accepted": 8, **ALL_ONCE}


CHILD = """
import sys
from pathlib import Path
import exporter.sources.spend_logs.intake as intake
from exporter.sources.spend_logs.place import SpendLogSettings
from exporter.store.store import Store

intake.BATCH_BYTES = 20_000
store = Store.open(Path(sys.argv[1]))
reader = intake.SpendLogReader(
    store, sys.argv[2], source="litellm", settings=SpendLogSettings(page_rows=20))
print("reading", flush=True)
reader.run(lambda _: print("page", flush=True))
store.close()
"""
KILLS, ROWS = 3, 1500


@pytest.mark.parametrize("seed", [20261130])
def test_t71_kill_loses_and_doubles_no_row(
    owner: Owner, tmp_path: Path, password: str, seed: int
) -> None:
    moments = random.Random(seed)
    owner.add([row(0)])
    owner.run(
        f"""INSERT INTO {TABLE} (request_id, call_type, prompt_tokens, "startTime", "endTime")
        SELECT 'r-' || i, 'acompletion', 100 + i, at, at FROM (
            SELECT i, (now() AT TIME ZONE 'UTC') - interval '3 h' + i * interval '7 s' AS at
            FROM generate_series(1, {ROWS - 1}) AS i) AS made"""
    )
    directory, address = tmp_path / "killed", owner.server.address(owner.database)
    environment = ENVIRONMENT | {"PGPASSWORD": password}
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(directory), address],
            stdout=subprocess.PIPE, cwd=ROOT, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        for _ in range(moments.randint(2, 12)):
            process.stdout.readline()
        time.sleep(moments.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stdout.close()
    store = Store.open(directory, SMALL)
    SpendLogReader(store, address, source="litellm").run()
    assert prompts(store) == list(range(100, 100 + ROWS))
    assert tallied(store) == {"accepted": ROWS, **ALL_ONCE}
    store.close()


# ---------------------------------------------------------------- the follower


Follow = Callable[..., PassFollower]


@pytest.fixture
def follow(owner: Owner, store: Store, password: str) -> Iterator[Follow]:
    started: list[PassFollower] = []

    def start(**settings: object) -> PassFollower:
        path = owner.server.address(owner.database)
        given = {"source": "litellm", "path": path, **settings}
        started.append(follow_database(store, LogSettings.model_validate(given)))
        return started[-1]

    yield start
    for follower in started:
        follower.stop()


def _until(reached: Callable[[], bool]) -> None:
    eventually("such answer of the database", reached)


def test_new_rows_are_taken_while_it_runs(owner: Owner, store: Store, follow: Follow) -> None:
    follower = follow(postgres={"poll_seconds": 0.05})
    owner.add([row(1, minutes_ago(2))])
    follower.start()
    _until(lambda: prompts(store) == [101])
    owner.add([row(0, minutes_ago(5)), row(2, minutes_ago(1))])
    _until(lambda: prompts(store) == [100, 101, 102])
    assert follower.alive
    follower.stop()
    assert not follower.alive
    assert follower.errors == []


def test_begin_at_the_end_leaves_what_is_there(owner: Owner, store: Store, follow: Follow) -> None:
    owner.add([row(1, minutes_ago(2))])
    first = follow(begin="end")
    first.poll_once()
    owner.add([row(2, minutes_ago(-0.1))])
    first.poll_once()
    assert prompts(store) == [102]
    owner.add([row(3, minutes_ago(-0.2))])
    follow(begin="end").poll_once()  # a restart is no first start
    assert prompts(store) == [102, 103]


def test_defaults_fill_what_rows_do_not_have(owner: Owner, store: Store, follow: Follow) -> None:
    owner.add([row(1)])
    follow(defaults={"route": "chat"}).poll_once()
    (found,) = store.cursor().execute("SELECT route, source FROM requests").fetchall()
    assert found == ("chat", "litellm")


def test_problems_are_logged_once_and_over_when_they_are(
    owner: Owner, store: Store, follow: Follow, caplog: pytest.LogCaptureFixture, password: str
) -> None:
    caplog.set_level("INFO", logger="exporter.sources.passes")
    owner.run(f"ALTER TABLE {TABLE} RENAME TO away")
    follower = follow()
    for _ in range(3):
        follower.poll_once()
    assert "there is no table" in follower.errors[0]
    owner.run('ALTER TABLE away RENAME TO "LiteLLM_SpendLogs"')
    follower.poll_once()
    assert follower.errors == []
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert password not in caplog.text


def test_stopping_does_not_wait_for_the_database(
    owner: Owner, store: Store, follow: Follow
) -> None:
    """A query that would take a minute is cancelled, here and on the server."""
    owner.add([row(1)])
    make_slow(owner, 60)
    follower = follow(postgres={"statement_timeout_seconds": 120})
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    follower.start()
    _until(lambda: bool(owner.value(asleep)))
    began = time.monotonic()
    follower.stop()
    assert time.monotonic() - began < 30
    _until(lambda: not owner.value(asleep))
    assert prompts(store) == []
