"""Which rows of a batch are new: de-duplication, conflicts and corrections.

A row is identified by (source, request id, attempt) within its event hour; rows without a time
of their own within all such rows. The first row wins. Where a format writes one response as
several lines, the richest line of an id wins instead, and may correct a row stored before.
"""

from dataclasses import dataclass

import duckdb

from exporter.sources.formats.mapping import LogFormat

# Two rows of one id that differ in any of these contradict each other.
_CONTENT = (
    "prompt_tokens", "cached_tokens", "output_tokens", "model", "replica", "route", "template",
    "tenant", "status", "ttft_seconds",
)  # fmt: skip


def _content(row: str) -> str:
    return f"({', '.join(f'{row}.{name}' for name in _CONTENT)})"


def _richness(row: str) -> str:
    """A total order of the lines of one response: cached known, then more output, then earlier."""
    return (
        f"({row}.cached_tokens IS NOT NULL, coalesce({row}.output_tokens, -1),"
        f" coalesce({row}.prompt_tokens, -1), -epoch_us({row}.ts))"
    )


_NO_TIME = "coalesce(list_contains({row}.flags, 'no_time'), false)"


@dataclass(frozen=True)
class Settled:
    """How many rows of the batch each verdict got. `exceptions` tells whether any is not
    simply accepted; then temp table `settled(position, verdict)` lists them, and temp table
    `superseded` holds the stored rows that corrections replace."""

    duplicate: int = 0
    conflicting: int = 0
    corrected: int = 0

    @property
    def exceptions(self) -> int:
        return self.duplicate + self.conflicting + self.corrected


def settle(
    cursor: duckdb.DuckDBPyConnection, source: str, log_format: LogFormat
) -> Settled:
    """Judges every good row of `batch` and removes the superseded rows from `requests`."""
    facts = cursor.execute(_FACTS).fetchone()
    assert facts is not None
    rows, distinct, first_ts, last_ts, untimed = facts
    if not rows:
        return Settled()
    bounds = {"source": source, "first_ts": first_ts, "last_ts": last_ts}
    merges = log_format.merges_lines
    cursor.execute("CREATE OR REPLACE TEMP TABLE settled (position BIGINT, verdict VARCHAR)")
    if distinct < rows:
        cursor.execute(_settle_within(merges))
    stored = _stored(merges, bool(untimed), timed=untimed < rows)
    cursor.execute(f"INSERT INTO settled {_settle_against(stored, merges)}", bounds)
    counts = dict(
        cursor.execute("SELECT verdict, count(*) FROM settled GROUP BY verdict").fetchall()
    )
    if counts.get("corrected"):
        _supersede(cursor, stored, bounds)
    return Settled(
        counts.get("duplicate", 0), counts.get("conflicting", 0), counts.get("corrected", 0)
    )


# hash() only decides whether a closer look is needed, so its collisions cost time, not rows.
_FACTS = f"""
SELECT count(*), count(DISTINCT hash(request_id, attempt)),
    date_trunc('hour', min(ts)), date_trunc('hour', max(ts)) + INTERVAL 1 HOUR,
    count(*) FILTER ({_NO_TIME.format(row="batch")})
FROM batch WHERE reason IS NULL AND request_id IS NOT NULL"""


def _hour(row: str, merges: bool) -> str:
    """The part of a row's identity beside id and attempt."""
    if merges:
        return "true"
    return f"CASE WHEN {_NO_TIME.format(row=row)} THEN NULL ELSE date_trunc('hour', {row}.ts) END"


def _settle_within(merges: bool) -> str:
    """Rows of one identity inside the batch: one stays, the others repeat or contradict it."""
    order = f"{_richness('b')} DESC, position" if merges else "position"
    same = "CASE WHEN cached_tokens IS NOT NULL THEN prompt_tokens END" if merges else _content("b")
    # A line of a response that does not state its usage yet contradicts nothing.
    differs = "<>" if merges else "IS DISTINCT FROM"
    return f"""
    INSERT INTO settled
    SELECT position, CASE WHEN same {differs} first_value(same) OVER identity
        THEN 'conflicting' ELSE 'duplicate' END
    FROM (SELECT position, request_id, attempt, {_hour("b", merges)} AS hour, {same} AS same,
            row_number() OVER (
                PARTITION BY request_id, attempt, {_hour("b", merges)} ORDER BY {order}) AS place
        FROM batch b WHERE reason IS NULL AND request_id IS NOT NULL)
    QUALIFY place > 1
    WINDOW identity AS (PARTITION BY request_id, attempt, hour ORDER BY place)"""


def _stored(merges: bool, untimed: bool, timed: bool) -> str:
    """Rows of the store that a row of the batch may repeat, found in its own hours only."""
    reach = "INTERVAL 1 HOUR" if merges else "INTERVAL 0 HOUR"
    parts = []
    if timed:
        parts.append(
            f"ts >= $first_ts::TIMESTAMP - {reach} AND ts < $last_ts::TIMESTAMP + {reach}"
        )
    if untimed:
        parts.append(_NO_TIME.format(row="requests"))
    return f"""(SELECT rowid AS stored_row, * FROM requests
        WHERE source = $source AND ({" OR ".join(f"({part})" for part in parts)}))"""


def _settle_against(stored: str, merges: bool) -> str:
    same = f"{_content('b')} IS NOT DISTINCT FROM {_content('r')}"
    verdict = f"CASE WHEN {same} THEN 'duplicate' ELSE 'conflicting' END"
    if merges:
        verdict = f"""CASE
            WHEN b.prompt_tokens <> r.prompt_tokens AND r.cached_tokens IS NOT NULL
                AND b.cached_tokens IS NOT NULL THEN 'conflicting'
            WHEN {_richness("b")} > {_richness("r")} THEN 'corrected' ELSE 'duplicate' END"""
    return f"""
    SELECT b.position, {verdict}
    FROM batch b JOIN {stored} r ON b.request_id = r.request_id AND b.attempt = r.attempt
        AND {_hour("b", merges)} IS NOT DISTINCT FROM {_hour("r", merges)}
    WHERE b.reason IS NULL AND b.position NOT IN (SELECT position FROM settled)
    QUALIFY row_number() OVER (PARTITION BY b.position ORDER BY stored_row) = 1"""


def _supersede(
    cursor: duckdb.DuckDBPyConnection, stored: str, bounds: dict[str, object]
) -> None:
    """Moves the stored rows that corrections replace from `requests` to `superseded`."""
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE superseded AS
        SELECT DISTINCT ON (stored_row) r.* FROM {stored} r
        JOIN batch b ON b.request_id = r.request_id AND b.attempt = r.attempt
        JOIN settled s ON s.position = b.position AND s.verdict = 'corrected'""",
        bounds,
    )
    cursor.execute("DELETE FROM requests WHERE rowid IN (SELECT stored_row FROM superseded)")
