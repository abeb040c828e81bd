"""A real llama-server ignores salts: reuse across them is found to the token."""

import json
from pathlib import Path

import pytest

from tests.engine.two_tenants import MODEL, SERVER, ask_all, llama_server, tap_before
from tests.unit_isolation.told import audited, check_told

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not (SERVER and MODEL), reason="PREFIXSCOPE_LLAMA_SERVER and …_MODEL name none to run"
    ),
]


def test_what_one_tenant_had_computed_another_was_served(tmp_path: Path) -> None:
    with llama_server(tmp_path) as server, tap_before(server, tmp_path) as tap:
        told = ask_all(tap, tmp_path)
    log = tmp_path / "tap.ndjson"
    assert "salt of" not in log.read_text()
    for rule in ((), ("--rule", "llama_cpp")):
        check_told(audited(log, "--warm-up", "0s", *rule), told)
    # Seven days have not passed, so that nothing is said of whose it was.
    young = audited(log)
    assert young["reused_at_most_tokens"] == 0
    assert young["cannot_tell_tokens"] > 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert len({row.get("scope") for row in rows}) == 4
