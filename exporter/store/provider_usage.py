"""What usage reports said, kept beside the requests and never among them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from exporter.errors import PrefixscopeError
from exporter.sources.usage_reports.rows import UsageRow
from exporter.store.store import Store
from queries.times import utc_without_zone

Window = tuple[datetime, datetime]

_TIME = pa.timestamp("us")
_COLUMNS: dict[str, pa.DataType] = {
    "reporter": pa.string(), "account": pa.string(), "day": _TIME, "bucket_seconds": pa.int64(),
    "provider": pa.string(), "model": pa.string(), "tenant": pa.string(),
    "requests": pa.int64(), "prompt_tokens": pa.int64(), "cached_tokens": pa.int64(),
    "cache_write_tokens": pa.int64(), "output_tokens": pa.int64(), "read_at": _TIME,
}  # fmt: skip

# Buckets of the same reporter, account and provider that one of the new buckets overlaps.
_OVERLAPPED = """
SELECT DISTINCT u.provider, u.day, u.bucket_seconds
FROM provider_usage AS u
JOIN (SELECT DISTINCT provider, day, bucket_seconds FROM fresh_usage) AS f
    ON f.provider = u.provider
    AND f.day < u.day + to_seconds(u.bucket_seconds)
    AND u.day < f.day + to_seconds(f.bucket_seconds)
WHERE u.reporter = $reporter AND u.account = $account
"""
_REPLACE = """
DELETE FROM provider_usage AS u USING overlapped_usage AS o
WHERE u.reporter = $reporter AND u.account = $account
    AND o.provider = u.provider AND o.day = u.day AND o.bucket_seconds = u.bucket_seconds
"""
# Replaced buckets of which the new ones cover only a part of what had passed when they were read.
_CUT = """
SELECT o.provider, o.day, o.bucket_seconds, epoch(
    least(o.day + to_seconds(o.bucket_seconds), any_value(f.read_at)) - o.day
) AS passed_seconds, sum(epoch(
    least(f.day + to_seconds(f.bucket_seconds), o.day + to_seconds(o.bucket_seconds))
    - greatest(f.day, o.day)
)) AS covered_seconds
FROM overlapped_usage AS o
JOIN (SELECT DISTINCT provider, day, bucket_seconds, read_at FROM fresh_usage) AS f
    ON f.provider = o.provider
    AND f.day < o.day + to_seconds(o.bucket_seconds)
    AND o.day < f.day + to_seconds(f.bucket_seconds)
GROUP BY o.provider, o.day, o.bucket_seconds HAVING covered_seconds < passed_seconds
ORDER BY o.day LIMIT 1
"""
# Providers of whose replaced buckets no tenant is named again, though tenants of the same kind
# (proj_…, wrkspc_…) are. What was used in a bucket stays used, so in a later report of the same
# organization each would be.
_STRANGERS = """
WITH before AS (
    SELECT DISTINCT u.provider, u.tenant, regexp_extract(u.tenant, '^[a-z]+[_-]') AS kind
    FROM provider_usage AS u
    JOIN overlapped_usage AS o USING (provider, day, bucket_seconds)
    WHERE u.reporter = $reporter AND u.account = $account AND u.tenant IS NOT NULL
),
fresh AS (
    SELECT DISTINCT provider, tenant, regexp_extract(tenant, '^[a-z]+[_-]') AS kind
    FROM fresh_usage
    WHERE tenant IS NOT NULL
)
SELECT b.provider, any_value(b.tenant), any_value(f.tenant)
FROM before AS b JOIN fresh AS f ON f.provider = b.provider AND f.kind = b.kind
GROUP BY b.provider
HAVING count(*) FILTER (b.tenant = f.tenant) = 0
ORDER BY b.provider LIMIT 1
"""


@dataclass(frozen=True)
class _Report:
    """Whose words are replaced: what another account of the same reporter said stays."""

    reporter: str
    account: str

    def parameters(self) -> dict[str, object]:
        return {"reporter": self.reporter, "account": self.account}


def replace_usage(
    store: Store,
    reporter: str,
    rows: Sequence[UsageRow],
    *,
    account: str = "",
    window: Window | None = None,
    read_at: datetime | None = None,
) -> int:
    """Keep what a report says; returns the number of rows kept.

    Everything the reporter said before of the buckets the rows cover, or of any bucket that
    begins in `window` ([since, until), for reporters that leave out days without traffic), is
    forgotten in the same transaction: reading a report again changes nothing. What it said of
    another `account` (an organization, a database) stays. `read_at` is when the report was made;
    a bucket that had not ended by then is known to be partial. Raises PrefixscopeError where a
    longer bucket would be replaced by a part of itself, or a nameless account by another's.
    """
    report = _Report(reporter, account)
    batch = _batch(report, rows, read_at or datetime.now(UTC))
    with store.write() as cursor:
        cursor.register("fresh_usage", batch)
        try:
            if window is not None:
                _forget(cursor, report, window)
            _replace(cursor, report)
        finally:
            cursor.unregister("fresh_usage")
    return len(rows)


def _replace(cursor: duckdb.DuckDBPyConnection, report: _Report) -> None:
    """Put the fresh rows in the place of what they overlap."""
    whose = report.parameters()
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE overlapped_usage AS {_OVERLAPPED}", whose)
    _refuse_parts(cursor, report)
    if not report.account:
        _refuse_strangers(cursor, report)
    cursor.execute(_REPLACE, whose)
    cursor.execute("DROP TABLE overlapped_usage")
    cursor.execute("INSERT INTO provider_usage BY NAME FROM fresh_usage")


def _forget(cursor: duckdb.DuckDBPyConnection, report: _Report, window: Window) -> None:
    cursor.execute(
        "DELETE FROM provider_usage WHERE reporter = $reporter AND account = $account"
        " AND day >= $since AND day < $until",
        {
            **report.parameters(),
            "since": utc_without_zone(window[0]),
            "until": utc_without_zone(window[1]),
        },
    )


def _refuse_parts(cursor: duckdb.DuckDBPyConnection, report: _Report) -> None:
    for provider, day, seconds, _, covered in cursor.execute(_CUT).fetchall():
        raise PrefixscopeError(
            f"{report.reporter}: the store has what {provider} used in the {seconds:,} s from"
            f" {day.isoformat()}Z, and this report covers only {covered:,.0f} s of them in finer"
            " buckets; read the report of whole days"
        )


def _refuse_strangers(cursor: duckdb.DuckDBPyConnection, report: _Report) -> None:
    """Two organizations would take turns in the store: reports do not say whose they are."""
    for provider, before, now in cursor.execute(_STRANGERS, report.parameters()).fetchall():
        raise PrefixscopeError(
            f"{report.reporter}: of the same days of {provider} the store has {before}, this "
            f"report {now}, and none of them is in both: is it another organization's? Give each "
            "of them a name, with --account"
        )


def _batch(report: _Report, rows: Sequence[UsageRow], read_at: datetime) -> pa.Table:
    given: dict[str, list[object]] = {
        "reporter": [report.reporter] * len(rows),
        "account": [report.account] * len(rows),
        "day": [utc_without_zone(row.day) for row in rows],
        "read_at": [utc_without_zone(read_at)] * len(rows),
    }
    return pa.table(
        {
            name: pa.array(given.get(name) or [getattr(row, name, None) for row in rows], kind)
            for name, kind in _COLUMNS.items()
        }
    )
