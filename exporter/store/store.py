"""The DuckDB file of one exporter: opened once, owned by one process, written one at a time."""

import hashlib
import math
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import ClassVar
from weakref import WeakValueDictionary

import duckdb
from pydantic import BaseModel, ConfigDict, Field

from exporter.errors import PrefixscopeError, StoreLocked
from exporter.prompts.naming import PromptReader
from exporter.sources.formats.aside import Aside
from exporter.store import fold, live
from exporter.store.counters import LabelBounds, LiveCounters
from exporter.store.database import (
    Config,
    attach_anew,
    attached,
    cursor_of,
    is_damaged,
    is_given_up,
    is_kept,
    is_of_disk,
)
from exporter.store.owner import read_owner
from exporter.store.standing import Readings
from exporter.store.trouble import Trouble
from exporter.templates_found.assign import found_blocks
from queries.views import views_sql

FILE_NAME = "prefixscope.duckdb"
KEY_NAME = "hash.key"
SCHEMA_VERSION = 1

# Rows and seconds that may gather before roll-ups and counters follow.
_FOLD_ROWS = 50_000
_FOLD_SECONDS = 2.0
# What a large load leaves of DuckDB's cache when it begins.
_PAGES_LEFT = "8MB"


class StoreSettings(BaseModel):
    """How a store keeps and bounds what it is given."""

    model_config = ConfigDict(extra="forbid")

    memory_limit: str = Field("192MB", description="DuckDB's memory limit")
    threads: int = Field(
        1, ge=1, description="threads one statement may use; a large load takes at least two"
    )
    hot_days: int = Field(45, ge=1, description="days requests stay row by row")
    rollup_days: int = Field(800, ge=1, description="days roll-ups and engine samples stay")
    live_window_seconds: float = Field(
        600, gt=0, description="rows older than this on arrival do not count in /metrics"
    )
    hit_threshold_ratio: float = Field(
        0.8, gt=0, le=1, description="cached share of the eligible tokens that makes a hit"
    )
    join_window_seconds: float = Field(
        300, gt=0, description="rows of one call by gateway and engine start at most so far apart"
    )
    join_wait_seconds: float = Field(
        20, ge=0, description="how long a row waits for the other side's before /metrics counts it"
    )
    top_models: int = Field(50, ge=1, description="model values kept apart on /metrics")
    top_routes: int = Field(100, ge=1, description="route values kept apart on /metrics")
    top_templates: int = Field(100, ge=1, description="template values kept apart on /metrics")
    top_tenants: int = Field(200, ge=1, description="tenants kept apart, the rest is 'other'")
    max_series: int = Field(5000, ge=1, description="label combinations on /metrics")

    def label_limits(self) -> dict[str, int]:
        return {
            "model": self.top_models,
            "route": self.top_routes,
            "template": self.top_templates,
            "tenant": self.top_tenants,
        }


