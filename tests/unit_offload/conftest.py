"""A store in memory with simulated traffic, and the questions on it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from queries import registry
from tests import empty_store
from tests.rows_in import put_rows

Row = dict[str, Any]
Answer = dict[str, Any]
FILLED: dict[str, Row] = {
    "requests": {
        "source": "log", "source_format": "test", "attempt": 1, "status": "ok",
        "outcome": "unknown", "prompt_basis": "inclusive", "batch": 1, "position": 0,
    },
    "engine_samples": {
        "engine": "vllm", "observer": "engine", "role": "unified", "reset": False, "gap": False,
    },
}  # fmt: skip


class Store:
    """The schema and the views; rows are put in as they are."""

    def __init__(self, connection: duckdb.DuckDBPyConnection | None = None) -> None:
        self.connection = connection or empty_store.in_memory()

    def add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """A row without `arrived` or `target` gets its time or its replica there."""
        filled = []
        for row in rows:
            given = {**FILLED.get(table, {}), **row}
            if table == "requests":
                given.setdefault("arrived", given["ts"])
            if table == "engine_samples":
                given.setdefault("target", given["replica"])
            filled.append(given)
        put_rows(self.connection, table, filled)

    def load(self, rows: list[Row]) -> None:
        """Many request rows at once."""
        filled = pa.Table.from_pylist(
            [{**FILLED["requests"], "arrived": row["ts"], **row} for row in rows]
        )
        self.connection.register("simulated", filled)
        self.connection.execute("INSERT INTO requests BY NAME SELECT * FROM simulated")
        self.connection.unregister("simulated")

    def execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, list(values)).fetchall()

    def ask(self, name: str, **params: object) -> list[Answer]:
        return registry.rows(registry.run(self.connection.cursor(), name, params))

    def one(self, name: str, **params: object) -> Answer:
        (row,) = self.ask(name, **params)
        return row


@pytest.fixture
def store() -> Iterator[Store]:
    with empty_store.lent() as connection:
        yield Store(connection)


@pytest.fixture
def new_store() -> Iterator[Callable[[], Store]]:
    """Several stores, one after the other or at once."""
    with ExitStack() as held:
        yield lambda: Store(held.enter_context(empty_store.lent()))
