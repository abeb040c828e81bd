"""What scopes cost in the latest rows of a store, kept as a whole in `scope_pairs` and
`public_prefixes`."""

from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa

from exporter.causes.naming import Reset
from exporter.causes.rows import parts_of, replica_names
from exporter.causes.sealing import reset_moments
from exporter.isolation.audit import Audit, AuditRules
from exporter.isolation.rows import Row, pair_rows, prefix_rows
from exporter.isolation.settings import IsolationSettings
from exporter.judge_watch import SeldomWatch
from exporter.store.database import cursor_beside
from exporter.store.store import Store
from queries import registry
from replay.causes import attribute
from replay.columns import Fleet
from replay.rules import BlockSizesDisagree
from replay.traffic import Moments

WINDOW = timedelta(days=1)
# The first time when loads at the start are over.
FIRST_SECONDS, EVERY_SECONDS = 600.0, 3_600.0

_NEWEST = "SELECT max(ts) FROM requests WHERE len(block_hashes) > 0"
# Rows that tell something of scopes. One with more hashes than are wanted of all would hide those
# before it.
_TELLING = """len(block_hashes) > 0
    AND len(block_hashes) + coalesce(len(content_hashes), 0) <= $most_hashes"""
# From when on the latest of them have no more hashes than are wanted; NULL: there are none, or all
# are of one scope, so that there is nothing to tell.
_SINCE = """
    WITH asked AS (
        SELECT ts, scope, len(block_hashes) + coalesce(len(content_hashes), 0) AS hashes
        FROM requests
        WHERE ts >= $since AND ts < $until AND prompt_tokens > 0 AND len(block_hashes) > 0
            AND replica_role IS DISTINCT FROM 'decode'
    ),
    latest AS (
        SELECT ts, scope, sum(hashes) OVER (ORDER BY ts DESC ROWS UNBOUNDED PRECEDING) AS hashes
        FROM asked WHERE hashes <= $most_hashes
    )
    SELECT CASE WHEN count(DISTINCT coalesce(scope, '')) > 1 THEN min(ts) END
    FROM latest WHERE hashes <= $most_hashes"""
_ADD_PAIR = """
    INSERT INTO scope_pairs BY NAME SELECT
        $window_since AS window_since, $window_until AS window_until, $model AS model,
        $replica AS replica, $scope AS scope, $tenants AS tenants, $other_scope AS other_scope,
        $other_tenants AS other_tenants, $isolated_tokens AS isolated_tokens,
        $isolated_requests AS isolated_requests, $merged_tokens AS merged_tokens,
        $merged_requests AS merged_requests"""
_ADD_PREFIX = """
    INSERT INTO public_prefixes BY NAME SELECT
        $window_since AS window_since, $window_until AS window_until, $model AS model,
        $prefix AS prefix, $tokens AS tokens, $callers AS callers, $scopes AS scopes,
        $requests AS requests, $won_tokens AS won_tokens, $first_ts AS first_ts,
        $last_ts AS last_ts"""
_PAIR = ("model", "replica", "scope", "tenants", "other_scope", "other_tenants",
         "isolated_tokens", "isolated_requests", "merged_tokens", "merged_requests")  # fmt: skip


def judge_isolation(store: Store, until: datetime, settings: IsolationSettings) -> Audit | None:
    """Look at the day before `until` (UTC without a zone), as much of its end as the settings
    allow, and keep what was found instead of what was before. None: all rows are of one scope."""
    cursor = store.cursor()
    bounds: dict[str, object] = {
        "since": until - WINDOW, "until": until, "most_hashes": settings.most_hashes,
    }  # fmt: skip
    [(since,)] = cursor.execute(_SINCE, bounds).fetchall()
    audit = None
    if since is not None:
        table = _rows(cursor, since, bounds)
        resets = registry.run(cursor, "block_resets", {"since": since, "until": until})
        audit = audited(table, reset_moments(resets), settings)
    with store.write() as writer:
        writer.execute("DELETE FROM scope_pairs")
        writer.execute("DELETE FROM public_prefixes")
        if audit is not None:
            _keep(writer, audit, {"window_since": since, "window_until": until})
    return audit


def judge_newest_scopes(store: Store, settings: IsolationSettings) -> None:
    """The same of the last day that has rows with chains; nothing where there are none."""
    [(newest,)] = store.cursor().execute(_NEWEST).fetchall()
    if newest is not None:
        judge_isolation(store, newest + timedelta(seconds=1), settings)


def _rows(
    cursor: duckdb.DuckDBPyConnection, since: datetime, bounds: dict[str, object]
) -> pa.Table:
    """Those of `request_chains` that tell something: others are many where few have chains."""
    asked = registry.question("request_chains").sql.rstrip().rstrip(";")
    own = cursor_beside(cursor)
    own.execute("SET VARIABLE since = CAST(? AS TIMESTAMP)", [since])
    own.execute("SET VARIABLE until = CAST(? AS TIMESTAMP)", [bounds["until"]])
    table = own.sql(
        f"FROM ({asked}) WHERE {_TELLING}", params={"most_hashes": bounds["most_hashes"]}
    ).to_arrow_table()
    own.close()
    return table


def audited(table: pa.Table, resets: tuple[Reset, ...], settings: IsolationSettings) -> Audit:
    """What the rows of an answer of `request_chains` tell of scopes; `resets` of replicas, and
    when."""
    audit = Audit(table, AuditRules(least_callers=settings.least_tenants))
    for part in parts_of(table):
        names = replica_names(table.select(["replica"]).take(part.rows))
        own = [(names.index(name), seconds) for name, seconds in resets if name in names]
        fleet = Fleet(resets=Moments.of(own))
        try:
            found = attribute(part.traffic, part.rule, fleet)
        except BlockSizesDisagree:
            continue  # the rows state a block size that their chains do not fit
        audit.add(part, (part.traffic, fleet, names), found, part.judged)
    return audit


def _keep(writer: duckdb.DuckDBPyConnection, audit: Audit, window: Row) -> None:
    for row in pair_rows(audit):
        if row["other_scope"] is not None and (row["isolated_tokens"] or row["merged_tokens"]):
            writer.execute(_ADD_PAIR, window | {name: row[name] for name in _PAIR})
    for row in prefix_rows(audit):
        writer.execute(_ADD_PREFIX, window | row)


class IsolationWatch(SeldomWatch):
    """Tells every hour what scopes keep from being shared."""

    def __init__(self, store: Store, settings: IsolationSettings) -> None:
        super().__init__("isolation", FIRST_SECONDS, EVERY_SECONDS)
        self._store, self._settings = store, settings

    def judge_once(self) -> None:
        judge_isolation(self._store, datetime.now(UTC).replace(tzinfo=None), self._settings)
