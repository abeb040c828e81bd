"""A store without its owner: the schema and views in memory, and rows put in as they are."""

import re
from collections.abc import Callable, Iterator, Mapping

import duckdb
import pytest

from queries import registry
from tests import empty_store
from tests.rows_in import put_rows

DAY = "2026-11-30"
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d)?")
Row = Mapping[str, object]
Insert = Callable[[str, list[Row]], None]
Ask = Callable[..., list[dict[str, object]]]

# What a row must have in the table and a test rarely cares about.
FILLED: dict[str, dict[str, object]] = {
    "requests": {
        "source": "log", "source_format": "test", "attempt": 1, "status": "ok",
        "outcome": "unknown", "prompt_basis": "inclusive", "batch": 1, "position": 0,
    },
    "engine_samples": {"engine": "vllm", "role": "unified", "reset": False, "gap": False},
    "ingest_batches": {"source_format": "test"},
    "block_minutes": {"source": "kv", "model": "m", "tier": "device", "block_size": 16},
    "block_resets": {"source": "kv", "model": "m", "tier": "device"},
    "block_streams": {"source": "kv", "model": "m"},
    "block_copies": {"model": "m", "tier": "device"},
    "resident_prefixes": {"model": "m", "tier": "device", "hash_key_id": "k"},
}  # fmt: skip


def moment(value: object) -> object:
    """'10:05' is that time on the test day; anything else is itself."""
    if isinstance(value, str) and _CLOCK.fullmatch(value):
        return f"{DAY}T{value if value.count(':') == 2 else value + ':00'}Z"
    return value


@pytest.fixture
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with empty_store.lent() as connection:
        yield connection


@pytest.fixture
def insert(cursor: duckdb.DuckDBPyConnection) -> Insert:
    def into(table: str, rows: list[Row]) -> None:
        filled: list[Row] = []
        for given in rows:
            row = {**FILLED.get(table, {}), **{k: moment(v) for k, v in given.items()}}
            copies = row.pop("repeat", 1)
            assert isinstance(copies, int)
            if table == "requests":
                row.setdefault("arrived", row["ts"])
            if table == "engine_samples":
                row.setdefault("target", row["replica"])
            if table == "block_minutes":
                row.setdefault("heard", row["minute"])
            filled += [row] * copies
        put_rows(cursor, table, filled)

    return into


@pytest.fixture
def ask(cursor: duckdb.DuckDBPyConnection) -> Ask:
    def rows(name: str, **params: object) -> list[dict[str, object]]:
        given = {key: moment(value) for key, value in params.items()}
        return registry.rows(registry.run(cursor, name, given))

    return rows
