"""Which spans of a target's past the store has, and from whom.

A span that our own scraper covered is never filled from elsewhere, and a filled span is filled
once: two sources of one fact are not added.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb

# Samples of a target or a replica that no back-fill brought, as spans without a hole.
_OWN_SPANS = """
WITH own AS (
    SELECT coalesce(since, ts) AS span_since, ts AS span_until
    FROM engine_samples AS s
    WHERE (
        target = $target OR replica = $replica
        OR (  -- its data-parallel ranks
            starts_with(replica, $replica || '/')
            AND try_cast(replica[length($replica) + 2:] AS INTEGER) IS NOT NULL
        )
    )
    AND NOT EXISTS (
        FROM backfills AS b WHERE b.target = s.target AND s.ts >= b.first AND s.ts <= b.until
    )
),
marked AS (
    SELECT *, span_since > max(span_until) OVER (
        ORDER BY span_since, span_until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS apart FROM own
),
numbered AS (
    SELECT
        *, sum(coalesce(apart, FALSE)::INTEGER) OVER (ORDER BY span_since, span_until) AS span
    FROM marked
)
SELECT min(span_since), max(span_until) FROM numbered GROUP BY span ORDER BY ALL
"""


@dataclass(frozen=True)
class Span:
    """A stretch of time, both ends included, in Unix seconds."""

    since: float
    until: float


@dataclass(frozen=True)
class Filled:
    """One filled span of a target: `since` as asked, first and last page, and the state then."""

    target: str
    labels: str
    replica: str
    source: str
    since: float
    first: float
    until: float
    state: str


def own_spans(cursor: duckdb.DuckDBPyConnection, target: str, replica: str) -> list[Span]:
    """What our own scraper, or recorded pages, covered of a target or a replica."""
    found = cursor.execute(_OWN_SPANS, {"target": target, "replica": replica}).fetchall()
    return [Span(_unix(since), _unix(until)) for since, until in found]


def filled(cursor: duckdb.DuckDBPyConnection, target: str, labels: str) -> list[Filled]:
    """The filled spans of a target with these labels, oldest first."""
    rows = cursor.execute(
        "SELECT target, labels, replica, source, since, first, until, state FROM backfills"
        " WHERE target = $target AND labels = $labels ORDER BY since",
        {"target": target, "labels": labels},
    ).fetchall()
    return [
        Filled(name, own, replica, source, _unix(since), _unix(first), _unix(until), state)
        for name, own, replica, source, since, first, until, state in rows
    ]


def put(cursor: duckdb.DuckDBPyConnection, row: Filled) -> None:
    """Remember how far a span is filled, in the transaction of its samples."""
    times = [_naive(row.since), _naive(row.first), _naive(row.until)]
    cursor.execute(
        "INSERT OR REPLACE INTO backfills"
        " (target, labels, replica, source, since, first, until, state)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [row.target, row.labels, row.replica, row.source, *times, row.state],
    )


def free_spans(asked: Span, covered: Iterable[Span]) -> list[Span]:
    """What of a span none of the others covers, oldest first. Ends touch: the page at an end is
    the baseline of one side and the last page of the other."""
    free, start = [], asked.since
    for span in sorted(covered, key=lambda one: one.since):
        if span.until < start or span.since > asked.until:
            continue
        if span.since > start:
            free.append(Span(start, span.since))
        start = max(start, span.until)
    if start < asked.until:
        free.append(Span(start, asked.until))
    return free


def _unix(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()


def _naive(unix: float) -> datetime:
    """As the columns keep it: UTC without a zone."""
    return datetime.fromtimestamp(unix, UTC).replace(tzinfo=None)
