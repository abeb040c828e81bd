"""Hours of requests of equal size, put into the tables of a store as it would hold them."""

from datetime import UTC, datetime, timedelta
from itertools import count

import duckdb

MONDAY = datetime(2026, 11, 30, 10, tzinfo=UTC)
RATIOS = (0.81, 0.79, 0.80, 0.80)  # one to four weeks before
TOKENS = 100_000
REQUESTS = 40
_positions = count()


def put_hour(
    cursor: duckdb.DuckDBPyConnection,
    begin: datetime,
    ratio: float,
    tokens: int = TOKENS,
    **columns: object,
) -> None:
    """REQUESTS requests spread over an hour, and the roll-up of it."""
    each = tokens // REQUESTS
    for place in range(REQUESTS):
        moment = begin + timedelta(seconds=60 + 85 * place)
        put_request(cursor, moment, each, round(each * ratio), **columns)


def put_request(
    cursor: duckdb.DuckDBPyConnection,
    ts: datetime,
    prompt_tokens: int,
    cached_tokens: int | None,
    **columns: object,
) -> None:
    """One request of model m and template t; without a cached count it is in no roll-up."""
    row = {
        "ts": ts, "arrived": ts, "source": "s", "source_format": "f", "attempt": 1,
        "status": "ok", "outcome": "unknown", "prompt_basis": "inclusive", "batch": 1,
        "position": next(_positions), "model": "m", "template": "t",
        "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens, **columns,
    }  # fmt: skip
    _put(cursor, "requests", row)
    if cached_tokens is not None:
        kept = {name: row.get(name) for name in ("model", "route", "template", "tenant")}
        hour = ts.replace(minute=0, second=0, microsecond=0)
        _put(cursor, "hour_rollup", {
            "hour": hour, "reported_prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens,
            **kept,
        })  # fmt: skip


def put_page(
    cursor: duckdb.DuckDBPyConnection, begin: datetime, usage_ratio: float, **columns: object
) -> None:
    """One sample in the middle of an hour."""
    _put(cursor, "engine_samples", {
        "target": "r", "replica": "r", "engine": "vllm", "role": "unified", "model": "m",
        "since": begin + timedelta(minutes=25), "ts": begin + timedelta(minutes=30),
        "reset": False, "gap": False, "kv_usage_ratio": usage_ratio, **columns,
    })  # fmt: skip


def _put(cursor: duckdb.DuckDBPyConnection, table: str, row: dict[str, object]) -> None:
    values = [
        v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) else v
        for v in row.values()
    ]
    places = ", ".join("?" * len(row))
    cursor.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", values)
