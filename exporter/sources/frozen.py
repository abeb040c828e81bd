"""Did requests reach an engine while its counters stood still?

The engine cannot be asked about itself here, so the request log is: it is independent of the
page. Only requests that were over well before the last page count, as a request under way
need not have moved anything yet.
"""

from collections.abc import Collection
from datetime import UTC, datetime

import duckdb

from exporter.sources.target_state import TargetState

# Rows that name no replica tell about this one only if its model was asked for and no other
# engine of that model counted anything meanwhile.
_SERVED = """
    WITH served AS (
        SELECT replica, model FROM requests
        WHERE ts >= $since AND ts + to_seconds(coalesce(e2e_seconds, 0)) <= $until
            AND status = 'ok' AND coalesce(prompt_tokens, 0) > 0
    )
    SELECT EXISTS (SELECT 1 FROM served WHERE list_contains($replicas, replica))
        OR (EXISTS (SELECT 1 FROM served WHERE replica IS NULL
                    AND (list_contains($models, model) OR (len($models) = 0 AND $alone)))
            AND NOT EXISTS (
                SELECT 1 FROM engine_own
                WHERE ts > $since AND prompt_tokens > 0
                    AND (list_contains($models, model) OR len($models) = 0)))
"""


def served_meanwhile(
    cursor: duckdb.DuckDBPyConnection,
    state: TargetState,
    replicas: Collection[str],
    models: Collection[str],
    alone: bool,
    interval_seconds: float,
) -> bool:
    """Whether the log has served requests since the counters last moved.

    `alone`: this is the only target, so requests of an unnamed model must be its own.
    """
    if state.equal_since is None or state.seen_unix is None:
        return False
    found = cursor.execute(
        _SERVED,
        {
            "since": _naive(state.equal_since),
            "until": _naive(state.seen_unix - interval_seconds),
            "replicas": sorted(replicas),
            "models": sorted(models),
            "alone": alone,
        },
    ).fetchone()
    return bool(found and found[0])


def _naive(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC).replace(tzinfo=None)
