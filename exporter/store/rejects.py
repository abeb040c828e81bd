"""What could not be taken: source, place, reason and a redacted excerpt; never the text itself."""

from collections import Counter
from datetime import datetime

import duckdb
import pyarrow as pa

from exporter.sources.lines import BadLine

_BAD_SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("line_number", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)

_CONFLICT = "an earlier row with this id says otherwise; the earlier row stays"


def keep(
    cursor: duckdb.DuckDBPyConnection,
    bad: list[BadLine],
    *,
    unreadable: bool,
    conflicting: bool,
    source: str,
    source_format: str,
    fingerprint: str | None,
    arrived: datetime,
) -> tuple[dict[str, int], dict[str, int]]:
    """Stores the rejects of a batch: bad lines, `unreadable` rows of temp table `careful`, and
    `conflicting` ones of `settled`, whose line numbers are in `places`.

    Returns rows by reason, all of them and those new to the store: reading a file again adds
    no second reject. Conflicts are kept as rejects too, but their count is not in the first.
    """
    _gather(cursor, bad)
    if unreadable:
        _add_unreadable(cursor)
    if conflicting:
        _add_conflicting(cursor)
    stored = cursor.execute(
        """INSERT INTO rejects BY NAME
        SELECT $arrived::TIMESTAMP AS arrived, $source AS source,
            $source_format AS source_format, $fingerprint AS fingerprint, *
        FROM refused WHERE $fingerprint IS NULL OR (position, reason) NOT IN (
            SELECT (position, reason) FROM rejects
            WHERE source = $source AND fingerprint = $fingerprint)
        RETURNING reason""",
        {
            "arrived": arrived,
            "source": source,
            "source_format": source_format,
            "fingerprint": fingerprint,
        },
    ).fetchall()
    reasons = cursor.execute(
        "SELECT reason, count(*) FROM refused WHERE reason <> 'conflicting' GROUP BY ALL"
    ).fetchall()
    return dict(reasons), dict(Counter(reason for (reason,) in stored))


def _gather(cursor: duckdb.DuckDBPyConnection, bad: list[BadLine]) -> None:
    """Temp table `refused`, with the bad lines in it."""
    rows = [(b.position, b.line_number, b.reason, b.detail) for b in bad]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _BAD_SCHEMA, strict=True)]
    cursor.register("bad_lines", pa.table(arrays, schema=_BAD_SCHEMA))
    cursor.execute(
        """CREATE OR REPLACE TEMP TABLE refused AS
        SELECT *, NULL::VARCHAR AS excerpt FROM bad_lines"""
    )
    cursor.unregister("bad_lines")


def _add_unreadable(cursor: duckdb.DuckDBPyConnection) -> None:
    cursor.execute(
        """INSERT INTO refused BY NAME
        SELECT position, line_number, reason, excerpt FROM careful WHERE reason IS NOT NULL"""
    )


def _add_conflicting(cursor: duckdb.DuckDBPyConnection) -> None:
    cursor.execute(
        f"""INSERT INTO refused BY NAME
        SELECT position, line_number, 'conflicting' AS reason, '{_CONFLICT}' AS detail
        FROM settled JOIN places USING (position) WHERE verdict = 'conflicting'"""
    )
