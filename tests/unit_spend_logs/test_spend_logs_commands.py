"""`ingest` and `serve` with a database, and the copy of psql that needs neither."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from prefixscope.serve import running
from prefixscope.settings import load_settings
from prefixscope.settings_file import BadSettings
from tests.log_path import by_id
from tests.running import PROGRAM, ROOT, answer, eventually
from tests.unit_cli.conftest import RunCli, cli
from tests.unit_spend_logs.conftest import Owner
from tests.unit_spend_logs.server import OWNER_PASSWORD, READER_PASSWORD, Server
from tests.unit_spend_logs.spend_rows import CANARY, minutes_ago, prompts, recorded, row

__all__ = ["cli"]

SECRET = "s3cr3t-of-nobody"
PAGE = (ROOT / "docs" / "spend-logs.md").read_text(encoding="utf-8")


def test_ingest_takes_the_history_and_then_what_is_new(
    owner: Owner, cli: RunCli, password: str
) -> None:
    owner.add(recorded("spend_log"))
    address = owner.server.address(owner.database)
    run = cli("ingest", address, "--source", "litellm", "--store", "s")
    assert run.status == 0, run.err
    assert "litellm_spend_logs (15 rows read, 0 known before)" in run.out
    assert re.search(r"accepted +15\b", run.out)
    owner.add([row(1, minutes_ago(1))])
    run = cli("ingest", address, "--source", "litellm", "--store", "s")
    assert re.search(r"accepted +1\b", run.out)
    assert re.search(r"duplicate +0\b", run.out)
    assert password not in run.out + run.err


def test_ingest_with_a_password_in_the_address(cli: RunCli) -> None:
    run = cli("ingest", f"postgresql://reader:{SECRET}@127.0.0.1/litellm", "--store", "s")
    assert run.status == 1
    assert "must not hold a password" in run.err
    assert SECRET not in run.out + run.err


def test_ingest_where_it_is_not_let_in(
    owner: Owner, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    run = cli("ingest", owner.server.address(owner.database), "--store", "s")
    assert run.status == 1
    assert "error: postgresql://reader@127.0.0.1" in run.err
    assert "does not let reader in" in run.err
    assert SECRET not in run.out + run.err


def test_ingest_without_the_library_names_the_extra(
    cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    run = cli("ingest", "postgresql://reader@127.0.0.1/litellm", "--store", "s")
    assert run.status == 1
    assert "pip install 'prefixscope[postgres]'" in run.err


def settings_file(folder: Path, path: str) -> Path:
    file = folder / "prefixscope.yml"
    log = {"source": "litellm", "path": path, "postgres": {"poll_seconds": 0.1}}
    given = {
        "store": {"directory": str(folder / "served")}, "server": {"listen": "127.0.0.1:0"},
        "logs": [log],
    }  # fmt: skip
    file.write_text(yaml.safe_dump(given))
    return file


def test_serve_follows_a_database(owner: Owner, password: str, tmp_path: Path) -> None:
    owner.add([row(1, minutes_ago(2))])
    file = settings_file(tmp_path, owner.server.address(owner.database))
    with running(load_settings(file)) as exporter:

        def counted(wanted: int) -> bool:
            [found] = answer(exporter.url, "hit_ratio")
            return bool(found["prompt_tokens"] == wanted)

        eventually("first row", lambda: counted(101))
        owner.add([row(2, minutes_ago(1))])
        eventually("second row", lambda: counted(101 + 102))
        (health,) = answer(exporter.url, "ingest_health")
        assert (health["source"], health["duplicate"]) == ("litellm", 0)


def test_settings_with_a_password_in_the_address_are_refused(tmp_path: Path) -> None:
    file = settings_file(tmp_path, f"postgresql://reader:{SECRET}@db/litellm")
    with pytest.raises(BadSettings, match=r"logs\.0\.path: the address of a database") as refused:
        load_settings(file)
    assert SECRET not in str(refused.value)


# ---------------------------------------------------------------- the copy of docs/spend-logs.md


def recipe() -> str:
    """The one command of the page that pipes psql into us."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    (found,) = (block for block in blocks if "psql" in block and "COPY" in block)
    return found


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_copy_of_the_page_brings_the_same_rows(
    owner: Owner, cli: RunCli, password: str, tmp_path: Path
) -> None:
    texts = ['quote " and \\ and \t', "line\nbreak", "\x01 \x02 §"]
    owner.add(recorded("spend_log"))
    owner.add(
        row(n, metadata={"usage_object": {"prompt_tokens_details": {"cached_tokens": n}},
                         "note": texts[n]}, model=f"m{texts[n]}")
        for n in range(3)
    )  # fmt: skip
    environment = {
        **os.environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}",
        "ADDRESS": owner.server.address(owner.database), "PGPASSWORD": READER_PASSWORD,
    }  # fmt: skip
    piped = subprocess.run(
        ["sh", "-c", f"set -e\n{recipe()}"], env=environment, cwd=tmp_path, timeout=300,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert piped.returncode == 0, piped.stderr
    from exporter.store.store import Store
    from tests.log_path import SMALL

    assert cli("ingest", owner.server.address(owner.database), "--source", "direct", "--store",
               tmp_path / "data" / "store").status == 0  # fmt: skip
    store = Store.open(tmp_path / "data" / "store", SMALL)
    try:
        copied, direct = by_id(store, "litellm"), by_id(store, "direct")
        way = ("source", "arrived", "batch", "position")
        for one in (*copied.values(), *direct.values()):
            for name in way:
                one.pop(name)
        assert copied == direct
        assert len(copied) == 18
        assert prompts(store)[:4] == [8, 100, 101, 102]
    finally:
        store.close()


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_copy_leaves_out_what_people_wrote(owner: Owner, password: str) -> None:
    owner.add([row(1, metadata={})])
    (query,) = re.findall(r'-c "(COPY.*?)" *\\?\n? *\|', recipe(), re.DOTALL)
    copied = subprocess.run(
        ["psql", owner.server.address(owner.database), "-c", query.replace('\\"', '"')],
        env=os.environ | {"PGPASSWORD": password}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert '"request_id": "r-00001"' in copied
    assert CANARY not in copied


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_role_of_the_page_is_enough(empty: Owner, cli: RunCli, server: Server,
                                        monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The statements as they stand there, by psql as somebody would run them."""
    from tests.unit_spend_logs.conftest import make_tables
    from tests.unit_spend_logs.litellm_tables import DAILY_TEAM, DAILY_USER, ERAS, create

    make_tables(empty, ERAS["2026-11"])
    for name, columns in (("User", DAILY_USER), ("Team", DAILY_TEAM)):
        empty.run(create(f"LiteLLM_Daily{name}Spend", columns))
    (statements,) = (
        block
        for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
        if "CREATE ROLE" in block
    )
    role = f"narrow_{empty.database}"
    statements = statements.replace("prefixscope", role).replace("…", SECRET)
    psql = ["psql", empty.server.address(empty.database, "owner"), "-v", "ON_ERROR_STOP=1"]
    subprocess.run(
        [*psql, "-c", statements.replace("litellm TO", f"{empty.database} TO")],
        env=os.environ | {"PGPASSWORD": OWNER_PASSWORD}, check=True, capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("PGPASSWORD", SECRET)
    empty.add(recorded("spend_log"))
    run = cli("ingest", empty.server.address(empty.database, role), "--store", "s")
    assert run.status == 0, run.err
    assert re.search(r"accepted +15\b", run.out)
    assert re.search(r"coverage +> 99\.9 %", run.out)
    for column in ("messages", "response", "proxy_server_request"):
        asked = f"'{role}', '\"LiteLLM_SpendLogs\"', '{column}', 'SELECT'"
        assert empty.value(f"SELECT has_column_privilege({asked})") is False
