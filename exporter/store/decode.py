"""Rows of decode replicas in a prefill/decode split, recognised and left out of every figure.

Such a replica reports KV that was sent to it as cached: all of the prompt, or all but its last
token, even of prompts nobody ever saw. Its rows are known by the role on its own page, or by
that symptom where another replica of the model shows how much the prompts really reused.
"""

import duckdb

from exporter.store import rollup
from exporter.store.fold import folded_batch
from exporter.store.rollup import REPORTED

# Rows below which a replica proves nothing, and the share of them that are all cached.
_ENOUGH_ROWS = 50
_NEARLY_ALL = 0.95
# The same share of a replica that computes its prompts itself is far below this.
_USUAL = 0.5

_ALL_CACHED = "prompt_tokens - cached_tokens <= 1"
# Rows that a decode replica may have written.
MAY_BE_DECODE = f"replica_role IS NULL AND {_ALL_CACHED}"


def looks_so(may_be_decode: int, rows: int) -> bool:
    """Whether a batch looks as if a decode replica had written some of it: then `mark` looks."""
    return may_be_decode * 4 >= rows > 0


def mark(cursor: duckdb.DuckDBPyConnection, first_ts: object, last_ts: object) -> bool:
    """Gives the rows of decode replicas that state no role that role, and the flag `pd_decode`;
    their sums leave the roll-ups. Counters keep what they had. True if any row was marked."""
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE turned AS SELECT rowid AS stored_row, * FROM requests
        WHERE replica_role IS NULL AND {_NEAR} AND replica IN ({_DECODE_REPLICAS})""",
        {"first_ts": first_ts, "last_ts": last_ts},
    )
    [(turned,)] = cursor.execute("SELECT count(*) FROM turned").fetchall()
    if not turned:
        return False
    rollup.add(cursor, "turned", where=f"batch <= {folded_batch(cursor)}", sign=-1)
    cursor.execute(
        """UPDATE requests SET replica_role = 'decode',
            flags = list_append(coalesce(flags, []), 'pd_decode')
        WHERE rowid IN (SELECT stored_row FROM turned)"""
    )
    return True


_NEAR = "ts BETWEEN $first_ts::TIMESTAMP - INTERVAL 1 DAY AND $last_ts::TIMESTAMP"
_DECODE_REPLICAS = f"""
    WITH seen AS (
        SELECT replica, coalesce(model, '') AS model, count(*) AS rows,
            count(*) FILTER ({_ALL_CACHED}) / count(*) AS share
        FROM requests WHERE replica IS NOT NULL AND {REPORTED} AND {_NEAR}
        GROUP BY ALL HAVING rows >= {_ENOUGH_ROWS})
    SELECT replica FROM seen suspect WHERE share >= {_NEARLY_ALL}
        AND EXISTS (SELECT 1 FROM seen other
            WHERE other.model = suspect.model AND other.share < {_USUAL})
    UNION SELECT replica FROM engine_own WHERE role = 'decode'"""
