"""The session can only read, and refusals name the remedy and no secret."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.spend_logs import database
from exporter.sources.spend_logs.database import Database, DatabaseError
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.sources.spend_logs.place import Address, SpendLogSettings, is_database_path
from exporter.store.store import Store
from tests.running import eventually, free_port
from tests.unit_spend_logs.conftest import TABLE, Owner, ReaderOf, make_slow
from tests.unit_spend_logs.server import OWNER_PASSWORD, READER_PASSWORD
from tests.unit_spend_logs.spend_rows import minutes_ago, prompts, row

SECRET = "s3cr3t-of-nobody"


@contextmanager
def session(owner: Owner, user: str, **settings: float) -> Iterator[Database]:
    address = Address.of(owner.server.address(owner.database, user))
    with Database(address, SpendLogSettings.model_validate(settings)) as database:
        yield database


# ---------------------------------------------------------------- only to read


def test_a_role_that_may_only_select_is_enough(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    owner.add([row(1)])
    assert owner.value(f"has_table_privilege('reader', '{TABLE}', 'INSERT,UPDATE,DELETE')") is False
    assert reader_of(owner).run().accepted == 1


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM {TABLE} RETURNING 1",
        f"UPDATE {TABLE} SET spend = 0 RETURNING 1",
        f"INSERT INTO {TABLE} SELECT * FROM {TABLE} RETURNING 1",
        f"WITH gone AS (DELETE FROM {TABLE} RETURNING 1) SELECT * FROM gone",
        f"DROP TABLE {TABLE}",
        f"TRUNCATE {TABLE}",
        "CREATE TABLE other (a int)",
        "ALTER ROLE reader SUPERUSER",
        "SELECT nextval('numbers')",
        f"SELECT 1 FROM {TABLE} FOR UPDATE",
    ],
)
def test_not_even_the_owner_can_write_through_our_session(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setenv("PGPASSWORD", OWNER_PASSWORD)
    owner.add([row(1)])
    owner.run("CREATE SEQUENCE numbers")
    assert owner.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'owner'") is True
    with session(owner, "owner") as database:
        with pytest.raises(DatabaseError, match="the session is read-only"):
            database.rows(statement)
        assert len(database.rows(f"SELECT 1 FROM {TABLE}")) == 1
    assert owner.value("SELECT last_value::int FROM numbers") == 1


def test_the_session_says_who_it_is_and_how_long_it_may_take(
    owner: Owner, reader_of: ReaderOf, password: str
) -> None:
    names = ("application_name", "default_transaction_read_only", "transaction_read_only",
             "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
             "TimeZone")  # fmt: skip
    shown = ", ".join(f"current_setting('{name}')" for name in names)
    with session(owner, "reader", statement_timeout_seconds=7) as database:
        [found] = database.rows(f"SELECT {shown}")
    assert tuple(found) == ("prefixscope", "on", "on", "7s", "5s", "7s", "UTC")


def test_no_session_stays_behind(owner: Owner, reader_of: ReaderOf) -> None:
    reader_of(owner).run()
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'prefixscope'"
    here = f"{ours} AND datname = '{owner.database}'"
    eventually("end of every session", lambda: owner.value(here) == 0)


# ---------------------------------------------------------------- refusals


def problems(reader: SpendLogReader) -> str:
    """The one problem of a pass."""
    reader.run()
    (problem,) = reader.problems
    return problem


def test_a_wrong_password(
    owner: Owner, reader_of: ReaderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(owner)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    said = problems(reader)
    assert "does not let reader in" in said
    assert "PGPASSWORD" in said
    assert "postgres.password_file" in said
    assert SECRET not in said


def test_no_password_at_all(
    owner: Owner, reader_of: ReaderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(owner)
    monkeypatch.delenv("PGPASSWORD")
    assert "give the password by" in problems(reader)


def test_no_such_table(empty: Owner, reader_of: ReaderOf) -> None:
    said = problems(reader_of(empty))
    assert 'there is no table "LiteLLM_SpendLogs" in the schema public' in said
    assert "?schema=NAME" in said


def test_no_right_to_read(owner: Owner, reader_of: ReaderOf) -> None:
    said = problems(reader_of(owner, "nobody"))
    assert "may not read" in said
    assert 'GRANT SELECT ON "public"."LiteLLM_SpendLogs"' in said


def test_no_right_to_the_columns_rows_are_known_by(owner: Owner, reader_of: ReaderOf) -> None:
    owner.run(
        f"REVOKE SELECT ON {TABLE} FROM reader; GRANT SELECT (prompt_tokens) ON {TABLE} TO reader"
    )
    assert "may not read request_id and startTime" in problems(reader_of(owner))


def test_no_right_to_the_schema(empty: Owner, store: Store, password: str) -> None:
    empty.run(f"CREATE SCHEMA closed; CREATE TABLE closed.{TABLE} (request_id text)")
    address = f"{empty.server.address(empty.database)}?schema=closed"
    said = problems(SpendLogReader(store, address, source="litellm"))
    assert "reader may not read what is needed" in said
    assert "GRANT" in said


def test_no_such_database_and_no_such_server(owner: Owner, store: Store, password: str) -> None:
    absent = owner.server.address("absent")
    said = problems(SpendLogReader(store, absent, source="litellm"))
    assert "there is no database of this name" in said
    nowhere = f"postgresql://reader@127.0.0.1:{free_port()}/litellm"
    said = problems(SpendLogReader(store, nowhere, source="litellm"))
    assert "no connection, or it was lost (ConnectionRefusedError)" in said


def test_a_statement_that_takes_too_long(owner: Owner, reader_of: ReaderOf, store: Store) -> None:
    owner.add([row(1)])
    make_slow(owner, 60)
    said = problems(reader_of(owner, statement_timeout_seconds=1))
    assert "took longer than 1 s" in said
    assert "postgres.statement_timeout_seconds" in said
    assert prompts(store) == []


def test_a_locked_table_is_read_later(
    owner: Owner, reader_of: ReaderOf, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration holds the table: we give way, and lose nothing."""
    monkeypatch.setattr(database, "_LOCK_SECONDS", 1)
    owner.add([row(1)])
    reader = reader_of(owner)
    locked, over = threading.Event(), threading.Event()

    def migrate() -> None:
        import asyncio

        import asyncpg

        async def hold() -> None:
            address = owner.server.address(owner.database, "owner")
            connection = await asyncpg.connect(address, password=OWNER_PASSWORD)
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
                locked.set()
                await asyncio.to_thread(over.wait, 60)
            await connection.close()

        asyncio.run(hold())

    thread = threading.Thread(target=migrate)
    thread.start()
    assert locked.wait(60)
    said = problems(reader)
    over.set()
    thread.join()
    assert "a table is locked" in said
    assert reader.run().accepted == 1
    assert prompts(store) == [101]


