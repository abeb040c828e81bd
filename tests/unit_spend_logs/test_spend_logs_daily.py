"""LiteLLM's daily tables: a second account of the same calls, each call once."""

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta

import pytest

from exporter.errors import PrefixscopeError
from exporter.sources.spend_logs.daily import BY_TEAM, BY_USER, REPORTER, daily_usage
from exporter.sources.spend_logs.database import Database, DatabaseError
from exporter.sources.spend_logs.intake import SpendLogReader
from exporter.sources.spend_logs.place import Address, SpendLogSettings
from exporter.sources.usage_reports.rows import UsageRow
from exporter.store.store import Store
from tests.log_path import ask, hit_ratio
from tests.unit_spend_logs.conftest import Owner, ReaderOf, make_tables
from tests.unit_spend_logs.litellm_tables import (
    DAILY_TEAM,
    DAILY_USER,
    ERAS,
    OLDEST_DAILY_USER,
    Columns,
    create,
)
from tests.unit_spend_logs.server import Server
from tests.unit_spend_logs.spend_rows import RECORDED, recorded, row

# The present of these tests, whenever they run: noon of a day.
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY = NOW.date()
LONG_AGO = date(2020, 1, 1)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's clock, which readers go by."""
    monkeypatch.setattr("exporter.sources.spend_logs.intake._now", lambda database: NOW)


def make_daily(owner: Owner, users: Columns = DAILY_USER, teams: Columns | None = None) -> None:
    owner.run(create(BY_USER, users))
    owner.run(create(BY_TEAM, teams or DAILY_TEAM))
    owner.run(f'GRANT SELECT ON "{BY_USER}", "{BY_TEAM}" TO reader')


def add_daily(owner: Owner, kind: str, rows: list[Mapping[str, object]]) -> None:
    """As LiteLLM's writer does: what calls add is summed by all that is no count."""
    counts = ("prompt_tokens", "completion_tokens", "cache_read_input_tokens", "api_requests",
              "cache_creation_input_tokens", "successful_requests", "failed_requests")  # fmt: skip
    summed: dict[str, Counter[str]] = {}
    for one in rows:
        key = json.dumps({n: v for n, v in one.items() if n.endswith("_id") or n in _KEY})
        summed.setdefault(key, Counter()).update({n: one.get(n, 0) for n in counts})
    owner.add(({**json.loads(key), **sums} for key, sums in summed.items()), f'"{kind}"')


_KEY = ("date", "api_key", "model", "custom_llm_provider", "endpoint", "model_group")


def usage(owner: Owner, since: date = LONG_AGO) -> list[UsageRow]:
    address = Address.of(owner.server.address(owner.database))
    with Database(address, SpendLogSettings()) as database:
        return daily_usage(database, since)


def daily(**changes: object) -> dict[str, object]:
    return {
        "date": DAY.isoformat(), "api_key": "k", "user_id": "u", "model": "m",
        "custom_llm_provider": "p", "prompt_tokens": 100, "completion_tokens": 5,
        "cache_read_input_tokens": 60, "cache_creation_input_tokens": 10, "api_requests": 1,
        **changes,
    }  # fmt: skip


def of_team(**changes: object) -> dict[str, object]:
    made = daily(**changes)
    return {name: value for name, value in made.items() if name != "user_id"}


@pytest.fixture
def recorded_daily(owner: Owner) -> Owner:
    """What the recorded run added to both tables, as if it had been today."""
    make_daily(owner)
    kept = [json.loads(line)["daily"] for line in RECORDED.read_text("utf-8").splitlines()]
    for table, entity in ((BY_USER, "user"), (BY_TEAM, "team")):
        add_daily(owner, table, [{**one[entity], "date": DAY.isoformat()} for one in kept])
    return owner


def test_t31_recorded_calls_count_once_and_inclusive(recorded_daily: Owner, password: str) -> None:
    """Thirteen calls were served, seven of 2,100 prompt tokens and six of Anthropic's 18,533,
    cached and written included; one more of 2,100 came out of the response cache, and one that
    failed counts 8. Each stands in both tables."""
    rows = usage(recorded_daily)
    midnight = datetime.combine(DAY, time(), UTC)
    assert {(one.day, one.bucket_seconds) for one in rows} == {(midnight, 86_400)}
    by_model = {
        model: (
            sum(one.requests or 0 for one in rows if one.model == model),
            sum(one.prompt_tokens for one in rows if one.model == model),
            sum(one.cached_tokens or 0 for one in rows if one.model == model),
            sum(one.cache_write_tokens or 0 for one in rows if one.model == model),
        )
        for model in ("tiny", "claude-sonnet-4-5")
    }
    assert by_model == {
        "tiny": (9, 8 * 2100 + 8, 8 * 1536, 0),
        "claude-sonnet-4-5": (6, 6 * 18533, 6 * 17920, 6 * 592),
    }
    assert {one.tenant for one in rows} == {"acme", "birch", "user-alone"}
    assert {one.provider for one in rows} == {"hosted_vllm", "anthropic"}


