"""LiteLLM's database as a place of logs: which paths are meant, and how it is reached.

A path is an address such as `postgresql://reader@db:5432/litellm`. Passwords come from where
clients of Postgres look for them, or a file named in the settings, never from the path: that is
shown, and kept in files and shell histories.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from exporter.errors import PrefixscopeError

FORMAT_NAME = "litellm_spend_logs"
DEFAULT_SCHEMA = "public"

# `+asyncpg` and the like name a driver, in the addresses of other programs.
_ANY_OF_THEM = re.compile(r"postgres(ql)?(\+\w+)?:/", re.IGNORECASE)
# What the library understands.
_KNOWN = ("host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")
# What Prisma, LiteLLM's own library, writes into the same addresses; none of it concerns us.
_OF_PRISMA = (
    "connection_limit", "connect_timeout", "pool_timeout", "socket_timeout", "pgbouncer",
    "statement_cache_size", "application_name", "sslaccept", "single_use_connections",
)  # fmt: skip
_WAYS_IN = (
    "the environment (PGPASSWORD), a password file (~/.pgpass, PGPASSFILE) or "
    "postgres.password_file in the settings"
)


class SpendLogSettings(BaseModel):
    """How LiteLLM's spend logs are read from its database."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    poll_seconds: float = Field(60, gt=0, description="seconds between two looks")
    overlap_seconds: float = Field(
        3600, ge=60, description="how long after its request began a row may still appear"
    )
    statement_timeout_seconds: float = Field(
        30, ge=1, description="the database gives up a statement of ours after that long"
    )
    page_rows: int = Field(2000, ge=1, le=20_000, description="rows asked for at a time")
    password_file: Path | None = Field(
        None, description="file with the password; else PGPASSWORD, PGPASSFILE or ~/.pgpass"
    )

    def password(self) -> str | None:
        """What the password file holds; None where none is named, for the library to look."""
        if self.password_file is None:
            return None
        try:
            return self.password_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise PrefixscopeError(
                f"postgres.password_file: {self.password_file} cannot be read: {reason}"
            ) from error


def is_database_path(path: str) -> bool:
    """Whether a path means a database. `postgres:/…` is what is left where somebody took it for
    a path of files."""
    return _ANY_OF_THEM.match(path) is not None


@dataclass(frozen=True)
class Address:
    """Where the database is, without any password. `place` is user, host and port as given."""

    place: str
    database: str
    schema: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, path: str) -> "Address":
        """Raises PrefixscopeError for what is no address, or holds a password."""
        try:
            parts = urlsplit(path)
        except ValueError:
            raise PrefixscopeError(_NO_ADDRESS) from None
        given = parse_qsl(parts.query, keep_blank_values=True)
        user, at, _ = parts.netloc.rpartition("@")
        if ":" in unquote(user) or "@" in user or any(_is_secret(name) for name, _ in given):
            raise PrefixscopeError(
                "the address of a database must not hold a password, because addresses are shown "
                f"and kept: take it out and give it by {_WAYS_IN}"
            )
        if not path.isprintable() or " " in path or parts.fragment or (at and not user):
            raise PrefixscopeError(_NO_ADDRESS)
        database = unquote(parts.path.strip("/"))
        if not database or "/" in database:
            raise PrefixscopeError(_NO_ADDRESS)
        return cls(parts.netloc, database, _schema(given), _options(given))

    def __str__(self) -> str:
        return f"postgresql://{self.place}/{self.database}" + (
            f"?schema={self.schema}" if self.schema != DEFAULT_SCHEMA else ""
        )

    def dsn(self) -> str:
        """What the library is given."""
        query = f"?{urlencode(self.options)}" if self.options else ""
        return f"postgresql://{self.place}/{quote(self.database, safe='')}{query}"


_NO_ADDRESS = (
    "this is no address of a database: write postgresql://USER@HOST:PORT/DATABASE, with "
    "?schema=NAME where LiteLLM's tables are in another schema than public; the password by "
    f"{_WAYS_IN}"
)


def _is_secret(name: str) -> bool:
    return name.lower() in ("password", "sslpassword", "passfile")


def _schema(given: list[tuple[str, str]]) -> str:
    return next((value for name, value in given if name == "schema" and value), DEFAULT_SCHEMA)


def _options(given: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    for name, _ in given:
        if name not in (*_KNOWN, *_OF_PRISMA, "schema"):
            raise PrefixscopeError(
                f"the address of a database has the unknown part {name!r}; known: "
                f"{', '.join((*_KNOWN, 'schema'))}"
            )
    return tuple((name, value) for name, value in given if name in _KNOWN)


def password_remedy() -> str:
    """Where a password is looked for."""
    return _WAYS_IN
