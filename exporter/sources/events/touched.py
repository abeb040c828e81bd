"""Rows of the store as the tracker wants them: requests, to know which blocks were used, and what
metric pages told of capacity and sleep.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import duckdb

from exporter.blocks.rows import UsedPrefix
from exporter.records import EngineSample
from exporter.store.store import Store
from queries.times import utc_without_zone

# Rows handed over at once: the tracker is locked meanwhile, and each has a chain of up to some
# thousand hashes.
ROWS_AT_ONCE = 500

# Chains made with another key tell us nothing.
_ROWS = f"""SELECT {", ".join(UsedPrefix._fields)} FROM requests
    WHERE hash_scope = 'global' AND hash_key_id = $key_id AND len(block_hashes) > 0"""  # noqa: S608 - our own column names
_NEW = (
    f"{_ROWS} AND batch > $seen AND batch <= $newest"
    " ORDER BY ts, batch, block_hashes OFFSET $shown_rows"
)
_PAST = f"{_ROWS} AND ts >= $first AND ts < $end ORDER BY ts"
_TOLD = ("target", "replica", "engine", "ts", "kv_capacity_tokens", "block_size", "awake")
_PAGES = f"""SELECT {", ".join(_TOLD)} FROM engine_samples
    WHERE observer = 'engine' AND ts >= $first AND ts < $end
        AND (replica = $replica OR starts_with(replica, $replica || '/'))
        AND (kv_capacity_tokens IS NOT NULL OR awake IS NOT NULL)
    ORDER BY ts"""  # noqa: S608 - our own column names


class NewRows:
    """Rows stored since the last call, whichever way they came in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = self._newest = store.last_batch
        # Of the batches between these two, where a call was broken off.
        self._shown_rows = 0

    def take(self) -> Iterator[Sequence[UsedPrefix]]:
        """Those committed since, oldest first, some at a time. Broken off by an error, the next
        call goes on behind the last that were worked on."""
        with closing(self._store.cursor()) as cursor:
            if self._newest == self._seen:
                (newest,) = cursor.execute("SELECT max(batch) FROM requests").fetchone() or (None,)
                self._newest = max(self._seen, newest or 0)
            if self._newest > self._seen:
                yield from self._between(cursor)
                self._seen, self._shown_rows = self._newest, 0

    def _between(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[Sequence[UsedPrefix]]:
        cursor.execute(_NEW, {
            "seen": self._seen, "newest": self._newest, "shown_rows": self._shown_rows,
            "key_id": self._store.hash_key_id,
        })  # fmt: skip
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield [UsedPrefix._make(row) for row in rows]
            self._shown_rows += len(rows)


class _Timed(Protocol):
    @property
    def ts(self) -> datetime:
        """When, in UTC without a zone."""
        ...


_Row = TypeVar("_Row", bound=_Timed)


class Past(Generic[_Row]):
    """What the store has, oldest first, handed out as recorded time passes.

    `between` reads what is from one moment on and before another. It is asked a minute at a time,
    for the store is written to meanwhile: no query may stay open.
    """

    def __init__(
        self, between: Callable[[datetime, datetime], Sequence[_Row]], since: datetime
    ) -> None:
        self._between = between
        self._read_until = utc_without_zone(since)
        self._rows: deque[_Row] = deque()

    def until(self, at: datetime) -> Sequence[_Row]:
        """What was no later than this moment and was not handed out yet."""
        moment, found = utc_without_zone(at), []
        if moment >= self._read_until:
            end = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
            self._rows.extend(self._between(self._read_until, end))
            self._read_until = end
        while self._rows and self._rows[0].ts <= moment:
            found.append(self._rows.popleft())
        return found


def past_rows(store: Store, since: datetime) -> Past[UsedPrefix]:
    """Requests with chains that began at `since` or later."""

    def between(first: datetime, end: datetime) -> Sequence[UsedPrefix]:
        span = {"first": first, "end": end, "key_id": store.hash_key_id}
        return [UsedPrefix._make(row) for row in _fetched(store, _PAST, span)]

    return Past(between, since)


def past_samples(store: Store, replica: str, since: datetime) -> Past[EngineSample]:
    """What the pages of a replica, all ranks of it, told of capacity and sleep from `since` on."""

    def between(first: datetime, end: datetime) -> Sequence[EngineSample]:
        span = {"first": first, "end": end, "replica": replica}
        told = (dict(zip(_TOLD, row, strict=True)) for row in _fetched(store, _PAGES, span))
        return [EngineSample.model_validate(row) for row in told]

    return Past(between, since)


def _fetched(store: Store, sql: str, values: dict[str, object]) -> Sequence[tuple[Any, ...]]:
    with closing(store.cursor()) as cursor:
        return cursor.execute(sql, values).fetchall()
