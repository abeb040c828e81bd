"""doctor on LiteLLM's database: off, expiring, leaking, slow or fine."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exporter.sources.spend_logs.daily import BY_TEAM, BY_USER
from exporter.sources.spend_logs.look import SpendLogFacts, look
from exporter.sources.spend_logs.place import SpendLogSettings
from prefixscope.doctor.facts import LogFacts
from prefixscope.doctor.findings import Finding, Severity
from prefixscope.doctor.spend_logs import check_spend_logs
from tests.unit_cli.conftest import RunCli, cli
from tests.unit_spend_logs.conftest import TABLE, Owner
from tests.unit_spend_logs.litellm_tables import CONFIG, DAILY_TEAM, DAILY_USER, create
from tests.unit_spend_logs.server import READER_PASSWORD
from tests.unit_spend_logs.spend_rows import CANARY, minutes_ago, row

__all__ = ["cli"]

DAY_MINUTES = 24 * 60
KEY = "sk-the-master-key-of-all"


@pytest.fixture
def seen(owner: Owner, password: str) -> Callable[[], SpendLogFacts]:
    """What a look at the database shows its role `reader`. There are daily tables."""
    owner.run(create(BY_USER, DAILY_USER))
    owner.run(create(BY_TEAM, DAILY_TEAM))
    owner.run(create("LiteLLM_Config", CONFIG))
    owner.run(f'GRANT SELECT ON "{BY_USER}", "{BY_TEAM}", "LiteLLM_Config" TO reader')
    return lambda: look("litellm", owner.server.address(owner.database), SpendLogSettings())


def plain(number: int, days_ago: float) -> dict[str, object]:
    return row(number, minutes_ago(days_ago * DAY_MINUTES), messages={}, response={})


def count_days(owner: Owner, *days_ago: int) -> None:
    """The daily tables count calls of those days."""
    today = datetime.now(UTC).date()
    owner.add(
        (
            {"date": (today - timedelta(days=n)).isoformat(), "api_key": "k", "prompt_tokens": 9}
            for n in days_ago
        ),
        f'"{BY_USER}"',
    )


def configure(owner: Owner, **settings: object) -> None:
    """As the admin page of LiteLLM stores them, beside its secrets."""
    value = json.dumps({"master_key": KEY, **settings})
    owner.run(
        "INSERT INTO \"LiteLLM_Config\" VALUES ('general_settings', $1::text::jsonb) RETURNING 1",
        value,
    )


def findings(facts: SpendLogFacts, *logs: LogFacts) -> list[tuple[str, str]]:
    """Check and severity of everything that is not fine."""
    found = list(check_spend_logs([facts], logs))
    assert KEY not in str(found) + str(facts)
    assert CANARY not in str(found) + str(facts)
    return [(one.check, one.severity.word) for one in found if one.severity > Severity.OK]


def says(facts: SpendLogFacts, *logs: LogFacts) -> Finding:
    """The worst finding."""
    return max(check_spend_logs([facts], logs), key=lambda one: one.severity)


Seen = Callable[[], SpendLogFacts]


def test_all_is_well(owner: Owner, seen: Seen) -> None:
    owner.add(plain(n, 20 - n) for n in range(20))
    count_days(owner, *range(21))
    facts = seen()
    assert findings(facts) == []
    (fine,) = check_spend_logs([facts], [])
    assert "spend logs from" in fine.says
    assert facts.indexed is True
    assert facts.holds_prompts is False


def test_spend_logs_that_are_off_are_told_by_the_daily_tables(owner: Owner, seen: Seen) -> None:
    count_days(owner, 0, 1, 2)
    assert findings(seen()) == [("spend-logs", "fault")]
    assert "switched off (disable_spend_logs)" in says(seen()).says


def test_spend_logs_that_were_switched_off(owner: Owner, seen: Seen) -> None:
    owner.add(plain(n, 25 - n) for n in range(20))
    count_days(owner, *range(26))
    assert findings(seen()) == [("spend-logs", "fault")]
    assert "switched off since" in says(seen()).says


def test_the_setting_says_that_they_are_off(owner: Owner, seen: Seen) -> None:
    configure(owner, disable_spend_logs=True)
    assert findings(seen()) == [("spend-logs", "fault")]
    assert "setting disable_spend_logs is on" in says(seen()).says


def test_an_empty_database_is_no_fault(seen: Seen) -> None:
    assert findings(seen()) == [("spend-logs", "note")]


@pytest.mark.parametrize(
    ("period", "length"),
    [("7d", "7 days"), ("1w", "7 days"), ("36h", "36 hours"), ("13d", "13 days")],
)
def test_a_short_retention_is_told_by_the_setting(
    owner: Owner, seen: Seen, period: str, length: str
) -> None:
    owner.add([plain(1, 0.1)])
    configure(owner, maximum_spend_logs_retention_period=period)
    assert findings(seen()) == [("spend-logs", "warning")]
    assert f"deleted after {length}" in says(seen()).says
    assert f"the setting says {period}" in says(seen()).says


@pytest.mark.parametrize("period", ["14d", "1mo", "90d", "", "soon", None])
def test_a_long_retention_or_none_is_fine(owner: Owner, seen: Seen, period: str | None) -> None:
    owner.add([plain(1, 0.1)])
    configure(owner, maximum_spend_logs_retention_period=period)
    assert findings(seen()) == []


def test_a_short_retention_is_told_by_the_oldest_row(owner: Owner, seen: Seen) -> None:
    """The settings are in a file of the proxy's, which no table shows."""
    owner.add(plain(n, 5 - n) for n in range(5))
    count_days(owner, *range(40))
    assert findings(seen()) == [("spend-logs", "warning")]
    assert "deleted after 5 days (as it seems)" in says(seen()).says