class Store:
    """One store. `cursor` is for reading (one per thread), `write` for one transaction."""

    # Taken apart, a statement belongs to no connection: all stores of a process share them.
    _statements: ClassVar[dict[str, list[duckdb.Statement]]] = {}

    def __init__(
        self, directory: Path, connection: duckdb.DuckDBPyConnection, settings: StoreSettings
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.key = _key(directory)
        # How prompts in rows become names; whoever opens the store may give it tokenizers.
        self.prompts = PromptReader()
        self._connection = connection
        self._given_up = False  # by DuckDB, until it is attached anew
        self.trouble = Trouble()
        self._writer = self.cursor()
        self.aside = Aside()
        self.aside.listen(self._writer)
        self.readings = Readings(self._writer)
        self._writing = threading.Lock()
        self._folding = threading.Lock()
        bounds = LabelBounds(settings.label_limits(), _admitted(connection))
        self.counters = LiveCounters(bounds, settings.max_series)
        live.restore(self.cursor(), self.counters)
        self.last_batch = fold.last_batch(self.cursor())
        self.earliest = earliest(self.cursor())
        self.sides = _sides(self.cursor())
        self.found_blocks = found_blocks(self.cursor())
        # Batches that were not folded yet: number, rows, and when they came in.
        self._pending: deque[tuple[int, int, float]] = deque()
        self._folded_at = 0.0
        if self.last_batch > fold.folded_batch(self.cursor()):
            self._pending.append((self.last_batch, 1, 0.0))
        self.fold()

    @classmethod
    def open(cls, directory: Path, settings: StoreSettings | None = None) -> "Store":
        """Opens or creates the store in `directory`.

        Raises StoreLocked when another process owns it or this one opened it before (its
        counters and its writer's lock exist once), PrefixscopeError when it cannot be used
        (not writable, written by a newer release).
        """
        settings = settings or StoreSettings()
        place = directory.resolve()
        if place in _OPEN:
            raise StoreLocked(
                f"the store {directory} is already open in this process: use that one and its "
                "cursors, or close it first"
            )
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PrefixscopeError(f"cannot create the store {directory}: {error}") from error
        connection = _connect(directory, settings)
        try:
            _migrate(connection, directory)
            # Nobody listens yet, however the process before this one ended.
            connection.execute("UPDATE block_streams SET connected = false WHERE connected")
            store = _OPEN[place] = cls(directory, connection, settings)
        except BaseException as error:
            connection.close()
            if is_of_disk(error):
                raise PrefixscopeError(f"cannot write the store {directory}: {error}") from error
            raise
        return store

    @property
    def hash_key_id(self) -> str:
        """Names the key without giving it away; chains of different ids are never compared."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:8]

    @property
    def path(self) -> Path:
        return self.directory / FILE_NAME

    def cursor(self) -> duckdb.DuckDBPyConnection:
        if self._given_up:
            with self._writing:
                if self._given_up:
                    self._attach_anew()
        return cursor_of(self._connection)

    def parsed(self, statement: str) -> duckdb.Statement:
        """A long statement taken apart once: small batches run the same ones again and again."""
        if statement not in self._statements:
            self._statements[statement] = self._writer.extract_statements(statement)
        return self._statements[statement][0]

    @contextmanager
    def large_load(self) -> Iterator[None]:
        """A second thread while rows come by the hundred thousand, and few of the pages that the
        rows before them left in memory. A small batch would only pay for waking it, and every
        further one needs its own part of the memory limit."""
        usual = self.settings.threads
        _let_pages_go(self.cursor(), self.settings)
        self.cursor().execute(f"SET threads = {max(2, usual)}")
        try:
            yield
        finally:
            self.cursor().execute(f"SET threads = {usual}")

    @contextmanager
    def write(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction under the writer's lock: all of it, or nothing."""
        with self._writing:
            self._check_in_place()
            if self._given_up:
                self._attach_anew()
            cursor = self._writer
            cursor.execute("BEGIN")
            try:
                yield cursor
                self._commit()
            except duckdb.OutOfMemoryException as error:
                self._undo(error)
                raise PrefixscopeError(
                    f"the store's memory limit ({self.settings.memory_limit}) is too small for "
                    f"this batch; raise store.memory_limit ({error})"
                ) from error
            except BaseException as error:
                self._undo(error)
                raise

    def _check_in_place(self) -> None:
        """A file that was removed takes rows all the same, and loses them when it is closed."""
        if not self.path.exists():
            error = duckdb.IOException(
                f"{self.path} was removed or moved while it is in use: put it back, or start again"
            )
            self.trouble.met(error)
            raise error

    def _commit(self) -> None:
        """Rows that are stored are stored, whatever becomes of the checkpoint after them."""
        try:
            self._writer.execute("COMMIT")
        except duckdb.IOException as error:
            if not is_kept(error):
                raise
            self._met(error)
        else:
            self.trouble.over()

    def _undo(self, error: BaseException) -> None:
        """Nothing of the transaction stays, here as little as in the file."""
        with suppress(duckdb.TransactionException):  # a COMMIT that failed has undone it
            self._writer.execute("ROLLBACK")
        self.readings.forget()
        if not self._met(error):
            self._recall()

    def _met(self, error: BaseException) -> bool:
        """Tell trouble with the disk; True where the file is to be attached anew, which is tried
        at once: questions want it too."""
        if is_of_disk(error) or is_given_up(error):
            self.trouble.met(error)
        if is_given_up(error):
            self._given_up = True
            with suppress(duckdb.Error):  # the next writer tries again, and says why not
                self._attach_anew()
        return is_given_up(error)

    def _attach_anew(self) -> None:
        self._check_in_place()  # DuckDB would make a new one
        attach_anew(self._connection, self.path)
        self._given_up = False
        self._recall()

    def _recall(self) -> None:
        """Back to what is stored, where a transaction that failed had set it."""
        cursor = self.cursor()
        self.counters.bounds.reset(_admitted(cursor))
        self.earliest = earliest(cursor)

    def added(self, batch: int, rows: int) -> None:
        """Told after each batch; folds once enough rows or enough time have gathered."""
        if rows:
            self._pending.append((batch, rows, time.monotonic()))
        # Over a copy: other threads add to it meanwhile.
        before = self._settled_before()
        waiting = sum(rows for _, rows, came in list(self._pending) if came <= before)
        waited = time.monotonic() - self._folded_at
        if waiting >= _FOLD_ROWS or (waiting and waited >= _FOLD_SECONDS):
            self._fold(before)

    def fold(self) -> None:
        """Brings roll-ups and counters up to the last row."""
        self._fold(math.inf)

    def fold_settled(self, patience_seconds: float) -> None:
        """The same up to the last row that need not wait for the other side's.

        Gives up when the writer stays busy for `patience_seconds`, so that a scrape is fresh
        when it can be and never waits for a large load.
        """
        self._fold(self._settled_before(), patience_seconds)

    def _settled_before(self) -> float:
        """Batches that came in before this moment can be counted. Where gateway and engine both
        write, a row waits to be joined: counters could not take it back from its outcome."""
        wait_seconds = self.settings.join_wait_seconds if len(self.sides) > 1 else 0
        return time.monotonic() - wait_seconds

    def _fold(self, came_before: float, patience_seconds: float = -1) -> None:
        settled = [batch for batch, _, came in list(self._pending) if came <= came_before]
        if not settled or not self._folding.acquire(timeout=patience_seconds):
            return
        try:
            if not self._writing.acquire(timeout=patience_seconds):
                return
            self._writing.release()
            with self.write() as cursor:
                until = None if came_before == math.inf else max(settled)
                live_seconds = self.settings.live_window_seconds
                delta = fold.fold(cursor, self.counters, live_seconds, until=until)
            while self._pending and self._pending[0][0] <= max(settled):
                self._pending.popleft()
            self.counters.apply(delta)
            self._folded_at = time.monotonic()
        finally:
            self._folding.release()

    def set_meta(self, key: str, value: str) -> None:
        with self.write() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta VALUES ($key, $value)",
                           {"key": key, "value": value})  # fmt: skip

    def close(self) -> None:
        """What a full disk does not let count any more is counted when the store is opened next."""
        try:
            self.fold()
        except duckdb.OperationalError as error:
            if not is_of_disk(error):
                raise
        finally:
            with self._writing:
                self.readings.close()
                self._writer.close()
                self._connection.close()
            _OPEN.pop(self.directory.resolve(), None)


