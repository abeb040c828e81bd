"""What LiteLLM's daily tables say was used: a second account of the same calls, to compare.

Each call is added to `LiteLLM_DailyUserSpend` and, where its key has a team, once more to
`LiteLLM_DailyTeamSpend` (and to tables of organizations, end users, tags). So sums come from the
first alone; of the second only whose a key is.

`prompt_tokens` is inclusive in both the spend logs and the daily tables, for Anthropic too: LiteLLM
adds cached and written tokens to Anthropic's `input_tokens` when it reads an answer, and both
tables are written from that sum (read in 1.108.7, and seen: 21 + 17,920 cached + 592 written is
18,533 in both). What differs from our own sums by LiteLLM's design: hits of its response cache are
added again with the usage they replay, failed calls with a prompt it counted itself, and a zero
also stands for "not told", which is why zeros of cached and written tokens are unknown here.
A day is a day of UTC, by the time the call began.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta

from pydantic import ValidationError

from exporter.errors import PrefixscopeError
from exporter.sources.spend_logs.database import Database, DatabaseError
from exporter.sources.spend_logs.table import Table, find_table
from exporter.sources.usage_reports.rows import UsageRow
from exporter.store.bookmarks import keyed
from exporter.store.provider_usage import replace_usage
from exporter.store.store import Store

REPORTER = "litellm_daily"
BY_USER, BY_TEAM = "LiteLLM_DailyUserSpend", "LiteLLM_DailyTeamSpend"
_UNKNOWN_PROVIDER = "unknown"
_DAY_SECONDS = 86_400
_IDENTITY = "SELECT system_identifier::text, current_database()::text FROM pg_control_system()"
_SIGN_LEFT_OUT = (1 << 64) - 1
_EVERY = timedelta(hours=1)
_FIRST_DAYS, _LATER_DAYS = 100, 3
# What the rows are told apart by, and what is summed; the first versions lack some.
_NEEDED = ("date", "api_key", "model", "custom_llm_provider", "prompt_tokens")
_SUMS = {
    "requests": "api_requests",
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
    "output_tokens": "completion_tokens",
}
# Of these zero may mean that nobody told.
_ZERO_IS_UNKNOWN = ("cached_tokens", "cache_write_tokens")


class DailyTables:
    """Takes the daily tables of one database into a store, now and then."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: datetime | None = None

    def take(self, database: Database, now: datetime) -> int:
        """Replaces what was said of the days read; returns the rows kept, 0 where it is not time.

        The first time many days, then those whose rows may still grow. Raises DatabaseError where
        our role may not read them.
        """
        if self._taken is not None and now - self._taken < _EVERY:
            return 0
        days = _FIRST_DAYS if self._taken is None else _LATER_DAYS
        since = now.astimezone(UTC).date() - timedelta(days=days)
        rows = daily_usage(database, since)
        self._taken = now
        if rows:
            replace_usage(
                self._store, REPORTER, rows, account=self._account(database),
                window=_window(since, now), read_at=now,
            )  # fmt: skip
        return len(rows)

    def _account(self, database: Database) -> str:
        """Which database, in letters that do not say which: the store keeps no address."""
        return f"{keyed(_identity(database), self._store.key) & _SIGN_LEFT_OUT:016x}"


def daily_usage(database: Database, since: date) -> list[UsageRow]:
    """What was used from that day on, by provider, model and tenant: team, else user, else key.

    Empty where this LiteLLM has no daily tables yet. Raises DatabaseError where our role may not
    read them.
    """
    users = find_table(database, BY_USER)
    if users is None or any(name not in users.columns for name in _NEEDED):
        return []
    teams = find_table(database, BY_TEAM)
    rows = database.rows(_query(users, teams), since.isoformat())
    return [_row(dict(row)) for row in rows]


def _identity(database: Database) -> str:
    """The same whatever address leads there, so that nothing is counted twice; where our role
    may not ask for it, the address without the user."""
    address = database.address
    try:
        [(server, name)] = database.rows(_IDENTITY)
    except DatabaseError:
        server, name = address.place.rpartition("@")[2], address.database
    return f"{server} {name} {address.schema}"


def _window(since: date, now: datetime) -> tuple[datetime, datetime]:
    """From the beginning of that day to the end of today."""
    tomorrow = now.astimezone(UTC).date() + timedelta(days=1)
    return _midnight(since), _midnight(tomorrow)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _query(users: Table, teams: Table | None) -> str:
    sums = ", ".join(
        f'sum(u."{column}")::bigint AS {name}'
        if column in users.columns
        else f"NULL::bigint AS {name}"
        for name, column in _SUMS.items()
    )
    user = "u.user_id" if "user_id" in users.columns else "NULL::text"
    return f"""
        WITH teams AS ({_teams(teams)})
        SELECT u.date AS day, coalesce(u.custom_llm_provider, '') AS provider,
            coalesce(u.model, '') AS model,
            coalesce(t.team, nullif({user}, ''), nullif(u.api_key, '')) AS tenant, {sums}
        FROM {users.qualified} AS u LEFT JOIN teams AS t USING (date, api_key)
        WHERE u.date >= $1::text AND u.date ~ '^\\d{{4}}-\\d\\d-\\d\\d$'
        GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""


def _teams(teams: Table | None) -> str:
    """Whose each key was on each day, where it was one team's alone."""
    if teams is None or any(n not in teams.columns for n in ("date", "api_key", "team_id")):
        return "SELECT NULL::text AS date, NULL::text AS api_key, NULL::text AS team"
    return f"""SELECT date, api_key, nullif(min(coalesce(team_id, '')), '') AS team
        FROM {teams.qualified} WHERE date >= $1::text
        GROUP BY date, api_key HAVING count(DISTINCT coalesce(team_id, '')) = 1"""


def _row(found: Mapping[str, object]) -> UsageRow:
    provider, model = str(found["provider"]), str(found["model"])
    known = {
        name: None if name in _ZERO_IS_UNKNOWN and not value else value
        for name, value in found.items()
        if name in _SUMS
    }
    try:
        return UsageRow.model_validate(
            {
                "day": _midnight(date.fromisoformat(str(found["day"]))),
                "bucket_seconds": _DAY_SECONDS,
                "provider": provider or _UNKNOWN_PROVIDER,
                # As in our own rows, where the model goes by the name the engine has for it.
                "model": model.removeprefix(f"{provider}/") or None,
                "tenant": found["tenant"],
                **known,
            }
        )
    except (ValidationError, ValueError) as error:
        kind = type(error).__name__
        raise PrefixscopeError(
            f"{BY_USER}: the rows of {found['day']} hold what no usage is ({kind}); the daily "
            "tables are not compared"
        ) from None
