"""One pass over LiteLLM's spend logs: every row that is new, many a transaction.

Rows are read in the order of the time their request began, page by page; no snapshot is held open
meanwhile. A row appears when its request has ended and LiteLLM has flushed it, so rows are
compared one by one within the overlap window behind the database's own clock, and only older
times are taken as done. What has been read is noted in the transaction of its rows. The lines the
database makes go the way that lines of a file go.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import duckdb
import pyarrow as pa

from exporter.errors import PrefixscopeError
from exporter.sources.formats import litellm_spend_logs
from exporter.sources.formats.names import with_names
from exporter.sources.intake import IngestSummary, fingerprint
from exporter.sources.lines import BATCH_BYTES, SCHEMA, BadLine, LineBatch, for_threads
from exporter.sources.names import SourceNames
from exporter.sources.spend_logs.daily import DailyTables
from exporter.sources.spend_logs.database import Database, DatabaseError, Rows, Stopped, library
from exporter.sources.spend_logs.place import FORMAT_NAME, Address, SpendLogSettings
from exporter.sources.spend_logs.table import (
    LINE_LIMIT_BYTES,
    Statements,
    spend_log_table,
    statements,
)
from exporter.store.append import Stream, append
from exporter.store.bookmarks import Bookmark, Read, keyed
from exporter.store.store import Store
from queries.times import as_utc, utc_without_zone
from replay.counted import counted

logger = logging.getLogger(__name__)

# What every position is a hash in.
_FINGERPRINTED = b"spend logs"
# Positions stay positive, and can be counted on from.
_POSITION_MASK = (1 << 62) - 1
# Rows have no versions: LiteLLM writes them once.
_VERSION = 0
_LONG_AGO = datetime.fromtimestamp(0, UTC)
_TOO_LONG = f"the fields read are more than {LINE_LIMIT_BYTES} bytes"


class Key(NamedTuple):
    """By which a row is found: when its request began, and its id."""

    start: datetime
    id: str


class Page(NamedTuple):
    """New rows, and the key up to which there are no others."""

    until: Key
    rows: Rows


@dataclass
class _Gathered:
    """Rows that will be stored together, with their keyed hashes. `done` = every row that began
    before it is among them or was stored before."""

    done: datetime
    names: list[int] = field(default_factory=list)
    starts: list[datetime] = field(default_factory=list)
    lines: list[str | None] = field(default_factory=list)
    size: int = 0

    def add(self, rows: Rows, key: str) -> int:
        """Adds rows; returns the characters of their lines."""
        before = self.size
        for start, identity, line in rows:
            self.names.append(_name(start, identity, key))
            self.starts.append(start)
            self.lines.append(line)
            self.size += len(line or "")
        return self.size - before

    def read(self) -> list[Read]:
        """Those that must be known one by one."""
        return [
            Read(name, _VERSION, moment)
            for name, start in zip(self.names, self.starts, strict=True)
            if (moment := as_utc(start)) >= self.done
        ]


class SpendLogReader:
    """Reads the spend logs of one database into a store, pass by pass.

    Raises PrefixscopeError where the library is not installed, or the path is no address.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        *,
        source: str,
        format: str = "auto",
        defaults: dict[str, object] | None = None,
        names: SourceNames | None = None,
        settings: SpendLogSettings | None = None,
        stopped: threading.Event | None = None,
    ) -> None:
        if format not in ("auto", FORMAT_NAME):
            raise PrefixscopeError(
                f"rows of a database are read as {FORMAT_NAME}, not as {format}: leave format out"
            )
        library()
        self._store, self._source, self._names = store, source, names
        self.settings = settings or SpendLogSettings()
        self._stopped = stopped or threading.Event()
        self.address = Address.of(path)
        self._bookmark = Bookmark(store, source, keyed(str(self.address), store.key))
        self._stream = Stream(
            source,
            with_names(litellm_spend_logs.FORMAT, names),
            fingerprint(_FINGERPRINTED, store.key),
            defaults or {},
        )
        self._overlap = timedelta(seconds=self.settings.overlap_seconds)
        self._daily = DailyTables(store)
        self._begin()

    def _begin(self) -> None:
        """What one pass keeps."""
        self.problems: list[str] = []
        self.read_rows = self.known_rows = 0
        self._summary = IngestSummary(
            source=self._source, format=FORMAT_NAME, decided_because="a database"
        )

    # ---------------------------------------------------------------- a pass

    def run(self, progress: Callable[[int], None] | None = None) -> IngestSummary:
        """Takes everything new. `progress` is told of the bytes of each page.

        Where the database fails, what was read before stays; the reason is in `problems`, and the
        next pass goes on from there.
        """
        self._begin()
        try:
            with Database(self.address, self.settings, self._stopped) as database:
                now = _now(database)
                self._read(database, now - self._overlap, progress or (lambda _: None))
                self._compare(database, now)
        except Stopped:
            pass
        except DatabaseError as error:
            self.problems.append(str(error))
        self._store.fold()
        self._summary.decided_because = (
            f"{counted(self.read_rows, 'row')} read, {self.known_rows:,} known before"
        )
        return self._summary

    def skip(self) -> bool:
        """Notes everything there as read, if nothing ever was. False where that failed."""
        self._begin()
        if self._bookmark.begun():
            return True
        try:
            with Database(self.address, self.settings, self._stopped) as database:
                self._bookmark.finish(_now(database))
        except DatabaseError as error:
            self.problems.append(str(error))
            return False
        return True

    def sample(self, rows: int) -> IngestSummary:
        """Takes the newest rows, and notes nothing as read: for a look.

        Raises DatabaseError.
        """
        self._begin()
        with Database(self.address, self.settings, self._stopped) as database:
            asked = statements(spend_log_table(database), self._names)
            gathered = _Gathered(_LONG_AGO)
            gathered.add(database.rows(asked.newest, rows), self._store.key)
        self._append(gathered)
        return self._summary

    def _compare(self, database: Database, now: datetime) -> None:
        """Takes the daily tables too. They only serve to compare, so a role that may not read
        them is no problem; doctor says so."""
        try:
            self._daily.take(database, now)
        except DatabaseError as error:
            logger.info("source %s: the daily tables are not compared: %s", self._source, error)
        except PrefixscopeError as error:
            self.problems.append(str(error))

    def _read(self, database: Database, settled: datetime, progress: Callable[[int], None]) -> None:
        """Every row that is new. What began before `settled` has long been written, if it ever
        will be."""
        table = spend_log_table(database)
        asked = statements(table, self._names)
        begun = self._bookmark.before() or _LONG_AGO
        at = Key(_as_column(begun, table.has_zone), "")
        gathered = _Gathered(begun)
        try:
            while (page := self._page(database, asked, at)) is not None:
                at = page.until
                progress(gathered.add(page.rows, self._store.key))
                gathered.done = max(begun, min(as_utc(at.start), settled))
                if gathered.size >= BATCH_BYTES:
                    self._store_rows(gathered)
                    gathered = _Gathered(gathered.done)
            gathered.done = max(begun, settled)
        finally:
            self._store_rows(gathered)

    def _page(self, database: Database, asked: Statements, at: Key) -> Page | None:
        """The next rows behind a key that are new; None at the end."""
        page_rows = self.settings.page_rows
        keys = [Key(*row) for row in database.rows(asked.keys, *at, page_rows)]
        if not keys:
            return None
        known = self._known(keys)
        self.known_rows += len(known)
        last = keys[-1]
        if len(known) == len(keys):
            return Page(last, [])
        most = 2 * page_rows  # rows may have come in between
        rows = database.rows(asked.lines, *keys[0], *last, known, most)
        return Page(Key(*rows[-1][:2]) if len(rows) == most else last, rows)

    def _known(self, keys: Sequence[Key]) -> list[str]:
        """The ids of those rows that were read before."""
        names = [_name(*key, self._store.key) for key in keys]
        versions = self._bookmark.versions(names)
        return [key.id for key, name in zip(keys, names, strict=True) if name in versions]

    # ---------------------------------------------------------------- into the store

    def _store_rows(self, gathered: _Gathered) -> None:
        """Rows and how far they reach, in one transaction."""
        if gathered.names:
            self._append(gathered, also=lambda cursor: self._note(cursor, gathered))
        elif gathered.done > _LONG_AGO:
            self._bookmark.finish(gathered.done)

    def _note(self, cursor: duckdb.DuckDBPyConnection, gathered: _Gathered) -> None:
        self._bookmark.keep(cursor, gathered.read())
        self._bookmark.move(cursor, gathered.done)

    def _append(
        self,
        gathered: _Gathered,
        also: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    ) -> None:
        self._summary.add(append(self._store, self._batch(gathered), self._stream, also=also))
        self.read_rows += len(gathered.names)

    def _batch(self, gathered: _Gathered) -> LineBatch:
        """The lines, each at a place of its own that is the same whenever it is read."""
        positions = [name & _POSITION_MASK for name in gathered.names]
        numbers = range(self.read_rows + 1, self.read_rows + len(positions) + 1)
        table = pa.table([positions, list(numbers), gathered.lines], schema=SCHEMA)
        bad = [
            BadLine(position, number, "too_long", _TOO_LONG)
            for position, number, line in zip(positions, numbers, gathered.lines, strict=True)
            if line is None
        ]
        return LineBatch(for_threads(table.filter(table["line"].is_valid())), 0, 0, bad)


def _name(start: datetime, identity: str, key: str) -> int:
    """A row as 64 bits that say nothing without the key. The id alone is not enough: where the
    table is partitioned it may stand there twice."""
    return keyed(f"{start} {identity}", key)


def _now(database: Database) -> datetime:
    """The database's own clock, which is the one its rows go by."""
    [(now,)] = database.rows("SELECT now()")
    found: datetime = now
    return found


def _as_column(moment: datetime, has_zone: bool) -> datetime:
    return moment if has_zone else utc_without_zone(moment)
