"""Rows that take the place of others after these were counted: causes are named once, and what was
named is not revised, so such rows are not counted once more."""

import duckdb


def keep_corrected(cursor: duckdb.DuckDBPyConnection, batch: int) -> None:
    """Note the rows of a batch that replace rows in temp table `superseded` which were counted."""
    cursor.execute(
        """INSERT INTO cause_corrected
        WITH counted AS (
            SELECT o.request_id, o.attempt
            FROM superseded AS o, cause_state AS s
            WHERE o.ts < s.sealed AND o.batch <= s.batch)
        SELECT r.batch, r.position
        FROM requests AS r, cause_state AS s
        WHERE
            r.batch = $batch AND r.ts < s.sealed AND EXISTS (FROM counted)
            AND (
                coalesce(list_contains(r.flags, 'joined'), false)
                OR (r.request_id, r.attempt) IN (FROM counted))""",
        {"batch": batch},
    )
