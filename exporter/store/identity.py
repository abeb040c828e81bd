"""Which rows of a batch are new: de-duplication, conflicts and corrections.

A row is identified by (source, request id, attempt) within its event hour; rows without a time
of their own, or with one relative to their trace, within all such rows. The first row wins.
Where a format writes one response as several lines, those of an id within an hour of each other
are one response: the richest wins, and may correct a row stored before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import duckdb

# Two rows of one id that differ in any of these contradict each other.
_CONTENT = (
    "prompt_tokens", "cached_tokens", "output_tokens", "model", "replica", "route", "template",
    "tenant", "status", "ttft_seconds",
)  # fmt: skip


def _content(row: str) -> str:
    # A template that was found is nothing the row said.
    given = f"CASE WHEN {row}.found_template IS NULL THEN {row}.template END"
    values = (given if name == "template" else f"{row}.{name}" for name in _CONTENT)
    return f"({', '.join(values)})"


def _richness(row: str) -> str:
    """A total order of the lines of one response: cached known, then more output, then earlier."""
    return (
        f"({row}.cached_tokens IS NOT NULL, coalesce({row}.output_tokens, -1),"
        f" coalesce({row}.prompt_tokens, -1), -epoch_us({row}.ts))"
    )


# Flags of rows without a time of their own.
NO_TIME_FLAGS = frozenset({"no_time", "relative_time"})
_NO_TIME = f"coalesce(list_has_any({{row}}.flags, {sorted(NO_TIME_FLAGS)}), false)"


# SQL: the row is one that was joined of two; what arrives again is compared with its parts.
JOINED = "coalesce(list_contains(flags, 'joined'), false)"

# Lines of one response are at most this far apart.
_NEAR_MICROSECONDS = 3_600_000_000


@dataclass(frozen=True)
class Fresh:
    """The rows a batch just brought, already in `requests` but not yet judged.

    `merges` where one response may be several lines, `joins` where rows of this store may have
    been joined. `parse` takes long statements apart once.
    """

    batch: int
    source: str
    merges: bool
    joins: bool
    parse: Callable[[str], duckdb.Statement]


# SQL of the relation; the batch is a parameter, so that the statements stay the same.
FRESH = "(SELECT * FROM requests WHERE batch = $batch)"


@dataclass(frozen=True)
class Settled:
    """How many fresh rows got each verdict; temp table `settled(position, verdict)` lists them.
    Duplicates and conflicts are removed from `requests`."""

    duplicate: int = 0
    conflicting: int = 0
    corrected: int = 0


@dataclass(frozen=True)
class Facts:
    """What fresh rows are like, so that common batches need no closer look: how many have an id,
    whether two may have the same or any no time of its own, and the span of them all."""

    identified: int
    may_repeat: bool
    untimed: bool
    first_ts: datetime | None
    last_ts: datetime | None


def settle(cursor: duckdb.DuckDBPyConnection, fresh: Fresh, facts: Facts) -> Settled:
    """Judges the fresh rows and removes those that repeat or contradict an earlier one.

    Rows that correct stored ones stay; `supersede` is to remove what they replace.
    """
    if not facts.identified:
        return Settled()
    repeats = facts.may_repeat and _any_repeated(cursor, fresh)
    if not repeats and not _any_stored(cursor, fresh, facts):
        return Settled()
    cursor.execute("CREATE OR REPLACE TEMP TABLE settled (position BIGINT, verdict VARCHAR)")
    batch = {"batch": fresh.batch}
    if repeats:
        cursor.execute(f"INSERT INTO settled {_settle_within(fresh)}", batch)
    cursor.execute(f"INSERT INTO settled {_settle_against(fresh, facts)}", _span(fresh, facts))
    cursor.execute(
        """DELETE FROM requests WHERE batch = $batch AND position IN
            (SELECT position FROM settled WHERE verdict <> 'corrected')""",
        batch,
    )
    counts = dict(
        cursor.execute("SELECT verdict, count(*) FROM settled GROUP BY verdict").fetchall()
    )
    _keep_corrected(cursor, fresh, facts)
    return Settled(
        counts.get("duplicate", 0), counts.get("conflicting", 0), counts.get("corrected", 0)
    )


def _keep_corrected(cursor: duckdb.DuckDBPyConnection, fresh: Fresh, facts: Facts) -> None:
    """Copies the stored rows that corrections replace to temp table `superseded`; `replaced_by` is
    the position of the fresh row."""
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE superseded AS
        SELECT DISTINCT ON (stored_row) r.*, b.position AS replaced_by
        FROM {_stored(fresh, facts)} r
        JOIN {FRESH} b ON {_same_request(fresh.merges)}
        JOIN settled s ON s.position = b.position AND s.verdict = 'corrected'""",
        _span(fresh, facts),
    )


def supersede(cursor: duckdb.DuckDBPyConnection) -> None:
    """Removes the rows in `superseded` from `requests`."""
    cursor.execute("DELETE FROM requests WHERE rowid IN (SELECT stored_row FROM superseded)")


def _span(fresh: Fresh, facts: Facts) -> dict[str, object]:
    return {
        "batch": fresh.batch,
        "source": fresh.source,
        "first_ts": facts.first_ts,
        "last_ts": facts.last_ts,
    }


def _any_repeated(cursor: duckdb.DuckDBPyConnection, fresh: Fresh) -> bool:
    """Whether two fresh rows may have one id. A collision of hash() costs time, not rows; DuckDB's
    own count of distinct values takes longer to plan for a small batch."""
    asked = cursor.execute(fresh.parse(_KEYS), {"batch": fresh.batch})
    keys = asked.fetchnumpy()["key"]
    keys.sort()
    return bool((keys[1:] == keys[:-1]).any())


