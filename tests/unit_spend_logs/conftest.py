"""A real PostgreSQL with LiteLLM's tables, and readers of it."""

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.sources.spend_logs.place import SpendLogSettings
from exporter.store.store import Store
from tests.log_path import SMALL
from tests.unit_spend_logs.litellm_tables import ERAS, Era, create
from tests.unit_spend_logs.server import (
    OWNER_PASSWORD,
    READER_PASSWORD,
    Server,
    programs,
    running_server,
    runs_as,
)

TABLE = '"LiteLLM_SpendLogs"'
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    pytest.importorskip("asyncpg", reason="asyncpg (extra postgres) is not installed")
    if programs() is None:
        pytest.skip("PostgreSQL's initdb is not installed (apt-get install postgresql)")
    if runs_as() is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres to run it as")
    # Not below pytest's own folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="prefixscope-postgres-"))
    try:
        with running_server(folder) as running:
            owner = Owner(running, "postgres")
            owner.run(
                f"CREATE ROLE reader LOGIN PASSWORD '{READER_PASSWORD}'; "
                f"CREATE ROLE nobody LOGIN PASSWORD '{READER_PASSWORD}'; "
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
            )
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Owner:
    """The owner of a database, who writes as LiteLLM does."""

    def __init__(self, server: Server, database: str) -> None:
        self.server, self.database = server, database

    def run(self, statement: str, *values: object) -> list[Any]:
        """Statements without values, or one with; the rows of that one."""
        import asyncpg

        async def go() -> list[Any]:
            connection = await asyncpg.connect(
                self.server.address(self.database, "owner"), password=OWNER_PASSWORD
            )
            try:
                if not values:
                    await connection.execute(statement)
                    return []
                rows: list[Any] = await connection.fetch(statement, *values)
                return rows
            finally:
                await connection.close()

        return asyncio.run(go())

    def value(self, query: str) -> Any:  # noqa: ANN401 - whatever is asked for
        [row] = self.run(f"SELECT ({query}) AS value WHERE $1", True)
        return row["value"]

    def add(self, rows: Iterable[Mapping[str, object]], table: str = TABLE) -> None:
        """Rows as LiteLLM's client writes them; columns that a row does not name take their
        defaults, and what a table of older times lacks is left out."""
        query = "SELECT column_name AS name FROM information_schema.columns WHERE table_name = $1"
        known = {row["name"] for row in self.run(query, table.strip('"'))}
        for row in rows:
            columns = ", ".join(f'"{name}"' for name in row if name in known)
            self.run(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM "
                f"jsonb_populate_record(NULL::{table}, $1::text::jsonb)",
                json.dumps(_opened(row)),
            )


def _opened(row: Mapping[str, object]) -> dict[str, object]:
    """What the database's client makes of texts that hold JSON, for columns of that type."""
    json_columns = ("metadata", "request_tags", "messages", "response", "proxy_server_request")
    return {
        name: json.loads(value) if name in json_columns and isinstance(value, str) else value
        for name, value in row.items()
    }


@pytest.fixture
def empty(server: Server) -> Owner:
    """A database of its own, without tables."""
    name = f"litellm_{next(_NUMBERS)}"
    Owner(server, "postgres").run(f"CREATE DATABASE {name}")
    return Owner(server, name)


def make_tables(owner: Owner, era: Era) -> None:
    owner.run(create("LiteLLM_SpendLogs", era.spend_logs))
    for columns in era.indexed:
        owner.run(f"CREATE INDEX ON {TABLE} ({columns})")
    owner.run(f"GRANT SELECT ON {TABLE} TO reader")


def make_slow(owner: Owner, seconds: int) -> None:
    """The table becomes one that takes as long to answer as a large one without its index."""
    owner.run(
        f"ALTER TABLE {TABLE} RENAME TO kept; CREATE VIEW {TABLE} AS "
        f"SELECT k.* FROM kept AS k, (SELECT pg_sleep({seconds})) AS slow; "
        f"GRANT SELECT ON {TABLE} TO reader"
    )


@pytest.fixture
def owner(empty: Owner) -> Owner:
    """A database with the newest table of spend logs, which `reader` may read."""
    make_tables(empty, ERAS["2026-11"])
    return empty


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store", SMALL)
    yield opened
    opened.close()


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The reader's, where clients of Postgres look for it."""
    monkeypatch.setenv("PGPASSWORD", READER_PASSWORD)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "no-pgpass"))
    return READER_PASSWORD


ReaderOf = Callable[..., SpendLogReader]


@pytest.fixture
def reader_of(store: Store, password: str) -> ReaderOf:
    """Makes readers of a database, as its role `reader`."""

    def make(owner: Owner, user: str = "reader", **settings: float) -> SpendLogReader:
        return SpendLogReader(
            store,
            owner.server.address(owner.database, user),
            source="litellm",
            settings=SpendLogSettings.model_validate({"page_rows": 3, **settings}),
        )

    return make
