"""Calls that a gateway logs twice: as they were asked for, and as the call they were turned into.

A gateway that answers one API by calling another may write a row for each, with ids of their
own. Nothing in a row tells, and two honest calls can look alike, so nothing is taken away: the
later row of a pair is flagged `suspected_duplicate`, which the tally of the source shows.
"""

import duckdb

# What a call and its translation have in common, beside the millisecond they began in.
_ALIKE = ("source", "tenant", "model", "prompt_tokens", "cached_tokens", "output_tokens")


def flag_fresh(cursor: duckdb.DuckDBPyConnection, batch: int) -> None:
    """Flags rows of a batch that look like a row before them, of another id."""
    alike = " AND ".join(f"earlier.{name} IS NOT DISTINCT FROM b.{name}" for name in _ALIKE)
    cursor.execute(
        f"""UPDATE requests SET flags = list_append(coalesce(flags, []), 'suspected_duplicate')
        WHERE rowid IN (
            SELECT b.rowid FROM requests b JOIN requests earlier
                ON epoch_ms(earlier.ts) = epoch_ms(b.ts) AND {alike}
                AND earlier.request_id <> b.request_id
                AND (earlier.batch < b.batch
                    OR earlier.batch = b.batch AND earlier.position < b.position)
            WHERE b.batch = $batch AND b.prompt_tokens IS NOT NULL
                AND earlier.ts >= (SELECT min(ts) FROM requests WHERE batch = $batch)
                    - INTERVAL 1 SECOND
                AND earlier.ts <= (SELECT max(ts) FROM requests WHERE batch = $batch)
                    + INTERVAL 1 SECOND)""",
        {"batch": batch},
    )