# Every open store of this process; one that was forgotten without being closed leaves by itself.
_OPEN: WeakValueDictionary[Path, Store] = WeakValueDictionary()


def _connect(directory: Path, settings: StoreSettings) -> duckdb.DuckDBPyConnection:
    path = directory / FILE_NAME
    spill = str(directory / "spill")
    config: Config = {
        "memory_limit": settings.memory_limit,
        "threads": settings.threads,
        "temp_directory": spill,
        # Rows carry their batch and position; keeping their order would cost a thread.
        "preserve_insertion_order": False,
        # Fetching extensions over the network is nothing a monitoring store should do.
        "autoinstall_known_extensions": False,
    }
    try:
        return attached(path, config)
    except duckdb.IOException as error:
        if "lock" in str(error).lower():
            holder = _holder(str(error))
            raise StoreLocked(
                f"the store {path} is in use by another process ({holder}); "
                f"{_remedy(directory, holder)}"
            ) from error
        raise PrefixscopeError(f"cannot open the store {path}: {error}") from error
    except duckdb.Error as error:
        if not is_damaged(error):
            raise
        raise PrefixscopeError(
            f"the store {directory} is damaged ({error}): put a backup in its place, or move "
            f"{FILE_NAME} and {FILE_NAME}.wal away, keep {KEY_NAME}, and load its logs again"
        ) from error


def _let_pages_go(cursor: duckdb.DuckDBPyConnection, settings: StoreSettings) -> None:
    """Makes DuckDB's cache of pages small, which the next rows of a load hardly read: it would grow
    with the load up to the memory limit. DuckDB evicts down to a new limit at once, or refuses it
    where questions hold more; what is left is room for one that begins before it is put back."""
    usual = settings.memory_limit.replace("'", "''")
    with suppress(duckdb.OutOfMemoryException):
        cursor.execute(f"SET memory_limit = '{_PAGES_LEFT}'; SET memory_limit = '{usual}'")


