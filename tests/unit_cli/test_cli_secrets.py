"""An address with a password, given as a file of any kind, is refused and shown nowhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import PrefixscopeError
from exporter.sources.secrets_in_paths import refuse_password
from prefixscope.settings import load_settings
from prefixscope.settings_file import BadSettings

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

CANARY = "c4nary-of-nobody"
# The drivers' names and other databases are those that people write into other programs.
GIVEN = [
    f"postgresql+asyncpg://reader:{CANARY}@127.0.0.1/litellm",
    f"POSTGRES+psycopg2:/reader:{CANARY}@127.0.0.1/litellm",
    f"postgresql://reader:{CANARY}@127.0.0.1/litellm",
    f"mysql+pymysql://reader:{CANARY}@127.0.0.1/litellm",
    f"https://reader:a/{CANARY}@127.0.0.1/log.jsonl",
    f"jdbc:postgresql://127.0.0.1/litellm?user=reader&password={CANARY}",
    f"host=127.0.0.1 user=reader password={CANARY}",
]


@pytest.mark.parametrize("path", GIVEN)
@pytest.mark.parametrize("command", [("ingest",), ("backfill", "--usage")])
def test_a_password_is_not_shown(cli: Cli, command: tuple[str, ...], path: str) -> None:
    run = cli(*command, path, "--store", "s")
    assert run.status == 1
    assert CANARY not in run.out + run.err
    assert "error: " in run.err


@pytest.mark.parametrize("path", GIVEN)
def test_init_does_not_show_it_either(cli: Cli, path: str) -> None:
    run = cli("init", path, "--out", "-")
    assert run.status == 1
    assert CANARY not in run.out + run.err


@pytest.mark.parametrize("path", GIVEN)
def test_it_is_no_pattern_of_files(tmp_path: Path, path: str) -> None:
    file = tmp_path / "prefixscope.yml"
    file.write_text(yaml.safe_dump({"logs": [{"source": "litellm", "path": path}]}))
    with pytest.raises(BadSettings, match=r"logs\.0\.path: ") as refused:
        load_settings(file)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "path",
    ["/var/log/a:b@c.jsonl", "a@b:c.jsonl", "/archive/password=no/log.jsonl", "-", "*.jsonl",
     "https://127.0.0.1/log.jsonl", "password.jsonl", "./s3:/x:y@z"],
)  # fmt: skip
def test_paths_of_files_are_let_through(path: str) -> None:
    refuse_password(path)


@given(
    scheme=st.from_regex(r"[a-z][a-z0-9+.-]{0,9}", fullmatch=True),
    user=st.text(st.characters(exclude_characters=":@/", codec="utf-8")),
    password=st.text(st.characters(exclude_characters="@", codec="utf-8"), min_size=1),
)
def test_whatever_the_scheme_and_the_password(scheme: str, user: str, password: str) -> None:
    with pytest.raises(PrefixscopeError) as refused:
        refuse_password(f"{scheme}://{user}:{password}@h/d")
    assert f":{password}@" not in str(refused.value)
