"""Which minutes are sealed, and how many of them at once.

A minute is sealed when it has been over for two minutes. Where rows much older than their arrival
still come in, minutes wait until none came for as long.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb

from exporter.causes.state import CauseState

SEAL_AFTER = timedelta(minutes=2)
_MINUTE = timedelta(minutes=1)
# A span of minutes is named at once as far as its chains have so many hashes, and rows.
_SPAN_HASHES, _SPAN_ROWS = 1_000_000, 50_000
# Rows that have a chain, and the hashes of all.
_SIZE = """count(*) FILTER (len(block_hashes) > 0),
        coalesce(sum(len(block_hashes) + coalesce(len(content_hashes), 0)
            + coalesce(len(piece_hashes), 0)), 0)::BIGINT"""
_MINUTES = f"""
    SELECT date_trunc('minute', ts) AS minute, {_SIZE}
    FROM requests
    WHERE ts >= $since AND ts < $until AND prompt_tokens > 0
        AND replica_role IS DISTINCT FROM 'decode'
    GROUP BY minute ORDER BY minute"""
_LATE = f"""
    SELECT batch, {_SIZE}
    FROM requests WHERE batch > $counted AND ts < $sealed
    GROUP BY batch ORDER BY batch"""
# Where rows older than the live window still come in, the minutes from there on wait for the rest.
_COMING = """
    SELECT min(ts) FROM requests
    WHERE arrived >= $lately AND ts >= $sealed AND ts < arrived - to_seconds($live_seconds)"""


@dataclass(frozen=True)
class Span:
    """Minutes that are sealed together, from the first one with rows on; late rows of batches up to
    `newest` with them (None: all)."""

    since: datetime
    until: datetime
    newest: int | None = None


def sealable_until(
    cursor: duckdb.DuckDBPyConnection,
    state: CauseState,
    now: datetime,
    live_seconds: float,
    wait_for_older: bool,
) -> datetime:
    """Up to where minutes can be sealed."""
    limit = _whole_minute(now - SEAL_AFTER)
    if not wait_for_older:
        return limit
    asked = {"lately": now - SEAL_AFTER, "sealed": state.sealed, "live_seconds": live_seconds}
    (coming,) = cursor.execute(_COMING, asked).fetchone() or (None,)
    return limit if coming is None else min(limit, _whole_minute(coming))


def spans(cursor: duckdb.DuckDBPyConnection, state: CauseState, until: datetime) -> Iterator[Span]:
    """The minutes that have rows, as many at once as memory is meant for. Late rows go with the
    first; where they are too many, or alone, they are spans that end where the last one did.

    Neither a minute, whose causes are named once, nor a batch is cut. A batch is 16 MiB of a file
    or one body, so it has a few million hashes at most.
    """
    late = cursor.execute(_LATE, {"counted": state.batch, "sealed": state.sealed}).fetchall()
    rows = hashes = 0
    for place, (_, chains, more) in enumerate(late):
        if rows and _is_too_much(rows + chains, hashes + more):
            yield Span(state.sealed, state.sealed, late[place - 1][0])
            rows = hashes = 0
        rows, hashes = rows + chains, hashes + more
    since = state.sealed
    minutes = cursor.execute(_MINUTES, {"since": since, "until": until}).fetchall()
    for place, (minute, chains, more) in enumerate(minutes):
        if rows and _is_too_much(rows + chains, hashes + more):
            yield Span(since, minute)
            since, rows, hashes = minute, 0, 0
        elif not place:
            since = minute
        rows, hashes = rows + chains, hashes + more
    if minutes or late:
        yield Span(since, minutes[-1][0] + _MINUTE if minutes else state.sealed)


def _is_too_much(rows: int, hashes: int) -> bool:
    return hashes > _SPAN_HASHES or rows > _SPAN_ROWS


def _whole_minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