def test_a_server_that_goes_away_meanwhile(
    owner: Owner, reader_of: ReaderOf, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.add(map(row, range(9)))
    asked = Database.rows
    left = iter([False] * 6 + [True])

    def rows(self: Database, query: str, *values: object) -> object:
        if next(left, False):
            owner.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                      "WHERE application_name = 'prefixscope'")  # fmt: skip
        return asked(self, query, *values)

    monkeypatch.setattr(Database, "rows", rows)
    reader = reader_of(owner)
    said = problems(reader)
    assert "no connection, or it was lost" in said
    assert prompts(store) == [100, 101, 102]
    reader.run()
    assert prompts(store) == list(range(100, 109))


# ---------------------------------------------------------------- addresses and passwords


@pytest.mark.parametrize(
    "path",
    [
        f"postgresql://reader:{SECRET}@db/litellm",
        f"postgresql://reader:{SECRET}%40x@db:5432/litellm",
        f"postgres://reader@{SECRET}@db/litellm",
        f"postgresql://reader@db/litellm?password={SECRET}",
        f"postgresql://db/litellm?user=reader&PASSWORD={SECRET}",
        f"postgresql://db/litellm?sslpassword={SECRET}",
        f"postgresql+asyncpg://reader:{SECRET}@db/litellm",
        f"postgres+psycopg2://reader@db/litellm?password={SECRET}",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_repeated(path: str) -> None:
    assert is_database_path(path)
    with pytest.raises(PrefixscopeError, match="must not hold a password") as refused:
        Address.of(path)
    assert SECRET not in str(refused.value)
    assert "PGPASSWORD" in str(refused.value)


@pytest.mark.parametrize(
    "path",
    ["postgresql://", "postgresql://db", "postgresql://db/", "postgresql:/db/litellm",
     "postgresql://db/a/b", "postgresql://db/a#b", "postgresql://[::1/x", "postgresql://a b/c",
     "postgresql://@db/x"],
)  # fmt: skip
def test_what_is_no_address_is_said_to_be_none(path: str) -> None:
    assert is_database_path(path)
    with pytest.raises(PrefixscopeError, match="postgresql://USER@HOST:PORT/DATABASE"):
        Address.of(path)


def test_an_unknown_part_of_an_address_is_named() -> None:
    with pytest.raises(PrefixscopeError, match="unknown part 'sslmod'"):
        Address.of("postgresql://reader@db/litellm?sslmod=require")


def test_a_driver_in_the_address_is_left_aside() -> None:
    address = Address.of("postgresql+asyncpg://reader@db:6432/litellm")
    assert str(address) == address.dsn() == "postgresql://reader@db:6432/litellm"


def test_an_address_is_shown_and_handed_on_without_what_is_not_its() -> None:
    address = Address.of(
        "postgres://reader@db:6432/lite%20llm?schema=ll&connection_limit=9&sslmode=verify-full"
    )
    assert str(address) == "postgresql://reader@db:6432/lite llm?schema=ll"
    assert address.dsn() == "postgresql://reader@db:6432/lite%20llm?sslmode=verify-full"


def test_passwords_come_from_the_usual_files(
    owner: Owner, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.add([row(1, minutes_ago(3))])
    monkeypatch.delenv("PGPASSWORD", raising=False)
    pgpass, file = tmp_path / "pgpass", tmp_path / "password"
    pgpass.write_text(f"127.0.0.1:{owner.server.port}:*:reader:{READER_PASSWORD}\n")
    pgpass.chmod(0o600)
    file.write_text(f"{READER_PASSWORD}\n")
    address = owner.server.address(owner.database)
    monkeypatch.setenv("PGPASSFILE", str(pgpass))
    assert SpendLogReader(store, address, source="pgpass").run().accepted == 1
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    settings = SpendLogSettings(password_file=file)
    assert SpendLogReader(store, address, source="file", settings=settings).run().accepted == 1
    missing = SpendLogSettings(password_file=tmp_path / "absent")
    with pytest.raises(PrefixscopeError, match=r"absent cannot be read: No such file"):
        SpendLogReader(store, address, source="none", settings=missing).run()


def test_another_format_is_refused(store: Store) -> None:
    with pytest.raises(PrefixscopeError, match="not as ndjson"):
        SpendLogReader(store, "postgresql://a@b/c", source="x", format="ndjson")


def test_nothing_secret_reaches_the_store(
    owner: Owner, reader_of: ReaderOf, store: Store, tmp_path: Path
) -> None:
    owner.add([row(1), row(2, prompt_tokens=-5)])
    reader_of(owner).run()
    store.cursor().execute("CHECKPOINT")
    kept = b"".join(file.read_bytes() for file in (tmp_path / "store").iterdir() if file.is_file())
    for secret in (READER_PASSWORD, "CANARY", owner.database, str(owner.server.port)):
        assert secret.encode() not in kept, secret
