"""Looks for templates in the rows that came since it last looked, and puts them into rows.

Templates are looked for in the day that ends with what is new, so that a version change shows with
both its sides; of a long file in one such day after the other, half a day apart. Only a sample of a
day is read at a time (`sample.py`), so that memory is bounded however much there is.
"""

from datetime import datetime, timedelta

import duckdb

from exporter.store.store import Store
from exporter.templates_found.assign import NOT_GIVEN, assign_stored
from exporter.templates_found.found import found_in
from exporter.templates_found.keep import count_seen, keep
from exporter.templates_found.sample import read_sample
from replay.prefix_groups import MIN_CALLERS

# Until which batch rows were looked at.
_LOOKED_AT = "templates_looked_at"
_DAY, _HALF_DAY = timedelta(days=1), timedelta(hours=12)
_A_MOMENT = timedelta(microseconds=1)


def find_templates(store: Store) -> int:
    """Finds templates in rows since the last time; returns how many rows got one, or another one.

    Rows on their way in meanwhile get what is known by then, and are looked at the next time.
    """
    cursor, until = store.cursor(), store.last_batch
    ends = _new_days(cursor, until)
    if not ends:
        return 0
    added = [keep(store, found_in(read_sample(cursor, end - _DAY, end), store.key)) for end in ends]
    changed = 0
    if any(one.templates for one in added):
        changed = _assign_all(store, cursor)
    else:  # a known one in another scope
        for end in (end for end, one in zip(ends, added, strict=True) if one.prefixes):
            changed += _assign(store, end - _DAY, end)
    with store.write() as writer:
        count_seen(writer)
    store.set_meta(_LOOKED_AT, str(until))
    return changed


def _new_days(cursor: duckdb.DuckDBPyConnection, until: int) -> list[datetime]:
    """The ends of days to look at: of every half day with enough new rows, just after its last."""
    row = cursor.execute("SELECT value FROM meta WHERE key = $key", {"key": _LOOKED_AT}).fetchone()
    rows = cursor.execute(
        f"""SELECT max(ts) FROM requests
        WHERE batch > $after AND batch <= $until AND {NOT_GIVEN}
        GROUP BY time_bucket(INTERVAL 12 HOUR, ts) HAVING count(*) >= $least ORDER BY 1""",
        {"after": int(row[0]) if row else 0, "until": until, "least": MIN_CALLERS},
    ).fetchall()
    return [last + _A_MOMENT for (last,) in rows]


def _assign_all(store: Store, cursor: duckdb.DuckDBPyConnection) -> int:
    """Day by day, so that other rows need not wait long."""
    span = cursor.execute(f"SELECT min(ts), max(ts) FROM requests WHERE {NOT_GIVEN}").fetchone()
    if span is None or span[0] is None:
        return 0
    changed, since = 0, span[0]
    while since <= span[1]:
        changed += _assign(store, since, since + _DAY)
        since += _DAY
    return changed


def _assign(store: Store, since: datetime, until: datetime) -> int:
    with store.write() as writer:
        return assign_stored(writer, since, until, store.found_blocks)
