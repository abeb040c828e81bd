import os
import stat
from pathlib import Path

import pytest

from prefixscope.settings import load_settings
from prefixscope.tap import Tap
from prefixscope.tap.key import tap_key
from prefixscope.tap.settings import BadTapSettings, Pick, TapSettings, tap_settings
from tests.running import ROOT
from tests.unit_tap.scripted import Script

FILE = {"PREFIXSCOPE_TAP_FILE": "/tmp/tap.ndjson"}


def test_a_file_is_all_it_takes() -> None:
    assert tap_settings(FILE) == TapSettings(file="/tmp/tap.ndjson")


def test_every_kind_of_setting() -> None:
    found = tap_settings({
        **FILE,
        "PREFIXSCOPE_TAP_FILE_BYTES": "5000",
        "PREFIXSCOPE_TAP_INCLUDE_USAGE": "ON",
        "PREFIXSCOPE_TAP_TOKENIZE": "off",
        "PREFIXSCOPE_TAP_HASHES": "all",
        "PREFIXSCOPE_TAP_ADAPTERS": "sql, chat",
        "PREFIXSCOPE_TAP_TENANT": "hash:header:Authorization, body:metadata.team,text:none",
        "PREFIXSCOPE_TAP_SERVICE_HOST": "10.0.0.7",
        "PREFIXSCOPE_TAP_PORT_9466_TCP": "tcp://10.0.0.7:9466",
    })  # fmt: skip
    assert found.file_bytes == 5000
    assert (found.include_usage, found.tokenize, found.hashes) == (True, False, "all")
    assert found.adapters == ("sql", "chat")
    assert found.tenant == (
        Pick("header", "authorization", keyed=True),
        Pick("body", "metadata.team"),
        Pick("text", "none"),
    )


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("FLIE", "x", "do you mean PREFIXSCOPE_TAP_FILE?"),
        ("FILE_BYTES", "many", "whole number, 1000 or more"),
        ("FILE_BYTES", "10", "1000 or more"),
        ("INCLUDE_USAGE", "perhaps", "must be on or off"),
        ("HASHES", "some", "one of: off, chain, all"),
        ("TENANT", "x-tenant", "expected header:NAME"),
        ("TENANT", "header:authorization", "is a secret; write hash:header:authorization"),
        ("TENANT", "body:messages", "holds the prompt"),
        ("ROUTE", "hash:body:prompt", "holds the prompt"),
        ("POST", "exporter:9465", "http:// or https://"),
    ],
)
def test_mistakes_name_the_variable_and_the_remedy(variable: str, value: str, says: str) -> None:
    with pytest.raises(BadTapSettings, match=says) as wrong:
        tap_settings({**FILE, f"PREFIXSCOPE_TAP_{variable}": value})
    assert f"PREFIXSCOPE_TAP_{variable}" in str(wrong.value)


def test_nowhere_to_write_is_a_mistake() -> None:
    with pytest.raises(BadTapSettings, match="PREFIXSCOPE_TAP_FILE to a path"):
        tap_settings({})


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "tap.md").read_text(encoding="utf-8")
    missing = [name for name in TapSettings.__dataclass_fields__ if f"`{name.upper()}`" not in page]
    assert missing == []


def test_an_exporter_beside_a_tap_does_not_mind_its_settings() -> None:
    load_settings(None, FILE)


# ---------------------------------------------------------------- the key


def test_the_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    settings = TapSettings(file=str(tmp_path / "logs" / "tap.ndjson"))
    key = tap_key(settings)
    path = tmp_path / "logs" / "hash.key"
    assert len(key) == 64
    assert path.read_text() == key + "\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116
    assert tap_key(settings) == key
    assert [path.name for path in path.parent.iterdir()] == ["hash.key"]


def test_a_shared_key_is_the_one_that_is_used(tmp_path: Path) -> None:
    (tmp_path / "shared.key").write_text("  fleet secret \n")
    settings = TapSettings(file=str(tmp_path / "t"), key_file=str(tmp_path / "shared.key"))
    assert tap_key(settings) == "fleet secret"
    (tmp_path / "shared.key").write_text("\n")
    with pytest.raises(BadTapSettings, match="is empty"):
        tap_key(settings)
    with pytest.raises(BadTapSettings, match="PREFIXSCOPE_TAP_KEY_FILE"):
        tap_key(TapSettings(file="t", key_file=str(tmp_path)))


def test_hashes_without_a_place_for_the_key_are_a_mistake() -> None:
    with pytest.raises(BadTapSettings, match="PREFIXSCOPE_TAP_KEY_FILE"):
        Tap(Script(), TapSettings(post="http://127.0.0.1:1/v1/requests", hashes="chain"))
