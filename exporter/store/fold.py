"""Folding: rows that reached `requests` enter the roll-ups and the live counters.

A batch commits its rows at once; roll-ups and counters follow in the next fold, a moment or
some thousand rows later, because one statement over many rows is far cheaper than many over
few. A fold and the number of the last batch it took are one transaction, so no row is folded
twice or forgotten; opening a store folds what a crash left.
"""

import duckdb

from exporter.store import live, rollup
from exporter.store.counters import CounterDelta, LabelBounds, LiveCounters


def fold(
    cursor: duckdb.DuckDBPyConnection,
    counters: LiveCounters,
    live_seconds: float,
    *,
    until: int | None = None,
    superseded: str | None = None,
) -> CounterDelta:
    """Folds pending rows, up to batch `until` or all. The delta is to be applied after the
    commit.

    `superseded` is a relation of stored rows that pending rows correct: what of it is folded
    is taken back, and counters rise by the difference only.
    """
    folded = folded_batch(cursor)
    until = max(folded, last_batch(cursor) if until is None else until)
    pending = f"(SELECT * FROM requests WHERE batch > {folded} AND batch <= {until})"
    _admit_tenants(cursor, counters.bounds, pending)
    parameters: dict[str, object] = {"live_seconds": live_seconds}
    rollup.add(cursor, pending)
    delta = live.collect(cursor, counters, pending, parameters)
    if superseded:
        rollup.add(cursor, superseded, sign=-1)
        delta.subtract(live.collect(cursor, counters, superseded, parameters))
    delta.fit_tiers()
    live.persist(cursor, delta)
    set_folded(cursor, until)
    return delta


def any_folded(cursor: duckdb.DuckDBPyConnection, relation: str) -> bool:
    """Whether roll-ups and counters have any row of a relation."""
    [(first,)] = cursor.execute(f"SELECT min(batch) FROM {relation}").fetchall()
    return first is not None and first <= folded_batch(cursor)


def set_folded(cursor: duckdb.DuckDBPyConnection, batch: int) -> None:
    cursor.execute("DELETE FROM folded")
    cursor.execute("INSERT INTO folded VALUES ($batch)", {"batch": batch})


def folded_batch(cursor: duckdb.DuckDBPyConnection) -> int:
    row = cursor.execute("SELECT coalesce(max(batch), 0) FROM folded").fetchone()
    return int(row[0]) if row else 0


def last_batch(cursor: duckdb.DuckDBPyConnection) -> int:
    row = cursor.execute(
        "SELECT greatest((SELECT max(batch) FROM requests), (SELECT max(batch) FROM folded), 0)"
    ).fetchone()
    return int(row[0]) if row else 0


def _admit_tenants(cursor: duckdb.DuckDBPyConnection, bounds: LabelBounds, relation: str) -> None:
    """Lets new tenants in while there is room; the roll-ups fold the others."""
    tenants = cursor.execute(
        f"SELECT DISTINCT tenant FROM {relation} WHERE tenant IS NOT NULL"
    ).fetchall()
    live.admit(cursor, bounds, "tenant", (tenant for (tenant,) in tenants))
