"""Which values get a series of their own on /metrics, chosen anew at most once a day.

Until a label is full its values are admitted as they come; whoever came first need not be
whoever matters. The daily choice takes those with the most prompt tokens.
"""

from datetime import datetime, timedelta

import duckdb

from exporter.store.store import Store
from queries.times import utc_without_zone

_CHOSEN = "labels_chosen"
_DAY = timedelta(days=1)


def choose_labels(store: Store, now: datetime) -> None:
    """Gives each label the values with the most prompt tokens of the last 24 hours.

    Values of before keep their place where there is room, so that nobody is demoted in vain.
    A promoted value starts at 0, its past stays in 'other'; a demoted one stands still until
    restart and ends there. Chosen less than a day ago: nothing happens.
    """
    moment = utc_without_zone(now)
    with store.write() as cursor:
        if not _due(cursor, moment):
            return
        for label, limit in store.settings.label_limits().items():
            chosen = _most_used(cursor, label, limit, moment)
            _keep(cursor, label, chosen, moment)
            # Inside the transaction: nobody may admit a value between the two.
            store.counters.bounds.choose(label, chosen)
        cursor.execute(
            "INSERT OR REPLACE INTO meta VALUES ($key, $value)",
            {"key": _CHOSEN, "value": moment.isoformat()},
        )


def _due(cursor: duckdb.DuckDBPyConnection, now: datetime) -> bool:
    """Whether a day has passed. A choice that lies ahead was made by a wrong clock."""
    row = cursor.execute("SELECT value FROM meta WHERE key = $key", {"key": _CHOSEN}).fetchone()
    return row is None or not timedelta(0) <= now - datetime.fromisoformat(row[0]) < _DAY


def _most_used(
    cursor: duckdb.DuckDBPyConnection, label: str, limit: int, now: datetime
) -> list[str]:
    """From requests, not from roll-ups: those know nothing of who was folded."""
    rows = cursor.execute(
        f"""SELECT value FROM (
            SELECT {label} AS value, coalesce(prompt_tokens, 0) AS tokens, false AS admitted
            FROM requests
            WHERE ts >= $since AND ts < $now AND {label} IS NOT NULL
                AND replica_role IS DISTINCT FROM 'decode'
            UNION ALL
            SELECT value, 0, true FROM label_values WHERE label = $label)
        GROUP BY value
        ORDER BY sum(tokens) DESC, bool_or(admitted) DESC, value
        LIMIT $limit""",
        {"since": now - _DAY, "now": now, "label": label, "limit": limit},
    ).fetchall()
    return [value for (value,) in rows]


def _keep(cursor: duckdb.DuckDBPyConnection, label: str, chosen: list[str], now: datetime) -> None:
    """Writes the choice; `since` of a value that stays is when it first came in."""
    cursor.execute(
        """DELETE FROM label_values
        WHERE label = $label AND value NOT IN (SELECT unnest($chosen::VARCHAR[]))""",
        {"label": label, "chosen": chosen},
    )
    cursor.execute(
        """INSERT INTO label_values SELECT $label, unnest($chosen::VARCHAR[]), $now
        ON CONFLICT DO NOTHING""",
        {"label": label, "chosen": chosen, "now": now},
    )