def _remedy(directory: Path, holder: str) -> str:
    """An owner file that another process left behind names no address of the holder."""
    owner = read_owner(directory)
    if owner is None or holder != f"PID {owner.pid}":
        return (
            "if it is an exporter, ask it instead (--url with its address, by default "
            "--url http://127.0.0.1:9465), else wait for it or stop it"
        )
    return f"ask that exporter instead (--url {owner.url}) or stop it"


def _holder(message: str) -> str:
    """DuckDB names the holder of the lock in its message: '… (PID 123) by user …'."""
    start = message.find("(PID")
    return message[start + 1 : message.find(")", start)] if start >= 0 else "unknown owner"


def _migrate(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    """Creates what is missing. Versions only go forward; an older release refuses a newer file.

    One transaction, and only where the file was not last opened with the same definitions:
    a hundred views take longer to create than a store to open.
    """
    connection.execute("CREATE TABLE IF NOT EXISTS meta (key VARCHAR PRIMARY KEY, value VARCHAR)")
    found = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    version = int(found.get("schema_version", SCHEMA_VERSION))
    if version > SCHEMA_VERSION:
        raise PrefixscopeError(
            f"the store {directory} has schema version {version}, this release knows "
            f"{SCHEMA_VERSION}; upgrade prefixscope"
        )
    definitions = _schema_sql() + views_sql()
    digest = hashlib.sha256((duckdb.__version__ + definitions).encode()).hexdigest()
    if found.get("definitions") == digest:
        return
    if "definitions" in found:
        _check_tables(connection, directory)
    connection.execute("BEGIN")
    connection.execute(definitions)
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES ('schema_version', $version), ('definitions', $digest)",
        {"version": str(SCHEMA_VERSION), "digest": digest},
    )
    connection.execute("COMMIT")


_TABLES = """SELECT table_name, list((column_name, data_type) ORDER BY column_index)
    FROM duckdb_columns() JOIN duckdb_tables() USING (database_oid, table_oid, table_name)
    GROUP BY table_name"""


def _check_tables(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    """Refuse a file of an unreleased build whose tables are others: it would open, and then take
    no rows. Releases have a schema version, and migrations between them."""
    with duckdb.connect(":memory:") as fresh:
        fresh.execute(_schema_sql())
        wanted = dict(fresh.execute(_TABLES).fetchall())
    for name, columns in connection.execute(_TABLES).fetchall():
        if name in wanted and columns != wanted[name]:
            raise PrefixscopeError(
                f"the store {directory} was made by an unreleased build whose table {name} has"
                " other columns: move it away and load its logs again"
            )


def _schema_sql() -> str:
    return resources.files("exporter.store").joinpath("schema.sql").read_text(encoding="utf-8")


def _key(directory: Path) -> str:
    """The secret of keyed hashes: a file of its own, made at first start, readable by its owner."""
    path = directory / KEY_NAME
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PrefixscopeError(f"cannot use the secret of keyed hashes, {path}: {error}") from error
    if not key:
        raise PrefixscopeError(f"{path} is empty: remove it, or put a secret into it")
    return key


def _make_key(path: Path) -> None:
    """All of it or nothing: what is hashed without a secret can be guessed. A tap that shares the
    file may make it at the same moment; then its secret counts."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with suppress(FileExistsError):
            path.hardlink_to(beside)
    finally:
        beside.unlink()


def _admitted(cursor: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """Label values that may appear on /metrics."""
    return cursor.execute("SELECT label, value FROM label_values").fetchall()


def _sides(cursor: duckdb.DuckDBPyConnection) -> set[str]:
    """Which sides of calls ever wrote to the store."""
    rows = cursor.execute(
        """SELECT DISTINCT side FROM (SELECT side FROM requests UNION ALL
            SELECT side FROM request_parts) WHERE side IS NOT NULL"""
    ).fetchall()
    return {side for (side,) in rows}


def earliest(cursor: duckdb.DuckDBPyConnection) -> datetime | None:
    """Rows before this hour are refused: retention removed the rows that would tell whether
    they are new. None while nothing was removed."""
    row = cursor.execute("SELECT max(hour) FROM hot_since").fetchone()
    return row[0] if row else None
