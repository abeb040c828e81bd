"""Looks for templates in the rows that came since it last looked, and puts them into rows.

Templates are looked for in the day that ends with what is new, so that a version change shows with
both its sides; of a long file in one such day after the other, half a day apart. Only a sample of a
day is read at a time (`sample.py`), so that memory is bounded however much there is.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import duckdb

from exporter.store.fold import last_batch
from exporter.store.store import Store
from exporter.templates_found.assign import NOT_GIVEN, UNNAMED, assign_later, assign_stored
from exporter.templates_found.found import found_in
from exporter.templates_found.keep import count_seen, keep
from exporter.templates_found.names import move_sums
from exporter.templates_found.sample import read_sample
from replay.prefix_groups import MIN_CALLERS

# Until which batch rows were looked at.
_LOOKED_AT = "templates_looked_at"
_DAY = timedelta(days=1)
_A_MOMENT = timedelta(microseconds=1)
# About so many rows get a template in one transaction, in which no other rows can come in.
_ROWS_AT_ONCE = 50_000

Span = tuple[datetime, datetime]


def find_templates(store: Store) -> int:
    """Finds templates in rows since the last time; returns how many rows got one, or another one.

    Rows on their way in meanwhile get what is known by then, and are looked at the next time.
    """
    with store.write() as writer:
        move_sums(writer)  # of minutes that were being sealed while a template was renamed
    cursor = store.cursor()
    after, until = _looked_at(cursor), last_batch(cursor)
    days = _new_days(cursor, after, until)
    if not days:
        return 0
    added = [keep(store, found_in(read_sample(cursor, *day), store.key)) for day in days]
    if any(one.templates for one in added):
        changed = _assign(store, cursor, _all_time(cursor))
    else:  # known ones, maybe in a scope where they were not met before
        in_scopes = [day for day, one in zip(days, added, strict=True) if one.prefixes]
        changed = _assign(store, cursor, in_scopes)
    changed += _assign_later(store, cursor, after)
    with store.write() as writer:
        count_seen(writer)
    store.set_meta(_LOOKED_AT, str(until))
    return changed


def _looked_at(cursor: duckdb.DuckDBPyConnection) -> int:
    row = cursor.execute("SELECT value FROM meta WHERE key = $key", {"key": _LOOKED_AT}).fetchone()
    return int(row[0]) if row else 0


def _new_days(cursor: duckdb.DuckDBPyConnection, after: int, until: int) -> list[Span]:
    """The day up to the last row of every half day that has enough new ones."""
    rows = cursor.execute(
        f"""SELECT max(ts) FROM requests
        WHERE batch > $after AND batch <= $until AND {NOT_GIVEN}
        GROUP BY time_bucket(INTERVAL 12 HOUR, ts) HAVING count(*) >= {MIN_CALLERS} ORDER BY 1""",
        {"after": after, "until": until},
    ).fetchall()
    return [(last + _A_MOMENT - _DAY, last + _A_MOMENT) for (last,) in rows]


def _all_time(cursor: duckdb.DuckDBPyConnection) -> list[Span]:
    rows = cursor.execute("SELECT min(ts), max(ts) FROM requests").fetchall()
    return [(first, last + _A_MOMENT) for first, last in rows if first is not None]


def _assign(store: Store, cursor: duckdb.DuckDBPyConnection, spans: Sequence[Span]) -> int:
    changed = 0
    for span in spans:
        for since, until in _parts(cursor, *span):
            with store.write() as writer:
                changed += assign_stored(writer, since, until, store.found_blocks)
    return changed


def _assign_later(store: Store, cursor: duckdb.DuckDBPyConnection, after: int) -> int:
    """Of what came in by now; later rows get what was found on arrival."""
    changed = 0
    for first, last in _batches(cursor, after):
        with store.write() as writer:
            changed += assign_later(writer, first, last, store.found_blocks)
    return changed


def _batches(cursor: duckdb.DuckDBPyConnection, after: int) -> Iterator[tuple[int, int]]:
    """Whole batches, as many as have a transaction's rows: after which, and up to which."""
    batches = cursor.execute(
        f"""SELECT batch, count(*) FROM requests WHERE batch > $after AND {UNNAMED}
        GROUP BY batch ORDER BY batch""",
        {"after": after},
    ).fetchall()
    rows, last = 0, after
    for batch, count in batches:
        if rows and rows + count > _ROWS_AT_ONCE:
            yield after, last
            after, rows = last, 0
        last, rows = batch, rows + count
    if rows:
        yield after, last


def _parts(cursor: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> Iterator[Span]:
    """Whole hours, as many as have a transaction's rows; the first and last as far as asked."""
    hours = cursor.execute(
        f"""SELECT greatest(date_trunc('hour', ts), $since), count(*) FROM requests
        WHERE ts >= $since AND ts < $until AND {NOT_GIVEN} GROUP BY 1 ORDER BY 1""",
        {"since": since, "until": until},
    ).fetchall()
    rows = 0
    for hour, count in hours:
        if rows and rows + count > _ROWS_AT_ONCE:
            yield since, hour
            since, rows = hour, 0
        rows += count
    if rows:
        yield since, until