def test_a_young_proxy_deletes_nothing_yet(owner: Owner, seen: Seen) -> None:
    owner.add(plain(n, 5 - n) for n in range(5))
    count_days(owner, *range(6))
    assert findings(seen()) == []


def test_what_the_exporter_follows_may_expire(owner: Owner, seen: Seen) -> None:
    owner.add([plain(1, 0.1)])
    configure(owner, maximum_spend_logs_retention_period="7d")
    assert findings(seen(), LogFacts("litellm")) == [("spend-logs", "note")]
    assert findings(seen(), LogFacts("litellm", sampled=True)) == [("spend-logs", "warning")]


def test_prompts_in_the_newest_rows_are_told_by_their_size(owner: Owner, seen: Seen) -> None:
    owner.add([plain(1, 0.2), row(2, minutes_ago(5))])
    assert findings(seen()) == [("prompts-leak", "warning")]
    assert "hold prompts or answers" in says(seen()).says


def test_the_setting_says_that_prompts_are_stored(owner: Owner, seen: Seen) -> None:
    owner.add([plain(1, 0.2)])
    configure(owner, store_prompts_in_spend_logs=True)
    assert findings(seen()) == [("prompts-leak", "warning")]
    assert "store_prompts_in_spend_logs is on" in says(seen()).says


def test_whether_rows_hold_prompts_is_unknown_to_a_narrow_role(owner: Owner, seen: Seen) -> None:
    owner.run(f"REVOKE SELECT ON {TABLE} FROM reader")
    owner.run(f'GRANT SELECT (request_id, "startTime", metadata) ON {TABLE} TO reader')
    owner.add([row(1, minutes_ago(5))])
    assert seen().holds_prompts is None
    assert findings(seen()) == []


def test_a_table_without_its_index(owner: Owner, seen: Seen) -> None:
    owner.add([plain(1, 0.1)])
    owner.run('DROP INDEX "LiteLLM_SpendLogs_startTime_idx"')
    assert findings(seen()) == []  # the one on time and id is left
    owner.run('DROP INDEX "LiteLLM_SpendLogs_startTime_request_id_idx"')
    assert findings(seen()) == [("spend-logs", "warning")]
    assert "CREATE INDEX CONCURRENTLY" in says(seen()).fix


def test_a_role_that_could_write(owner: Owner, seen: Seen) -> None:
    owner.add([plain(1, 0.1)])
    owner.run(f"GRANT UPDATE ON {TABLE} TO reader")
    assert findings(seen()) == [("spend-logs", "note")]
    assert "could write" in says(seen()).says


def test_daily_tables_that_are_not_to_be_read(owner: Owner, seen: Seen) -> None:
    owner.add([plain(1, 0.1)])
    owner.run(f'REVOKE SELECT ON "{BY_USER}", "LiteLLM_Config" FROM reader')
    assert findings(seen()) == [("spend-logs", "note")]
    assert "not compared" in says(seen()).says


def test_why_nothing_can_be_seen(empty: Owner, password: str) -> None:
    facts = look("litellm", empty.server.address(empty.database), SpendLogSettings())
    assert findings(facts) == [("spend-logs", "fault")]
    assert "there is no table" in says(facts).says
    assert findings(facts, LogFacts("litellm")) == [("spend-logs", "note")]  # the exporter can
    # doctor says it once, where the log itself could not be read for the same reason.
    assert findings(facts, LogFacts("litellm", error="there is no table")) == []


def test_the_command_reads_the_newest_rows_and_names_the_findings(
    owner: Owner, cli: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGPASSWORD", READER_PASSWORD)
    owner.add(plain(n, 5 - n) for n in range(5))
    address = owner.server.address(owner.database)
    file = tmp_path / "prefixscope.yml"
    file.write_text(f"logs:\n  - source: litellm\n    path: {address}\n")
    run = cli("doctor", "--config", file, "--output", "json")
    assert run.status == 0
    found = {
        one["check"]: one for one in json.loads(run.out)["findings"] if one["where"] == "litellm"
    }
    assert found["log-readable"]["says"].startswith("5 rows of format litellm_spend_logs")
    assert found["spend-logs"]["severity"] == "note"
    monkeypatch.setenv("PGPASSWORD", "not-it-at-all")
    run = cli("doctor", "--config", file)
    assert run.status == 1
    assert run.out.count("does not let reader in") == 1
    assert "not-it-at-all" not in run.out + run.err
    assert READER_PASSWORD not in run.out + run.err
