"""Calls that a gateway logs twice: as they were asked for, and as the call they were turned into.

A gateway that answers one API by calling another may write a row for each, with ids of their
own. Nothing in a row tells, and two honest calls can look alike, so nothing is taken away: the
later row of a pair is flagged `suspected_duplicate`, which the tally of the source shows.
"""

import duckdb

# What a call and its translation have in common.
_ALIKE = (
    "source", "epoch_ms(ts)", "tenant", "model", "prompt_tokens", "cached_tokens", "output_tokens",
)  # fmt: skip


def flag_fresh(cursor: duckdb.DuckDBPyConnection, batch: int) -> None:
    """Flags rows of a batch that are alike a row before them, of another id.

    Rows without an id of their own are left out: over HTTP they have none at all, and the same
    rows must come out of every way in.
    """
    # A window and no join: of many rows that are all alike every pair would be too many.
    cursor.execute(
        f"""UPDATE requests SET flags = list_append(coalesce(flags, []), 'suspected_duplicate')
        WHERE rowid IN (
            SELECT stored_row FROM (
                SELECT rowid AS stored_row, batch, request_id <> first_value(request_id) OVER (
                    PARTITION BY {", ".join(_ALIKE)} ORDER BY batch, position) AS another
                FROM requests
                WHERE prompt_tokens IS NOT NULL AND request_id IS NOT NULL
                    AND NOT starts_with(request_id, 'line:')
                    AND ts BETWEEN (SELECT min(ts) FROM requests WHERE batch = $batch)
                        - INTERVAL 1 SECOND
                    AND (SELECT max(ts) FROM requests WHERE batch = $batch) + INTERVAL 1 SECOND)
            WHERE another AND batch = $batch)""",
        {"batch": batch},
    )
