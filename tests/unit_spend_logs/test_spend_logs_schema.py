"""The tables of these tests are LiteLLM's: its own migrations, where it is installed, make them.

LiteLLM is looked for where `make test-engine` installs it (PREFIXSCOPE_LITELLM_DIR).
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.engine.proxy import LITELLM_DIR
from tests.log_path import requests
from tests.unit_spend_logs.conftest import TABLE, Owner, ReaderOf
from tests.unit_spend_logs.litellm_tables import CONFIG, DAILY_TEAM, DAILY_USER, ERAS, Columns
from tests.unit_spend_logs.server import OWNER_PASSWORD
from tests.unit_spend_logs.spend_rows import recorded

MIGRATIONS = sorted(
    LITELLM_DIR.glob("lib/python*/site-packages/litellm_proxy_extras/migrations/*/migration.sql")
)
pytestmark = pytest.mark.skipif(not MIGRATIONS, reason=f"no LiteLLM at {LITELLM_DIR}")


def _migrate(owner: Owner, files: list[Path]) -> None:
    """As they stand, in order; a statement that cannot run here concerns other tables."""
    included = "".join(f"\\i '{file}'\n" for file in files)
    subprocess.run(
        ["psql", owner.server.address(owner.database, "owner"), "-q"], input=included, text=True,
        env=os.environ | {"PGPASSWORD": OWNER_PASSWORD}, check=True, capture_output=True,
    )  # fmt: skip


def _columns(owner: Owner, table: str) -> dict[str, str]:
    rows = owner.run(
        "SELECT column_name AS name, data_type AS kind FROM information_schema.columns "
        "WHERE table_name = $1",
        table,
    )
    return {row["name"]: row["kind"] for row in rows}


def _kinds(owner: Owner, table: str, columns: Columns) -> dict[str, str]:
    """The types our columns have, as the server calls them."""
    listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    owner.run(f'CREATE TABLE "ours of {table}" ({listed})')
    return _columns(owner, f"ours of {table}")


@pytest.fixture
def migrated(empty: Owner) -> Owner:
    _migrate(empty, MIGRATIONS)
    return empty


def test_the_newest_columns_are_those_of_litellm(migrated: Owner) -> None:
    ours = {
        "LiteLLM_SpendLogs": ERAS["2026-11"].spend_logs,
        "LiteLLM_DailyUserSpend": DAILY_USER,
        "LiteLLM_DailyTeamSpend": DAILY_TEAM,
    }
    for table, columns in ours.items():
        assert _columns(migrated, table) == _kinds(migrated, table, columns), table
    assert (
        _kinds(migrated, "LiteLLM_Config", CONFIG).items()
        <= _columns(migrated, "LiteLLM_Config").items()
    )


@pytest.mark.parametrize(("era", "until"), [("2025-03", "20250327"), ("2025-12", "20251231")])
def test_the_older_columns_are_those_of_their_time(empty: Owner, era: str, until: str) -> None:
    _migrate(empty, [file for file in MIGRATIONS if file.parent.name < until])
    theirs = _columns(empty, "LiteLLM_SpendLogs")
    assert theirs == _kinds(empty, "LiteLLM_SpendLogs", ERAS[era].spend_logs)


def test_rows_in_litellms_own_tables_are_read(migrated: Owner, reader_of: ReaderOf) -> None:
    migrated.run(f"GRANT SELECT ON {TABLE} TO reader")
    migrated.add(recorded("spend_log"))
    reader = reader_of(migrated)
    assert reader.run().accepted == 15
    found = requests(reader._store)
    assert sum(one["cached_tokens"] or 0 for one in found) == 7 * 1536 + 6 * 17920
