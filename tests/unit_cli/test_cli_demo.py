"""`demo` from command to page: files, the ordinary path in, exporter and dashboard, a clean end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from prefixscope import client
from tests.running import eventually, free_port

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def asked(address: str, question: str) -> list[dict[str, Any]]:
    answer = requests.get(f"http://{address}/api/v1/query/{question}", timeout=60)
    rows: list[dict[str, Any]] = answer.json()
    return rows


def until_heard(address: str) -> list[dict[str, Any]]:
    """The event streams, once all four replicas' pasts are in the store."""

    def heard() -> bool:
        split = asked(address, "memory_split?by=replica")
        return len(asked(address, "block_streams")) == 4 and all(
            row["resident_tokens"] for row in split
        )

    eventually("events of every replica", heard)
    return asked(address, "block_streams")


def test_demo_comes_up_with_data_and_stops_cleanly(cli: Cli, tmp_path: Path) -> None:
    address, pages = free_address(), free_address()
    arguments = ["--listen", address, "--dashboard-listen", pages, "--days", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "prefixscope", "demo", *arguments, "--requests", "3000"],
        cwd=tmp_path,
        env={name: v for name, v in os.environ.items() if not name.startswith("PREFIXSCOPE_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        shown = [process.stdout.readline() for _ in range(3)]
        assert f"http://{address} " in shown[0]
        assert f"http://{pages}" in shown[1]
        assert requests.get(f"http://{pages}/_stcore/health", timeout=60).ok
        store = tmp_path / "data" / "demo" / "store"
        state = json.loads(cli("query", "store_state", "--store", store, "--output", "json").out)
        assert state[0]["demo"] is True
        assert state[0]["requests"] > 2000
        assert state[0]["replicas"] == 4
        streams = until_heard(address)
        assert {row["replica"] for row in streams} == {f"replica-{n}" for n in range(4)}
        assert [row["uncertain"] for row in streams] == [None] * 4
        (evictions,) = asked(address, "evictions")
        assert evictions["basis"] == "events"
        assert evictions["evicted_blocks"] > 0
        # Two hours of replay, and what is resident fits.
        assert evictions["told_seconds"] > 4 * 7000
        for replica in asked(address, "memory_split?by=replica"):
            assert 0 < replica["resident_tokens"] <= replica["capacity_tokens"]
            assert replica["basis"] == "events"
        refused = cli("demo", "--directory", tmp_path / "data" / "demo", "--listen", free_address())
        assert (refused.status, "is running at" in refused.err) == (1, True)
    finally:
        process.send_signal(signal.SIGTERM)
        _, messages = process.communicate(timeout=60)
    assert process.returncode == 0, messages
    assert messages.rstrip().endswith("Stopped.")
    assert not re.search("Traceback|ERROR", messages)
    for place in (address, pages):
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://{place}", timeout=60)


def test_real_rows_go_into_the_demo_only_by_name(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = free_address()
    monkeypatch.setattr(client, "DEFAULT_URL", f"http://{address}")
    log = tmp_path / "log.jsonl"
    log.write_text('{"ts": "2026-03-02T12:00:00Z", "prompt_tokens": 9, "cached_tokens": 1}\n')
    arguments = ["--listen", address, "--no-dashboard", "--days", "1", "--requests", "100"]
    command = [sys.executable, "-m", "prefixscope", "demo", "--directory", "elsewhere"]
    process = subprocess.Popen([*command, *arguments], cwd=tmp_path)
    try:
        eventually("exporter of the demo", client.Exporter(f"http://{address}").is_up)
        refused = cli("ingest", log)
        assert (refused.status, "synthetic demo" in refused.err) == (1, True)
        assert cli("ingest", log, "--url", f"http://{address}").status == 0
        assert cli("ingest", log, "--store", tmp_path / "own").status == 0
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_folder_that_is_no_demo_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    kept = tmp_path / "mine" / "thesis.txt"
    kept.parent.mkdir()
    kept.write_text("years of work")
    done = cli("demo", "--directory", kept.parent, "--listen", free_address(), "--no-dashboard")
    assert (done.status, "holds no demo" in done.err) == (1, True)
    assert kept.read_text() == "years of work"


def test_an_address_in_use_is_said_before_the_work(cli: Cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = cli("demo", "--listen", address)
        pages = cli("demo", "--listen", free_address(), "--dashboard-listen", address)
    for told, option in ((done, "--listen"), (pages, "--dashboard-listen")):
        assert (told.status, f"cannot listen on {address}" in told.err) == (1, True)
        assert f"of the demo {option})" in " ".join(told.err.split())
    assert not (tmp_path / "data").exists()
