"""The tables of a store in memory, filled with traffic whose figures are worked out by hand.

The window of every test is the week of 23 November 2026 (UTC). A sample of an engine right after
it says that the data reaches that far: the window has 7 days.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from queries import registry
from tests import empty_store

SINCE = datetime(2026, 11, 23, tzinfo=UTC)
UNTIL = datetime(2026, 11, 30, tzinfo=UTC)
WEEK = timedelta(days=7)
_REQUEST: dict[str, object] = {
    "source": "gw", "source_format": "f", "attempt": 1, "status": "ok", "outcome": "unknown",
    "prompt_basis": "inclusive", "batch": 1, "position": 0, "model": "m",
}  # fmt: skip


@cache
def _tables() -> duckdb.DuckDBPyConnection:
    """Made once, emptied for each test."""
    return empty_store.in_memory()


class ChangesStore:
    """Empty tables, the same ones each time, and the question asked of them."""

    def __init__(self) -> None:
        self._connection = _tables()
        for table in ("hour_rollup", "requests", "engine_samples", "block_minutes"):
            self._connection.execute(f"DELETE FROM {table}")

    def reach(self, moment: datetime = UNTIL) -> None:
        """Data goes on until then."""
        self.sample(moment)

    def hour(self, hour: datetime, tokens: int, cached_tokens: int, **columns: object) -> None:
        """One row of the roll-up by hour: prompts of 1000 tokens unless `requests` says else."""
        self.hours([{"hour": hour, "tokens": tokens, "cached_tokens": cached_tokens, **columns}])

    def hours(self, rows: Sequence[dict[str, Any]]) -> None:
        """The same for several."""
        self.put("hour_rollup", [_hour(**row) for row in rows])

    def requests(self, rows: Sequence[dict[str, object]]) -> None:
        """Single requests, in no roll-up."""
        self.put("requests", [{**_REQUEST, "arrived": row["ts"], **row} for row in rows])

    def sample(self, ts: datetime, **columns: object) -> None:
        """A page of an engine of model m."""
        self.put("engine_samples", [{
            "target": "r", "replica": "r", "engine": "vllm", "role": "unified", "model": "m",
            "since": ts - timedelta(minutes=1), "ts": ts, "reset": False, "gap": False, **columns,
        }])  # fmt: skip

    def blocks(
        self, minute: datetime, reused: Mapping[int, int] | None = None, **columns: object
    ) -> None:
        """What KV-cache events told of a minute; `reused`: evicted and stored again, by bucket."""
        row = {
            "minute": minute, "heard": minute + timedelta(seconds=30), "source": "kv",
            "replica": "r", "model": "m", "tier": "device", "block_size": 16, **columns,
        }  # fmt: skip
        table = pa.Table.from_pylist([_stored(row)])
        gaps = pa.array([list((reused or {}).items())], pa.map_(pa.int32(), pa.int64()))
        self._insert("block_minutes", table.append_column("evicted_reuse_gap", gaps))

    def put(self, table: str, rows: Sequence[dict[str, object]]) -> None:
        """Rows of the same columns."""
        self._insert(table, pa.Table.from_pylist([_stored(row) for row in rows]))

    def _insert(self, table: str, rows: pa.Table) -> None:
        self._connection.register("given", rows)
        self._connection.execute(f"INSERT INTO {table} BY NAME FROM given")

    def changes(self, **params: object) -> list[dict[str, Any]]:
        """The answer for the week, nothing left out for being small."""
        given = {"since": SINCE, "until": UNTIL, "least_tokens_per_day": 1, **params}
        return registry.rows(registry.run(self._connection.cursor(), "changes", given))


def _hour(tokens: int, **columns: object) -> dict[str, object]:
    requests = columns.pop("requests", tokens // 1000)
    return {
        "model": "m", "requests": requests, "reported_requests": requests,
        "ineligible_requests": 0, "prompt_tokens": tokens, "reported_prompt_tokens": tokens,
        "ineligible_prompt_tokens": 0, **columns,
    }  # fmt: skip


def _stored(row: dict[str, object]) -> dict[str, object]:
    """Times as the tables have them: UTC without a zone."""
    return {
        name: value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def bounds(row: dict[str, Any]) -> tuple[str, str, int, int]:
    """What most tests compare."""
    return row["kind"], row["subject"], row["tokens_per_day_lower"], row["tokens_per_day_upper"]
