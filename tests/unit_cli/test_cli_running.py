"""A running exporter beside the command line: who owns the store, and that all ask it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from exporter.store.owner import Owner, read_owner, remove_owner, write_owner
from tests.running import eventually, free_port

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


@contextmanager
def serving(folder: Path, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`prefixscope serve` on the store in `folder`, ready to answer."""
    url = f"http://127.0.0.1:{free_port()}"
    variables = {
        "PREFIXSCOPE_SERVER__LISTEN": url.removeprefix("http://"),
        "PREFIXSCOPE_STORE__DIRECTORY": str(folder),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "prefixscope", "serve"],
        env={**os.environ, **variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:

        def ready() -> bool:
            assert process.poll() is None, process.communicate()[0]
            try:
                return requests.get(f"{url}/-/ready", timeout=60).ok
            except requests.ConnectionError:
                return False

        eventually("exporter that is ready", ready)
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def log_file(folder: Path, count: int = 3) -> Path:
    file = folder / "log.jsonl"
    rows = [{"ts": f"2026-03-02T12:00:0{n}Z", "prompt_tokens": 1000, "cached_tokens": 700}
            for n in range(count)]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_t69_commands_on_a_held_store_ask_its_exporter(cli: Cli, tmp_path: Path) -> None:
    store, log = tmp_path / "store", log_file(tmp_path)
    with serving(store) as (url, process):
        assert read_owner(store) == Owner(process.pid, url)
        first = cli("ingest", log, "--store", store)
        assert (first.status, f"Loading into the exporter at {url}" in first.err) == (0, True)
        asked = cli("query", "hit_ratio", "--store", store, "--output", "json")
        assert asked.err.strip() == f"Asking the exporter at {url}"
        assert json.loads(asked.out)[0]["cached_tokens"] == 2100
        assert cli("now", "--store", store).status == 0
        wrong = cli("query", "hit_ratio", "--store", store, "--by", "planet")
        assert (wrong.status, "tenant" in wrong.err) == (2, True)
        unknown = cli("query", "nonsense", "--url", url)
        assert (unknown.status, "hit_ratio" in unknown.err) == (2, True)
        pages = tmp_path / "a.prom"
        pages.write_text("vllm:prompt_tokens_total 1\n")
        refused = cli("ingest", pages, "--store", store)
        assert (refused.status, "stop the exporter" in refused.err) == (1, True)
    assert process.returncode == 0
    assert read_owner(store) is None
    # Without the exporter the same file is known again, by its place and not by an id.
    again = cli("ingest", log, "--store", store)
    assert "Loading into the store in" in again.err
    assert cli("query", "hit_ratio", "--store", store, "--output", "csv").out.count("2100") == 1


def test_t69_a_lock_without_an_exporter_names_owner_and_remedy(cli: Cli, tmp_path: Path) -> None:
    hold = (
        "import sys, time, pathlib; from exporter.store.store import Store;"
        "s = Store.open(pathlib.Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        done = cli("query", "hit_ratio", "--store", tmp_path / "store")
        holder.kill()
    assert (done.status, done.out) == (1, "")
    assert f"PID {holder.pid}" in done.err
    assert "--url" in done.err
    assert "Traceback" not in done.err


def test_a_token_is_asked_for_and_taken_from_the_environment(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "store", PREFIXSCOPE_SERVER__TOKEN="s3cret") as (url, _):
        refused = cli("query", "store_state", "--url", url)
        assert (refused.status, "PREFIXSCOPE_TOKEN" in refused.err) == (1, True)
        monkeypatch.setenv("PREFIXSCOPE_TOKEN", "s3cret")
        assert cli("query", "store_state", "--url", url).status == 0
        assert cli("ingest", log_file(tmp_path), "--store", tmp_path / "store").status == 0


def test_a_followed_log_reaches_the_answers(cli: Cli, tmp_path: Path) -> None:
    log = log_file(tmp_path, 2)
    logs = json.dumps([{"source": "gateway", "path": str(log)}])
    with serving(tmp_path / "store", PREFIXSCOPE_LOGS=logs) as (url, _):
        wait_for(cli, url, requests_expected=2)
        with log.open("a") as file:
            file.write('{"ts": "2026-03-02T12:00:09Z", "prompt_tokens": 9, "cached_tokens": 1}\n')
        wait_for(cli, url, requests_expected=3)


def wait_for(cli: Cli, url: str, requests_expected: int) -> None:
    def counted() -> int:
        done = cli("query", "hit_ratio", "--url", url, "--output", "json")
        rows: list[dict[str, int]] = json.loads(done.out)
        return rows[0]["requests"]

    eventually(f"{requests_expected} rows", lambda: counted() == requests_expected)


def test_an_address_in_use_is_1_and_says_what_to_change(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("PREFIXSCOPE_SERVER__LISTEN", address)
        done = cli("serve")
    assert done.status == 1
    assert f"cannot listen on {address}: " in done.err
    assert "server.listen" in done.err


def test_wrong_settings_are_1_and_named(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("server:\n  lisen: x\n")
    done = cli("serve", "--config", config)
    assert (done.status, "did you mean listen?" in done.err) == (1, True)


def test_the_owner_file_is_ours_to_remove_only(tmp_path: Path) -> None:
    assert read_owner(tmp_path) is None
    write_owner(tmp_path, "http://127.0.0.1:1")
    assert read_owner(tmp_path) == Owner(os.getpid(), "http://127.0.0.1:1")
    remove_owner(tmp_path)
    assert read_owner(tmp_path) is None
    (tmp_path / "owner.json").write_text('{"pid": 1, "url": "http://x"}')
    remove_owner(tmp_path)
    assert read_owner(tmp_path) == Owner(1, "http://x")
    (tmp_path / "owner.json").write_text("half a fi")
    assert read_owner(tmp_path) is None
