"""`prefixscope tap` as people start it."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.running import ENVIRONMENT, PROGRAM, free_port, running, wait_for
from tests.unit_cli.conftest import RunCli, cli
from tests.unit_tap.scripted import CHAT, Script, ask, rows_in, serving

__all__ = ["cli"]
STREAM = {"model": "tiny", "messages": [], "stream": True}


def test_the_proxy_relays_records_and_writes_all_before_it_ends(tmp_path: Path) -> None:
    script, port, log = Script(), free_port(), tmp_path / "log"
    with serving(script) as engine:
        expected = ask(engine, STREAM).body
        command = [
            PROGRAM, "tap", "--upstream", f"http://127.0.0.1:{engine}/below",
            "--listen", f"127.0.0.1:{port}", "--out", str(tmp_path / "tap.ndjson"),
        ]  # fmt: skip
        with running(command, log) as process:
            wait_for("tap", lambda: ask(port, {}, "/health").status == 200, 180, process, log)
            assert ask(port, STREAM, CHAT + "?a=%2F").body == expected
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    (row,) = rows_in(tmp_path)
    assert row["status"] == "ok"
    assert script.paths[-1] == "/below" + CHAT
    assert "Records what passes this process alone" in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        ([], 2, "either --upstream URL or --print"),
        (["--print", "--upstream", "http://a"], 2, "either --upstream URL or --print"),
        (["--upstream", "localhost:8000"], 2, "must begin with http:// or https://"),
        (["--upstream", "http://a", "--post", "exporter"], 1, "PREFIXSCOPE_TAP_POST must begin"),
    ],
)
def test_wrong_use_says_what_to_do(
    cli: RunCli, arguments: list[str], exit_code: int, says: str
) -> None:
    done = cli("tap", *arguments)
    assert done.status == exit_code
    assert says in done.err


def test_a_wrong_setting_stops_the_start(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PREFIXSCOPE_TAP_HASHES": "some"}
    done = subprocess.run([PROGRAM, "tap", "--upstream", "http://a"], env=environment,
                          capture_output=True, text=True, timeout=180, cwd=tmp_path,
                          check=False)  # fmt: skip
    assert done.returncode == 1
    assert "PREFIXSCOPE_TAP_HASHES must be one of: off, chain, all" in done.stderr
    assert json.dumps(list(tmp_path.iterdir())) == "[]"