def test_a_pass_takes_them_beside_the_rows_and_never_among_them(
    recorded_daily: Owner, reader_of: ReaderOf, store: Store
) -> None:
    recorded_daily.add(recorded("spend_log"))
    reader_of(recorded_daily).run()
    before = hit_ratio(store)
    kept = store.cursor().execute(
        "SELECT reporter, sum(prompt_tokens)::BIGINT, sum(cached_tokens)::BIGINT,"
        " sum(requests)::BIGINT FROM provider_usage GROUP BY ALL"
    ).fetchall()  # fmt: skip
    assert kept == [(REPORTER, 8 * 2100 + 8 + 6 * 18533, 8 * 1536 + 6 * 17920, 15)]
    # Ours leaves the hit of the response cache out, and theirs says so: 2,100 more.
    assert kept[0][1] - before["prompt_tokens"] == 2100
    reader_of(recorded_daily).run()
    again = store.cursor().execute("SELECT count(*), sum(requests)::BIGINT FROM provider_usage")
    assert again.fetchall() == [(6, 15)]
    assert hit_ratio(store) == before


def told(store: Store) -> list[int]:
    """Prompt tokens of every account that is kept."""
    query = "SELECT sum(prompt_tokens)::BIGINT FROM provider_usage GROUP BY account ORDER BY 1"
    return [tokens for (tokens,) in store.cursor().execute(query).fetchall()]


@pytest.fixture
def another(server: Server) -> Owner:
    """A second database of the same server."""
    made = Owner(server, f"second_{uuid.uuid4().hex}")
    Owner(server, "postgres").run(f"CREATE DATABASE {made.database}")
    make_tables(made, ERAS["2026-11"])
    return made


def test_the_tables_of_two_databases_stand_beside_each_other(
    owner: Owner, another: Owner, reader_of: ReaderOf, store: Store
) -> None:
    for database, tokens in ((owner, 100), (another, 7)):
        make_daily(database)
        database.add([daily(prompt_tokens=tokens)], f'"{BY_USER}"')
        reader_of(database).run()
    assert told(store) == [7, 100]
    owner.run(f'UPDATE "{BY_USER}" SET prompt_tokens = 110')
    reader_of(owner).run()
    assert told(store) == [7, 110]


