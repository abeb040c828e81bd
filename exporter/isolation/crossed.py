"""Reuse across scopes of sealed minutes: sums in the store, and a counter of live rows."""

import threading
import time
from collections.abc import Callable, Mapping

import duckdb
import numpy as np
import pyarrow as pa

from replay.isolation import Crossed
from replay.traffic import NOT_REPORTED, Flags, Numbers

_ROWS = "crossed_rows"
_SUMS = ", ".join(
    f"sum({name})::BIGINT AS {name}"
    for name in (
        "checked_requests", "checked_cached_tokens", "reused_requests", "reused_at_least_tokens",
        "reused_at_most_tokens", "cannot_tell_requests", "cannot_tell_tokens",
    )
)  # fmt: skip
_ADD = f"""
    INSERT INTO cross_scope_minutes BY NAME
    SELECT
        date_trunc('minute', ts) AS minute, nullif(model, '') AS model,
        nullif(replica, '') AS replica, found,
        CASE WHEN found THEN nullif(scope, '') END AS scope,
        CASE WHEN found THEN nullif(tenant, '') END AS tenant,
        {_SUMS}
    FROM crossed_rows GROUP BY ALL"""
_LIVE = """
    SELECT model, replica, sum(reused_at_least_tokens)::BIGINT FROM crossed_rows
    WHERE is_live GROUP BY ALL HAVING sum(checked_requests) > 0 ORDER BY ALL"""
_MERGE = f"""
    CREATE OR REPLACE TEMP TABLE merged AS
    SELECT
        minute, model, replica, found, scope, tenant,
        {_SUMS}
    FROM cross_scope_minutes GROUP BY ALL"""
# So long stands a new series at 0: whoever reads the page now and then has seen it there, however
# many they are. As far back as a Prometheus looks for the last value.
FIRST_AT_ZERO_SECONDS = 300.0
# Model and replica.
EngineKey = tuple[str, str]


def crossed_rows(
    own: pa.Table, cached_tokens: Numbers, crossed: Crossed, judged: Flags
) -> pa.Table:
    """The judged rows of a span (with ts, model, replica, tenant, scope, is_live, is_late) and what
    each adds to the sums. Of late ones their minute is over.

    Scope and tenant are kept of what was reused. What nobody can tell, which is much until a
    horizon has passed, is summed by replica: by scope it would be as many rows as there are users.
    """
    told = judged & ~own["is_late"].to_numpy() & (cached_tokens != NOT_REPORTED)
    unclear, reused = crossed.cannot_tell > 0, crossed.at_least > 0
    columns = {
        "checked_requests": ~unclear,
        "checked_cached_tokens": cached_tokens - crossed.cannot_tell,
        "reused_requests": reused,
        "reused_at_least_tokens": crossed.at_least,
        "reused_at_most_tokens": crossed.at_most,
        "cannot_tell_requests": unclear,
        "cannot_tell_tokens": crossed.cannot_tell,
    }
    rows = own.select(["ts", "model", "replica", "scope", "tenant", "is_live"])
    for name, column in columns.items():
        rows = rows.append_column(name, pa.array(column.astype(np.int64)))
    rows = rows.append_column("found", pa.array(reused))
    return rows.take(np.flatnonzero(told))


def add_crossed(cursor: duckdb.DuckDBPyConnection, rows: pa.Table) -> dict[EngineKey, int]:
    """Inside the transaction of a seal: rows to the sums. What live rows add to the counter, by
    model and replica; 0 where there was nothing to be found, no entry where nobody can tell."""
    cursor.register(_ROWS, rows)
    cursor.execute(_ADD)
    live = cursor.execute(_LIVE).fetchall()
    cursor.unregister(_ROWS)
    delta = {(model, replica): int(tokens) for model, replica, tokens in live}
    for (model, replica), tokens in delta.items():
        cursor.execute(
            """INSERT INTO live_crossed VALUES ($model, $replica, $tokens)
            ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens""",
            {"model": model, "replica": replica, "tokens": tokens},
        )
    return delta


def compact(cursor: duckdb.DuckDBPyConnection) -> None:
    """Merges the rows of every minute that has several of a kind. Changes no sum."""
    cursor.execute(_MERGE)
    cursor.execute("DELETE FROM cross_scope_minutes")
    cursor.execute("INSERT INTO cross_scope_minutes BY NAME SELECT * FROM merged")


class CrossedTotals:
    """The counter of one store, in step with its commits. Safe to use from threads. `now`: seconds
    that never fall."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._lock, self._now = threading.Lock(), now
        self._tokens: dict[EngineKey, int] = {}
        self._begun: dict[EngineKey, float] = {}

    def restore(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """What was counted before this process."""
        rows = cursor.execute("SELECT model, replica, tokens FROM live_crossed").fetchall()
        with self._lock:
            self._tokens = {(model, replica): tokens for model, replica, tokens in rows}
            self._begun = {}

    def add(self, delta: Mapping[EngineKey, int]) -> None:
        """After the commit that has it in the store."""
        with self._lock:
            for key, tokens in delta.items():
                if key not in self._tokens:
                    self._begun[key] = self._now()
                self._tokens[key] = self._tokens.get(key, 0) + tokens

    def snapshot(self) -> dict[EngineKey, int]:
        """A copy. A replica that is told of for the first time stands at 0 for a while, so that
        what it begins with is seen as an increase."""
        with self._lock:
            since = self._now() - FIRST_AT_ZERO_SECONDS
            self._begun = {key: begun for key, begun in self._begun.items() if begun > since}
            return {**self._tokens, **dict.fromkeys(self._begun, 0)}
