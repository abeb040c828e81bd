"""Starts real processes on loopback for tests and ends them with everything they started."""

import json
import os
import random
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


# Below those that a system gives to whoever asks for any or connects from one: between being found
# and being used, a port of those may become the next connection's of anybody.
_PORTS = range(15_000, 30_000)
_GIVEN: set[int] = set()


def free_port(count: int = 1) -> int:
    """A loopback port that is free, and stays it; the first of `count` in a row."""
    while True:
        # Every worker imports this file alike, and a test may seed the common chance.
        first = random.SystemRandom().choice(_PORTS)
        ports = range(first, first + count)
        if _GIVEN.isdisjoint(ports) and all(map(_is_free, ports)):
            _GIVEN.update(ports)
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        # As servers do: else one that has just ended keeps its port for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def get(url: str) -> bytes:
    """Body of a loopback address; an OSError for anything but success."""
    with urllib.request.urlopen(url, timeout=60) as reply:
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


def eventually(what: str, ready: Callable[[], object], seconds: float = 120) -> None:
    """Ask again and again until `ready`, and fail when time is up. Long, since a loaded machine may
    stand still for a while; it costs a test that passes nothing."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"no {what} within {seconds:.0f} s"
        time.sleep(0.02)


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
