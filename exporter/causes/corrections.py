"""Rows that take the place of others after these were counted: causes are named once, and what was
named is not revised, so such rows are not counted once more."""

from datetime import datetime

import duckdb


def keep_corrected(cursor: duckdb.DuckDBPyConnection, batch: int) -> None:
    """Note the rows of a batch that replace rows in temp table `superseded` which were counted, or
    are being named. Those without a chain are counted only when a span is written."""
    cursor.execute(
        """INSERT INTO cause_corrected
        SELECT r.batch, r.position
        FROM requests AS r
        INNER JOIN superseded AS o ON r.position = o.replaced_by
        WHERE
            r.batch = $batch AND (
                (o.batch, o.position) IN (FROM cause_corrected)
                OR EXISTS (FROM cause_state AS s
                    WHERE r.ts < s.sealed AND o.ts < s.sealed AND o.batch <= s.batch)
                OR (len(o.block_hashes) > 0 AND EXISTS (FROM cause_reading AS s
                    WHERE r.ts < s.until AND o.ts < s.until AND o.batch <= s.batch)))""",
        {"batch": batch},
    )


def begin_reading(writer: duckdb.DuckDBPyConnection, until: datetime, batch: int) -> None:
    """Rows from before `until` of batches up to `batch` are being named. Where that fails, they
    are rows of a span again, among which replaced ones are counted whatever was noted."""
    writer.execute("DELETE FROM cause_reading")
    writer.execute("INSERT INTO cause_reading VALUES (?, ?)", [until, batch])


def end_reading(writer: duckdb.DuckDBPyConnection, batch: int) -> None:
    """They are counted; what was noted of them is not needed any more."""
    writer.execute("DELETE FROM cause_reading")
    writer.execute("DELETE FROM cause_corrected WHERE batch <= $batch", {"batch": batch})
