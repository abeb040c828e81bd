"""Stores in memory for the report: the schema and views, and rows put in as they are."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from dashboard.report import Week, WeekReport, build
from queries import registry
from tests import empty_store
from tests.rows_in import put_rows

SHARED = Path(__file__).parents[3] / "shared"
Row = Mapping[str, object]

_FILLED: dict[str, dict[str, object]] = {
    "requests": {
        "source": "log", "source_format": "test", "attempt": 1, "status": "ok", "model": "m",
        "outcome": "unknown", "prompt_basis": "inclusive", "batch": 1, "position": 0,
    },
    "engine_samples": {
        "engine": "vllm", "role": "unified", "model": "m", "replica": "r1", "target": "r1",
        "reset": False, "gap": False,
    },
    "block_resets": {"source": "kv", "model": "m", "tier": "device", "blocks": 5},
    "block_minutes": {"source": "kv", "replica": "r1", "model": "m", "tier": "device",
                      "block_size": 16},
}  # fmt: skip


class Memory:
    """Answers of a store in memory."""

    def __init__(self) -> None:
        self.connection = empty_store.in_memory()

    def ask(self, name: str, params: Mapping[str, object]) -> pa.Table:
        return registry.run(self.connection.cursor(), name, params)

    def insert(self, table: str, rows: Iterable[Row]) -> "Memory":
        filled = [{**_FILLED.get(table, {}), **row} for row in rows]
        if table == "requests":
            filled = [{"arrived": row["ts"], **row} for row in filled]
        put_rows(self.connection, table, filled)
        return self

    def report(self, week: str = "2026-W48", zone: str = "UTC") -> WeekReport:
        return build(self, Week.parse(week, zone))


@pytest.fixture
def memory() -> Memory:
    return Memory()


def at(text: str) -> datetime:
    """'11-24 10:00' of 2026 as the store keeps times."""
    return datetime.strptime(f"2026-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC).replace(
        tzinfo=None
    )  # fmt: skip


def minutes(first: str, count: int) -> list[datetime]:
    """So many moments a minute apart."""
    return [at(first) + timedelta(minutes=number) for number in range(count)]


def same(count: int, first: str, **columns: object) -> list[dict[str, object]]:
    """So many rows a minute apart, alike but for their time."""
    return [{"ts": moment, **columns} for moment in minutes(first, count)]
