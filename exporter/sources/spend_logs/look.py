"""A look at LiteLLM's database, for `doctor`: are spend logs written, kept, and free of prompts?

What the proxy's own settings say is read where LiteLLM keeps them in the database and our role
may read them; all else is what the tables themselves show. Whether rows hold prompts is told by
the size of the columns alone.
"""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from exporter.errors import PrefixscopeError
from exporter.sources.spend_logs.daily import BY_USER
from exporter.sources.spend_logs.database import Database, DatabaseError
from exporter.sources.spend_logs.place import Address, SpendLogSettings
from exporter.sources.spend_logs.table import Table, find_table, spend_log_table
from queries.times import as_utc

_CONFIG = "LiteLLM_Config"
_NEWEST_ROWS = 50
# An empty JSON object takes a few bytes; a question and an answer take more.
_EMPTY_BYTES = 32


@dataclass(frozen=True)
class SpendLogFacts:
    """What the database of a source shows; None = it does not show it.

    `error` says why nothing could be seen. Rows began between `oldest` and `newest`; the daily
    tables count calls from `daily_first` to `daily_last`. The last four are settings of LiteLLM,
    as far as they are kept in its database.
    """

    source: str
    address: str
    error: str | None = None
    now: datetime | None = None
    oldest: datetime | None = None
    newest: datetime | None = None
    indexed: bool | None = None
    may_write: bool = False
    holds_prompts: bool | None = None
    reads_daily: bool = False
    daily_first: date | None = None
    daily_last: date | None = None
    disabled: bool | None = None
    stores_prompts: bool | None = None
    retention: str | None = None


def look(source: str, path: str, settings: SpendLogSettings) -> SpendLogFacts:
    """What can be seen of the spend logs at an address. Never raises for what the database says."""
    address = Address.of(path)
    try:
        with Database(address, settings) as database:
            return SpendLogFacts(source, str(address), **_seen(database))
    except PrefixscopeError as error:
        return SpendLogFacts(source, str(address), error=str(error))


def _seen(database: Database) -> dict[str, Any]:
    table = spend_log_table(database)
    [(oldest, newest, now)] = database.rows(
        f'SELECT min("startTime"), max("startTime"), now() FROM {table.qualified}'
    )
    [(indexed, may_write)] = database.rows(_RIGHTS, table.qualified)
    return {
        "now": now,
        "oldest": oldest and as_utc(oldest),
        "newest": newest and as_utc(newest),
        "indexed": indexed,
        "may_write": may_write,
        "holds_prompts": _holds_prompts(database, table),
        **_daily(database),
        **_settings(database),
    }


# A view has no index of its own: then it cannot be told.
_RIGHTS = """
SELECT CASE WHEN c.relkind IN ('r', 'p') THEN EXISTS (
        SELECT FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = c.oid AND i.indisvalid AND a.attname = 'startTime') END,
    has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass($1)"""


def _holds_prompts(database: Database, table: Table) -> bool | None:
    """By the stored size of what the newest rows have; None where our role may not even see it."""
    sizes = [
        f"coalesce(pg_column_size(t.{name}), 0) > {_EMPTY_BYTES}"
        for name in ("messages", "response")
        if name in table.columns
    ]
    if not sizes:
        return None
    [(found,)] = database.rows(
        f"""SELECT coalesce(bool_or(held), false) FROM (SELECT {" OR ".join(sizes)} AS held
            FROM {table.qualified} AS t ORDER BY t."startTime" DESC LIMIT {_NEWEST_ROWS}) AS n"""
    )
    held: bool = found
    return held


def _daily(database: Database) -> dict[str, Any]:
    table = _readable(database, BY_USER)
    if table is None or not {"date", "prompt_tokens"} <= table.columns.keys():
        return {}
    [(first, last)] = database.rows(
        f"SELECT min(date), max(date) FROM {table.qualified} "
        "WHERE prompt_tokens > 0 AND date ~ '^\\d{4}-\\d\\d-\\d\\d$'"
    )
    days = [date.fromisoformat(text) if text else None for text in (first, last)]
    return {"reads_daily": True, "daily_first": days[0], "daily_last": days[1]}


def _settings(database: Database) -> dict[str, Any]:
    """Three settings by name; others beside them are secrets and stay where they are."""
    table = _readable(database, _CONFIG)
    if table is None or not {"param_name", "param_value"} <= table.columns.keys():
        return {}
    rows = database.rows(
        f"""SELECT s ->> 'disable_spend_logs', s ->> 'store_prompts_in_spend_logs',
            s ->> 'maximum_spend_logs_retention_period'
        FROM (SELECT param_value::jsonb AS s FROM {table.qualified}
            WHERE param_name = 'general_settings') AS kept"""
    )
    for disabled, stores_prompts, retention in rows:
        return {
            "disabled": _flag(disabled),
            "stores_prompts": _flag(stores_prompts),
            "retention": retention,
        }
    return {}


def _flag(text: str | None) -> bool | None:
    return None if text is None else text.lower() == "true"


def _readable(database: Database, name: str) -> Table | None:
    """A table that need not be there, nor be open to us."""
    try:
        return find_table(database, name)
    except DatabaseError:
        return None
