"""Keeping a store small: merging what was appended, forgetting what is old.

Requests stay row by row for `hot_days`, whole hours by event time; before that the roll-ups
speak, for `rollup_days`. Whatever is forgotten, counters keep their totals. DuckDB reuses freed
room but seldom cuts the file, so its size levels off at the most that was kept at a time.
"""

import logging
from datetime import datetime, timedelta

import duckdb

from exporter.causes import sums
from exporter.isolation import crossed
from exporter.store import blocks, live, rollup
from exporter.store.labels import choose_labels
from exporter.store.store import Store, earliest
from queries.times import utc_without_zone

_log = logging.getLogger(__name__)

# Whoever seals, and cannot, keeps rows no longer than that.
_SEALED_WITHIN = timedelta(days=1)
# Tables whose rows go after `rollup_days`, and the time they go by.
_AGED = (
    ("minute_rollup", "minute"),
    ("hour_rollup", "hour"),
    ("cause_minutes", "minute"),
    ("cause_hours", "hour"),
    ("cross_scope_minutes", "minute"),
    ("engine_samples", "ts"),
    ("samples_beside", "ts"),
    ("provider_usage", "day"),
    ("block_minutes", "minute"),
    ("block_resets", "ts"),
    ("block_copies", "minute"),
    ("offsets", "updated"),
)
_TALLIED = (
    "accepted", "duplicate", "corrected", "conflicting", "rejected", "late_requests", "late_tokens",
)  # fmt: skip


def run_maintenance(store: Store, now: datetime, *, waits_for_seal: bool = False) -> None:
    """Everything a store needs now and then, in order. Right at any time and as often as
    wanted; meant for every hour or so. `waits_for_seal`: see `retain`."""
    compact(store)
    retain(store, now, waits_for_seal=waits_for_seal)
    choose_labels(store, now)


def compact(store: Store) -> None:
    """Merges additive rows that share a key. Changes no sum.

    Each step is a transaction of its own, so that rows on their way in wait for one only.
    """
    store.fold()
    merges = (rollup.compact, sums.compact, crossed.compact, live.compact, blocks.compact)
    for merge in (*merges, _compact_tallies):
        with store.write() as cursor:
            merge(cursor)


def retain(store: Store, now: datetime, *, waits_for_seal: bool = False) -> None:
    """Forgets what is older than the settings say, and makes its room free for reuse.

    `waits_for_seal`: somebody seals minutes of this store; rows that came in within a day stay
    until the causes of their missed tokens were named.
    """
    hot = _whole_hour(now - timedelta(days=store.settings.hot_days))
    kept = _whole_hour(now - timedelta(days=store.settings.rollup_days))
    store.fold()
    with store.write() as cursor:
        _forget_requests(cursor, hot, now - _SEALED_WITHIN if waits_for_seal else None)
        _forget_rejects(cursor, hot)
        # Inside the transaction: no row may come in between the two.
        store.earliest = earliest(cursor)
    with store.write() as cursor:
        for table, moment in _AGED:
            cursor.execute(f"DELETE FROM {table} WHERE {moment} < $kept", {"kept": kept})
        # What is older counts in the oldest hour: the counters' totals are read from here.
        cursor.execute("UPDATE ingest_batches SET hour = $kept WHERE hour < $kept", {"kept": kept})
    _make_room(store)


def _make_room(store: Store) -> None:
    """Brings the log of changes into the file. Not while a question reads rows that were changed
    since it began: DuckDB refuses, and does it by itself as its log grows."""
    try:
        # Alone in its transaction, where nobody can be writing.
        with store.write() as cursor:
            cursor.execute("CHECKPOINT")
    except duckdb.TransactionException as refused:
        _log.info("the room of what was forgotten is made free later: %s", refused)


def _whole_hour(moment: datetime) -> datetime:
    """The start of the hour, in UTC without a zone, as the columns keep time."""
    utc = utc_without_zone(moment)
    return utc.replace(minute=0, second=0, microsecond=0)


def _forget_requests(
    cursor: duckdb.DuckDBPyConnection, hot: datetime, unsealed_since: datetime | None
) -> None:
    """Forgets rows that the roll-ups have; one that was not folded yet goes the next time, and one
    that arrived after `unsealed_since` once it was sealed.

    `hot_since` moves only where rows went, and never back: a store that has forgotten nothing
    still takes old rows, because it can tell whether it has them.
    """
    gone = cursor.execute(
        "DELETE FROM requests WHERE ts < $hot"
        " AND batch <= (SELECT coalesce(max(batch), 0) FROM folded)"
        " AND ($unsealed IS NULL OR arrived < $unsealed OR EXISTS (FROM cause_state AS s"
        " WHERE requests.ts < s.sealed AND requests.batch <= s.batch))",
        {"hot": hot, "unsealed": unsealed_since and utc_without_zone(unsealed_since)},
    ).fetchone()
    if not gone or not gone[0]:
        return
    cursor.execute("DELETE FROM request_parts WHERE ts < $hot", {"hot": hot})
    since = cursor.execute("SELECT max(hour) FROM hot_since").fetchone()
    if since is None or since[0] is None or since[0] < hot:
        cursor.execute("DELETE FROM hot_since")
        cursor.execute("INSERT INTO hot_since VALUES ($hot)", {"hot": hot})


def _forget_rejects(cursor: duckdb.DuckDBPyConnection, hot: datetime) -> None:
    """Places and excerpts go; how many there were stays."""
    cursor.execute(
        """INSERT INTO rejects_before
        SELECT source, reason, count(*) FROM rejects WHERE arrived < $hot GROUP BY ALL
        ON CONFLICT DO UPDATE SET rejects = rejects + excluded.rejects""",
        {"hot": hot},
    )
    cursor.execute("DELETE FROM rejects WHERE arrived < $hot", {"hot": hot})


def _compact_tallies(cursor: duckdb.DuckDBPyConnection) -> None:
    """One row for each hour, source and format, where every batch left one."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in _TALLIED)
    cursor.execute(
        f"""CREATE OR REPLACE TEMP TABLE merged AS
        SELECT hour, source, source_format, {sums}, min(first_ts) AS first_ts,
            max(last_ts) AS last_ts, max(last_arrived) AS last_arrived,
            sum_entries(flatten(list(map_entries(flags)) FILTER (flags IS NOT NULL))) AS flags
        FROM ingest_batches GROUP BY ALL"""
    )
    cursor.execute("DELETE FROM ingest_batches")
    cursor.execute("INSERT INTO ingest_batches BY NAME SELECT * FROM merged")
