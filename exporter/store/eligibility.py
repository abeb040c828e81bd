"""Rows that no cache could serve because the engine's caching was off.

Only the engine's own page tells; it may arrive before or after the rows. A row is ineligible
(`caching_off`) when the engines that can have served it, by replica, else by model, else all
that were scraped, all had caching off around its time. Rows, roll-ups and samples agree
whichever came first; counters keep what was known when the row arrived.
"""

import duckdb

from exporter.store import rollup
from exporter.store.fold import folded_batch

_COVERS = """
    s.observer = 'engine' AND coalesce(s.since, s.ts) <= r.ts AND r.ts <= s.ts
    AND (r.replica IS NULL OR r.replica = s.replica
        OR r.replica NOT IN (SELECT replica FROM engine_own))
    AND (r.model IS NULL OR s.model IS NULL OR r.model = s.model)"""

_OFF = f"""
    r.ineligible_reason IS NULL
    AND EXISTS (SELECT 1 FROM engine_samples s WHERE NOT s.caching_enabled AND {_COVERS})
    AND NOT EXISTS (SELECT 1 FROM engine_samples s
        WHERE s.caching_enabled IS DISTINCT FROM false AND {_COVERS})"""


def any_off(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Whether any page told of caching that is off: else there is nothing to mark."""
    return bool(cursor.execute(_ANY_OFF).fetchall())


_ANY_OFF = "SELECT 1 FROM engine_samples WHERE NOT caching_enabled LIMIT 1"


def mark_fresh(cursor: duckdb.DuckDBPyConnection, batch: int) -> None:
    """Marks the rows of a batch, before they are folded, by what pages already told."""
    cursor.execute(
        "UPDATE requests SET ineligible_reason = 'caching_off' WHERE rowid IN"
        f" (SELECT rowid FROM requests r WHERE batch = {batch} AND {_OFF})"
    )


def mark_stored(cursor: duckdb.DuckDBPyConnection, first_ts: object, last_ts: object) -> None:
    """Marks stored rows of a span that new pages cover, and moves their sums in the roll-ups."""
    if not any_off(cursor):
        return
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE turned AS SELECT rowid AS stored_row, * FROM requests r
        WHERE r.ts BETWEEN $first_ts AND $last_ts AND {_OFF}""",
        {"first_ts": first_ts, "last_ts": last_ts},
    )
    folded = f"batch <= {folded_batch(cursor)}"
    rollup.add(cursor, "turned", where=folded, sign=-1)
    cursor.execute("UPDATE turned SET ineligible_reason = 'caching_off'")
    rollup.add(cursor, "turned", where=folded)
    cursor.execute(
        "UPDATE requests SET ineligible_reason = 'caching_off'"
        " WHERE rowid IN (SELECT stored_row FROM turned)"
    )
