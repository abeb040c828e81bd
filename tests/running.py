"""Starts real processes on loopback for tests and ends them with everything they started."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = str(Path(sys.executable).parent / "prefixscope")
# Every PREFIXSCOPE_ name that the program sees must be a setting; a developer's own are not.
ENVIRONMENT = {name: text for name, text in os.environ.items() if "PREFIXSCOPE_" not in name}


def free_port(room: int = 0) -> int:
    """A free loopback port with `room` valid port numbers above it."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        if port + room < 65536:
            return port


def get(url: str) -> bytes:
    """Body of a loopback address; an OSError for anything but success."""
    with urllib.request.urlopen(url, timeout=10) as reply:
        body: bytes = reply.read()
        return body


def answer(exporter: str, question: str) -> list[dict[str, Any]]:
    """Rows of a question, parameters after `?`."""
    rows: list[dict[str, Any]] = json.loads(get(f"{exporter}/api/v1/query/{question}"))
    return rows


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, output in `log`; at the end the whole group is ended."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            cwd=ROOT, env=ENVIRONMENT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for wish in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, wish)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            continue
        return


def wait_for(
    what: str,
    ready: Callable[[], bool],
    seconds: float,
    process: subprocess.Popen[bytes],
    log: Path,
) -> None:
    """Ask until `ready`; a refused connection counts as not yet. Fails with the log's end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.3)
    state = "has ended" if process.poll() is not None else "is still running"
    tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
    pytest.fail(f"no {what} within {seconds:.0f} s; the process {state}; its output:\n{tail}")
