"""Hours of requests of equal size, put into the tables of a store as it would hold them."""

from collections.abc import Mapping, Sequence
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
    rows = [
        _request(begin + timedelta(seconds=60 + 85 * place), each, round(each * ratio), columns)
        for place in range(REQUESTS)
    ]
    _put(cursor, "requests", rows)
    _put(cursor, "hour_rollup", [_rolled_up(row) for row in rows])


def put_request(
    cursor: duckdb.DuckDBPyConnection,
    ts: datetime,
    prompt_tokens: int,
    cached_tokens: int | None,
    **columns: object,
) -> None:
    """One request of model m and template t; without a cached count it is in no roll-up."""
    row = _request(ts, prompt_tokens, cached_tokens, columns)
    _put(cursor, "requests", [row])
    if cached_tokens is not None:
        _put(cursor, "hour_rollup", [_rolled_up(row)])


def _request(
    ts: datetime, prompt_tokens: int, cached_tokens: int | None, columns: Mapping[str, object]
) -> dict[str, object]:
    return {
        "ts": ts, "arrived": ts, "source": "s", "source_format": "f", "attempt": 1,
        "status": "ok", "outcome": "unknown", "prompt_basis": "inclusive", "batch": 1,
        "position": next(_positions), "model": "m", "template": "t",
        "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens, **columns,
    }  # fmt: skip


def _rolled_up(row: Mapping[str, object]) -> dict[str, object]:
    ts = row["ts"]
    assert isinstance(ts, datetime)
    kept = {name: row.get(name) for name in ("model", "route", "template", "tenant")}
    return {
        "hour": ts.replace(minute=0, second=0, microsecond=0),
        "reported_prompt_tokens": row["prompt_tokens"], "cached_tokens": row["cached_tokens"],
        **kept,
    }  # fmt: skip


def put_page(
    cursor: duckdb.DuckDBPyConnection, begin: datetime, usage_ratio: float, **columns: object
) -> None:
    """One sample in the middle of an hour."""
    _put(cursor, "engine_samples", [{
        "target": "r", "replica": "r", "engine": "vllm", "role": "unified", "model": "m",
        "since": begin + timedelta(minutes=25), "ts": begin + timedelta(minutes=30),
        "reset": False, "gap": False, "kv_usage_ratio": usage_ratio, **columns,
    }])  # fmt: skip


def put_counted(
    cursor: duckdb.DuckDBPyConnection,
    begin: datetime,
    ratio: float,
    tokens: int = TOKENS,
    **columns: object,
) -> None:
    """An hour as one replica's page counts it: six scrapes, ten minutes apart."""
    replica = columns.get("replica", "r")
    sixth = tokens / 6
    counted = [round(sixth * number) for number in range(7)]
    reused = [round(sixth * ratio * number) for number in range(7)]
    _put(cursor, "engine_samples", [
        {
            "target": replica, "replica": replica, "engine": "vllm", "role": "unified",
            "model": "m", "reset": False, "gap": False,
            "since": begin + timedelta(minutes=10 * (number - 1)),
            "ts": begin + timedelta(minutes=10 * number),
            "prompt_tokens": counted[number] - counted[number - 1],
            "cached_tokens": reused[number] - reused[number - 1],
            "finished_requests": 10, "kv_usage_ratio": 0.2, **columns,
        }
        for number in range(1, 7)
    ])  # fmt: skip


def _put(
    cursor: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, object]]
) -> None:
    """Rows of the same columns, in one statement: one each would take most of a test's time."""
    values = [
        v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) else v
        for row in rows
        for v in row.values()
    ]
    places = f"({', '.join('?' * len(rows[0]))})"
    cursor.execute(
        f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES {', '.join([places] * len(rows))}",
        values,
    )