@pytest.mark.parametrize(("host", "may_ask"), [("localhost", True), ("127.0.0.1", False)])
def test_a_database_is_one_under_whatever_address_and_source(
    owner: Owner, reader_of: ReaderOf, store: Store, host: str, may_ask: bool
) -> None:
    """By its own identity, or by its address where that may not be asked for."""
    make_daily(owner)
    owner.add([daily()], f'"{BY_USER}"')
    if not may_ask:
        owner.run("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    reader_of(owner).run()
    address = owner.server.address(owner.database).replace("127.0.0.1", host)
    reader = SpendLogReader(store, address, source="again")
    reader.run()
    assert reader.problems == []
    assert told(store) == [100]


def test_a_key_of_one_team_is_that_teams(owner: Owner, password: str) -> None:
    make_daily(owner)
    owner.add(
        [daily(api_key="a"), daily(api_key="b"), daily(api_key="c", user_id="")], f'"{BY_USER}"'
    )
    owner.add(
        [of_team(api_key="a", team_id="red"), of_team(api_key="b", team_id="")], f'"{BY_TEAM}"'
    )
    assert sorted((one.tenant, one.prompt_tokens) for one in usage(owner)) == [
        ("c", 100), ("red", 100), ("u", 100),
    ]  # fmt: skip


def test_a_key_of_two_teams_is_neither(owner: Owner, password: str) -> None:
    """Single sign-on: one key, several teams. Which part is whose is not known, so nobody's."""
    make_daily(owner)
    owner.add([daily(prompt_tokens=200, user_id="")], f'"{BY_USER}"')
    owner.add([of_team(team_id="red"), of_team(team_id="blue")], f'"{BY_TEAM}"')
    assert [(one.tenant, one.prompt_tokens) for one in usage(owner)] == [("k", 200)]


def test_t5_a_zero_may_be_not_told_so_it_is_unknown(owner: Owner, password: str) -> None:
    make_daily(owner)
    owner.add([daily(cache_read_input_tokens=0, cache_creation_input_tokens=0)], f'"{BY_USER}"')
    (one,) = usage(owner)
    assert (one.cached_tokens, one.cache_write_tokens) == (None, None)
    assert (one.prompt_tokens, one.output_tokens, one.requests) == (100, 5, 1)


def test_the_first_version_of_the_table_knows_less(empty: Owner, password: str) -> None:
    make_daily(empty, OLDEST_DAILY_USER)
    empty.add([daily()], f'"{BY_USER}"')
    (one,) = usage(empty)
    assert (one.prompt_tokens, one.cached_tokens, one.requests) == (100, None, None)


def test_no_daily_tables_are_no_rows(owner: Owner, password: str) -> None:
    assert usage(owner) == []


def test_models_and_providers_without_a_name(owner: Owner, password: str) -> None:
    make_daily(owner)
    owner.add([daily(model="", custom_llm_provider=None)], f'"{BY_USER}"')
    (one,) = usage(owner)
    assert (one.provider, one.model) == ("unknown", None)


def test_only_days_asked_for(owner: Owner, password: str) -> None:
    make_daily(owner)
    days = [(DAY - timedelta(days=n)).isoformat() for n in range(4)]
    owner.add((daily(date=text) for text in [*days, "nonsense"]), f'"{BY_USER}"')
    assert len(usage(owner)) == 4
    assert [one.day.date() for one in usage(owner, DAY - timedelta(days=1))] == [
        DAY - timedelta(days=1), DAY,
    ]  # fmt: skip


def test_what_no_usage_is_is_said_and_rows_are_taken_all_the_same(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    make_daily(owner)
    owner.add([daily(prompt_tokens=-1)], f'"{BY_USER}"')
    owner.add([row(1)])
    reader = reader_of(owner)
    assert reader.run().accepted == 1
    (problem,) = reader.problems
    assert "hold what no usage is" in problem
    with pytest.raises(PrefixscopeError):
        usage(owner)


def test_a_role_that_may_not_read_them_still_reads_the_rows(
    owner: Owner, reader_of: ReaderOf, store: Store, password: str
) -> None:
    make_daily(owner)
    owner.run(f'REVOKE SELECT ON "{BY_USER}" FROM reader')
    owner.add([row(1)])
    reader = reader_of(owner)
    assert reader.run().accepted == 1
    assert reader.problems == []
    with pytest.raises(DatabaseError, match="may not read"):
        usage(owner)


def test_days_that_may_still_grow_are_read_again(
    owner: Owner, reader_of: ReaderOf, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_daily(owner)
    old = (DAY - timedelta(days=30)).isoformat()
    owner.add([daily(), daily(date=old)], f'"{BY_USER}"')
    reader = reader_of(owner)
    reader.run()
    owner.run(f'UPDATE "{BY_USER}" SET prompt_tokens = 150')
    reader.run()  # not yet: they are read once an hour
    kept = "SELECT sum(prompt_tokens)::BIGINT FROM provider_usage"
    assert store.cursor().execute(kept).fetchall() == [(200,)]
    monkeypatch.setattr("exporter.sources.spend_logs.daily._EVERY", timedelta(0))
    reader.run()  # today's may have grown; a month ago nothing grows
    assert store.cursor().execute(kept).fetchall() == [(250,)]


def test_rows_and_daily_tables_are_reconciled_with_the_reason_of_the_difference(
    owner: Owner, reader_of: ReaderOf, store: Store
) -> None:
    """The recorded run as if it had been yesterday: all of Anthropic's tokens agree, and of the
    other model theirs has the one answer more that came out of the response cache."""
    make_daily(owner)
    yesterday = DAY - timedelta(days=1)
    kept = [json.loads(line)["daily"] for line in RECORDED.read_text("utf-8").splitlines()]
    add_daily(owner, BY_USER, [{**one["user"], "date": yesterday.isoformat()} for one in kept])
    for one in recorded("spend_log"):
        moved = {
            name: str(value).replace("2026-11-30", yesterday.isoformat())
            for name, value in one.items()
            if name.endswith("Time")
        }
        owner.add([one | moved])
    reader_of(owner).run()
    found = {
        one["model"]: one for one in ask(store, "reconciliation", reporter=REPORTER)
    }  # fmt: skip
    claude, tiny = found["claude-sonnet-4-5"], found["tiny"]
    assert (claude["verdict"], claude["difference_tokens"]) == ("agrees", 0)
    assert claude["our_cached_tokens"] == claude["their_cached_tokens"] == 6 * 17920
    assert claude["our_cache_write_tokens"] == claude["their_cache_write_tokens"] == 6 * 592
    assert (tiny["verdict"], tiny["difference_tokens"]) == ("differs", -2100)
    assert (tiny["our_requests"], tiny["their_requests"]) == (9, 9)
