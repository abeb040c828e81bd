"""A read-only session with LiteLLM's database, and its refusals in words that name the remedy.

Only to read, three times over: the session says so to the server, every transaction says so
again (a pooler may have dropped the first), and a role with no more rights than to read is all
that is needed. A statement that takes long or would wait for a lock is given up by the server:
the database belongs to a gateway that people's calls wait for. Messages repeat nothing the
server said beyond its code, because it may quote what is in a row.
"""

import asyncio
import importlib
import threading
from collections.abc import Coroutine, Sequence
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

from exporter.errors import PrefixscopeError
from exporter.sources.spend_logs.place import Address, SpendLogSettings, password_remedy

# What the server shows beside our sessions.
APPLICATION_NAME = "prefixscope"
_CONNECT_SECONDS = 10.0
_LOCK_SECONDS = 5
_CLOSE_SECONDS = 2.0
# Beyond the server's own limit: then it does not answer at all.
_PATIENCE_SECONDS = 15.0
_STOP_CHECK_SECONDS = 0.2

Result = TypeVar("Result")
Rows = Sequence[Any]


class DatabaseError(PrefixscopeError):
    """The database did not answer as asked. The message names the remedy and no secret."""


class Stopped(DatabaseError):
    """We were asked to stop meanwhile."""


def library() -> ModuleType:
    """asyncpg. Raises PrefixscopeError naming the extra where it is missing."""
    try:
        return importlib.import_module("asyncpg")
    except ImportError as error:
        raise PrefixscopeError(
            "postgresql:// paths need the extra 'postgres', which is not installed here: "
            "pip install 'prefixscope[postgres]'"
        ) from error


class Database:
    """One session, for as long as the block lasts. For one thread.

    Raises DatabaseError where it cannot be had.
    """

    def __init__(
        self,
        address: Address,
        settings: SpendLogSettings,
        stopped: threading.Event | None = None,
    ) -> None:
        self.address, self._settings = address, settings
        self._stopped = stopped or threading.Event()
        self._library = library()
        self._failures: tuple[type[Exception], ...] = (
            self._library.PostgresError,
            self._library.InterfaceError,
            self._library.InternalClientError,  # the server hung up while nothing was asked
            OSError,
            TimeoutError,
            ValueError,  # what the library makes of an address it cannot use
        )
        self._runner = asyncio.Runner()
        self._connection: Any = None

    def __enter__(self) -> Self:
        try:
            self._connection = self._run(self._connect())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if error is None:  # else it may not listen any more
                self._runner.run(self._connection.close(timeout=_CLOSE_SECONDS))
        except self._failures:
            pass
        finally:
            self._connection.terminate()
            self._runner.close()

    def rows(self, query: str, *values: object) -> Rows:
        """The answer to one query, in a transaction of its own that can only read."""
        rows: Rows = self._run(self._ask(query, values))
        return rows

    async def _connect(self) -> object:
        milliseconds = int(self._settings.statement_timeout_seconds * 1000)
        return await self._library.connect(
            self.address.dsn(),
            password=self._settings.password(),
            timeout=_CONNECT_SECONDS,
            command_timeout=self._settings.statement_timeout_seconds + _PATIENCE_SECONDS,
            # Statements kept on the server break behind poolers, and when a table is altered.
            statement_cache_size=0,
            server_settings={
                "application_name": APPLICATION_NAME,
                "default_transaction_read_only": "on",
                "statement_timeout": str(milliseconds),
                "lock_timeout": str(_LOCK_SECONDS * 1000),
                "idle_in_transaction_session_timeout": str(milliseconds),
                "timezone": "UTC",
                "standard_conforming_strings": "on",
                "jit": "off",  # compiling takes longer than any of our statements
            },
        )

    async def _ask(self, query: str, values: Sequence[object]) -> Rows:
        async with self._connection.transaction(readonly=True):
            rows: Rows = await self._connection.fetch(query, *values)
            return rows

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._runner.run(self._unless_stopped(work))
        except PrefixscopeError:
            raise
        except self._failures as error:
            raise DatabaseError(f"{self.address}: {self._reason(error)}") from None

    async def _unless_stopped(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Gives up, and has the server give up, when we are asked to stop."""
        task = asyncio.ensure_future(work)
        while not task.done():
            if self._stopped.is_set():
                task.cancel()
                await asyncio.wait({task})
                raise Stopped(f"{self.address}: given up, because the exporter stops")
            await asyncio.wait({task}, timeout=_STOP_CHECK_SECONDS)
        return task.result()

    def _reason(self, error: Exception) -> str:
        """Why it did not work, in our words only."""
        state = getattr(error, "sqlstate", None)
        if state in _REASONS:
            return _REASONS[state].format(
                user=self.address.place.rpartition("@")[0] or "this user",
                timeout=f"{self._settings.statement_timeout_seconds:g}",
                lock=_LOCK_SECONDS,
                passwords=password_remedy(),
                schema=self.address.schema,
            )
        if state is not None and state.startswith("08") and "startup parameter" in str(error):
            return _POOLER
        kind = type(error).__name__
        if state is None or state.startswith(("08", "57P")):
            return f"no connection, or it was lost ({kind}); is the host, port and sslmode right?"
        return f"the database refused ({kind}, code {state})"


_POOLER = (
    "the pooler in between refuses sessions that are read-only by themselves: name the database "
    "itself or a replica, or list default_transaction_read_only, statement_timeout, lock_timeout, "
    "idle_in_transaction_session_timeout and jit under ignore_startup_parameters of PgBouncer"
)
_NOT_IN = "it does not let {user} in: check the user, and give the password by {passwords}"
_REASONS = {
    "28P01": _NOT_IN,
    "28000": _NOT_IN,
    "3D000": "there is no database of this name on that server",
    "3F000": "there is no schema {schema!r} in this database: correct ?schema= of the address",
    "42501": (
        "{user} may not read what is needed; let its owner run the GRANT statements of "
        "docs/spend-logs.md"
    ),
    "57014": (
        "a statement took longer than {timeout} s and was given up; see docs/spend-logs.md on the "
        "index it needs, or raise postgres.statement_timeout_seconds"
    ),
    "55P03": (
        "a table is locked, by a migration or a clean-up perhaps: waited {lock} s, and will try "
        "again"
    ),
    "53300": "it has no free connection left for {user}; raise its limit, or try again",
    "57P03": "it is starting up or shutting down; try again",
    "40001": "the replica had to drop the rows being read; try again, or name the primary",
    "25006": "the session is read-only, and that statement would have written",
}
