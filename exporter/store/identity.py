"""Which rows of a batch are new: de-duplication, conflicts and corrections.

A row is identified by (source, request id, attempt) within its event hour; rows without a time
of their own within all such rows. The first row wins. Where a format writes one response as
several lines, the richest line of an id wins instead, and may correct a row stored before.
"""

from dataclasses import dataclass
from datetime import datetime

import duckdb

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
    """How many rows of the batch each verdict got; temp table `settled(position, verdict)`
    lists those that are not simply accepted."""

    duplicate: int = 0
    conflicting: int = 0
    corrected: int = 0

    @property
    def exceptions(self) -> int:
        return self.duplicate + self.conflicting + self.corrected


@dataclass(frozen=True)
class Facts:
    """What the good rows of `batch` are like, so that common batches need no closer look."""

    rows: int
    distinct: int
    untimed: int
    first_hour: datetime | None
    last_hour: datetime | None


# hash() only decides whether a closer look is needed, so its collisions cost time, not rows.
FACTS = f"""
    count(request_id) FILTER (reason IS NULL),
    count(DISTINCT hash(request_id, attempt)) FILTER (reason IS NULL AND request_id IS NOT NULL),
    count(*) FILTER (reason IS NULL AND request_id IS NOT NULL AND {_NO_TIME.format(row="batch")}),
    date_trunc('hour', min(ts) FILTER (reason IS NULL)),
    date_trunc('hour', max(ts) FILTER (reason IS NULL)) + INTERVAL 1 HOUR"""


def settle(
    cursor: duckdb.DuckDBPyConnection, source: str, merges: bool, facts: Facts
) -> Settled:
    """Judges every good row of `batch`; `merges` where one response may be several lines."""
    cursor.execute("CREATE OR REPLACE TEMP TABLE settled (position BIGINT, verdict VARCHAR)")
    if not facts.rows:
        return Settled()
    if facts.distinct < facts.rows:
        cursor.execute(_settle_within(merges))
    stored = _stored(merges, facts)
    bounds = _bounds(source, facts)
    if facts.distinct == facts.rows and not _any_stored(cursor, stored, bounds):
        return Settled()
    cursor.execute(f"INSERT INTO settled {_settle_against(stored, merges)}", bounds)
    counts = dict(
        cursor.execute("SELECT verdict, count(*) FROM settled GROUP BY verdict").fetchall()
    )
    return Settled(
        counts.get("duplicate", 0), counts.get("conflicting", 0), counts.get("corrected", 0)
    )


def _bounds(source: str, facts: Facts) -> dict[str, object]:
    return {"source": source, "first_ts": facts.first_hour, "last_ts": facts.last_hour}


def _any_stored(
    cursor: duckdb.DuckDBPyConnection, stored: str, bounds: dict[str, object]
) -> bool:
    found = cursor.execute(
        f"""SELECT 1 FROM batch b JOIN {stored} r USING (request_id, attempt)
        WHERE b.reason IS NULL LIMIT 1""",
        bounds,
    ).fetchone()
    return found is not None


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
    WINDOW identity AS (PARTITION BY request_id, attempt, hour ORDER BY place)
    QUALIFY place > 1"""


def _stored(merges: bool, facts: Facts) -> str:
    """Rows of the store that a row of the batch may repeat, found in its own hours only."""
    reach = "INTERVAL 1 HOUR" if merges else "INTERVAL 0 HOUR"
    span = f"ts >= $first_ts::TIMESTAMP - {reach} AND ts < $last_ts::TIMESTAMP + {reach}"
    if facts.untimed:
        span = f"({span}) OR {_NO_TIME.format(row='requests')}"
    return f"""(SELECT rowid AS stored_row, * FROM requests
        WHERE source = $source AND ({span}))"""


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


def supersede(
    cursor: duckdb.DuckDBPyConnection, source: str, merges: bool, facts: Facts
) -> None:
    """Moves the stored rows that corrections replace from `requests` to `superseded`."""
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE superseded AS
        SELECT DISTINCT ON (stored_row) r.* FROM {_stored(merges, facts)} r
        JOIN batch b ON b.request_id = r.request_id AND b.attempt = r.attempt
        JOIN settled s ON s.position = b.position AND s.verdict = 'corrected'""",
        _bounds(source, facts),
    )
    cursor.execute("DELETE FROM requests WHERE rowid IN (SELECT stored_row FROM superseded)")
