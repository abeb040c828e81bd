"""Request rows of the store as the tracker wants them: to know which blocks were used."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from exporter.blocks.rows import UsedPrefix
from exporter.store.store import Store

# Rows handed over at once: the tracker is locked meanwhile, and each has a chain of up to some
# thousand hashes.
ROWS_AT_ONCE = 500

# Chains made with another key tell us nothing.
_ROWS = f"""SELECT {", ".join(UsedPrefix._fields)} FROM requests
    WHERE hash_scope = 'global' AND hash_key_id = $key_id AND len(block_hashes) > 0"""  # noqa: S608 - our own column names
_NEW = f"{_ROWS} AND batch > $seen AND batch <= $newest ORDER BY ts"
_SINCE = f"{_ROWS} AND ts >= $since ORDER BY ts"


class NewRows:
    """Rows stored since the last call, whichever way they came in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen = store.last_batch

    def take(self) -> Iterator[Sequence[UsedPrefix]]:
        """Those committed since, oldest first, some at a time."""
        cursor = self._store.cursor()
        (newest,) = cursor.execute("SELECT max(batch) FROM requests").fetchone() or (None,)
        if newest is not None and newest > self._seen:
            span = {"seen": self._seen, "newest": newest, "key_id": self._store.hash_key_id}
            self._seen = newest
            cursor.execute(_NEW, span)
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield [UsedPrefix._make(row) for row in rows]
        cursor.close()


class StoredRows:
    """Rows that are there and began at `since` or later, handed out as recorded time passes."""

    def __init__(self, store: Store, since: datetime) -> None:
        self._cursor = store.cursor()
        self._cursor.execute(_SINCE, {"since": _plain(since), "key_id": store.hash_key_id})
        self._rows = self._fetched()
        self._next = next(self._rows, None)

    def until(self, at: datetime) -> Sequence[UsedPrefix]:
        """Those that began no later than this moment and were not handed out yet."""
        moment, found = _plain(at), []
        while self._next is not None and self._next.ts <= moment:
            found.append(self._next)
            self._next = next(self._rows, None)
        return found

    def _fetched(self) -> Iterator[UsedPrefix]:
        while rows := self._cursor.fetchmany(ROWS_AT_ONCE):
            yield from map(UsedPrefix._make, rows)


def _plain(moment: datetime) -> datetime:
    """Without a zone, as the store keeps times."""
    return moment.astimezone(UTC).replace(tzinfo=None)