_KEYS = """SELECT hash(request_id, attempt) AS key FROM requests
    WHERE batch = $batch AND request_id IS NOT NULL"""


def _any_stored(cursor: duckdb.DuckDBPyConnection, fresh: Fresh, facts: Facts) -> bool:
    # The key alone: binding fifty columns twice takes longer than the join.
    repeated = f"""SELECT 1 FROM (SELECT request_id, attempt FROM requests WHERE batch = $batch)
        JOIN {_stored(fresh, facts, "request_id, attempt")}
        USING (request_id, attempt) LIMIT 1"""
    return bool(cursor.execute(fresh.parse(repeated), _span(fresh, facts)).fetchall())


def _hour(row: str) -> str:
    """The part of a row's identity beside id and attempt."""
    return f"CASE WHEN {_NO_TIME.format(row=row)} THEN NULL ELSE date_trunc('hour', {row}.ts) END"


def _same_request(merges: bool) -> str:
    """Whether the fresh row `b` and the stored row `r` are one request."""
    same = f"{_hour('b')} IS NOT DISTINCT FROM {_hour('r')}"
    if merges:  # lines of a response stand close together, on either side of a full hour
        untimed = " AND ".join(_NO_TIME.format(row=row) for row in ("b", "r"))
        same = f"({untimed} OR abs(epoch_us(b.ts) - epoch_us(r.ts)) <= {_NEAR_MICROSECONDS})"
    # What an engine and a gateway wrote about one call is two rows, which are joined.
    return f"""b.request_id = r.request_id AND b.attempt = r.attempt AND {same}
        AND NOT coalesce(b.side <> r.side, false)"""


def _grouped(fresh: Fresh) -> str:
    """Fresh rows with an id, and in `hour` which rows of an id belong together."""
    rows = f"(SELECT * FROM {FRESH} WHERE request_id IS NOT NULL)"
    if not fresh.merges:
        return f"(SELECT *, {_hour('b')} AS hour FROM {rows} b)"
    id_in_order = "PARTITION BY request_id, attempt, side ORDER BY ts, position"
    apart = f"epoch_us(ts) - epoch_us(lag(ts) OVER ({id_in_order})) > {_NEAR_MICROSECONDS}"
    return f"""(SELECT *, count(*) FILTER (apart) OVER (
            {id_in_order} ROWS UNBOUNDED PRECEDING) AS hour
        FROM (SELECT *, {apart} AS apart FROM {rows}))"""


_KEY = "request_id, attempt, side, hour"


def _settle_within(fresh: Fresh) -> str:
    """Rows of one identity inside the batch: one stays, the others repeat or contradict it."""
    order, same, differs = "position", _content("b"), "IS DISTINCT FROM"
    if fresh.merges:
        order = f"{_richness('b')} DESC, position"
        # A line of a response that does not state its usage yet contradicts nothing.
        same, differs = "CASE WHEN cached_tokens IS NOT NULL THEN prompt_tokens END", "<>"
    return f"""
    SELECT position, CASE WHEN same {differs} first_value(same) OVER identity
        THEN 'conflicting' ELSE 'duplicate' END
    FROM (SELECT position, {_KEY}, {same} AS same,
            row_number() OVER (PARTITION BY {_KEY} ORDER BY {order}) AS place
        FROM {_grouped(fresh)} b)
    WINDOW identity AS (PARTITION BY {_KEY} ORDER BY place)
    QUALIFY place > 1"""


def _stored(fresh: Fresh, facts: Facts, columns: str = "rowid AS stored_row, *") -> str:
    """Rows of the store that a fresh row may repeat, found in its own hours only."""
    reach = 1 if fresh.merges else 0
    span = f"""ts >= date_trunc('hour', $first_ts::TIMESTAMP) - INTERVAL {reach} HOUR
        AND ts < date_trunc('hour', $last_ts::TIMESTAMP) + INTERVAL {reach + 1} HOUR"""
    if facts.untimed:
        span = f"({span}) OR {_NO_TIME.format(row='requests')}"
    stored = f"""SELECT {columns} FROM requests
        WHERE batch < $batch AND source = $source AND ({span})"""
    if not fresh.joins:
        return f"({stored})"
    parts = columns.replace("rowid", "NULL")
    return f"""({stored} AND NOT {JOINED} UNION ALL SELECT {parts} FROM request_parts AS requests
        WHERE batch < $batch AND source = $source AND ({span}))"""


def _settle_against(fresh: Fresh, facts: Facts) -> str:
    same = f"{_content('b')} IS NOT DISTINCT FROM {_content('r')}"
    verdict = f"CASE WHEN {same} THEN 'duplicate' ELSE 'conflicting' END"
    if fresh.merges:
        verdict = f"""CASE
            WHEN b.prompt_tokens <> r.prompt_tokens AND r.cached_tokens IS NOT NULL
                AND b.cached_tokens IS NOT NULL THEN 'conflicting'
            WHEN {_richness("b")} > {_richness("r")} AND stored_row IS NOT NULL THEN 'corrected'
            ELSE 'duplicate' END"""
    return f"""
    SELECT b.position, {verdict}
    FROM {FRESH} b JOIN {_stored(fresh, facts)} r
        ON {_same_request(fresh.merges)}
    WHERE b.position NOT IN (SELECT position FROM settled)
    QUALIFY row_number() OVER (PARTITION BY b.position ORDER BY stored_row) = 1"""
