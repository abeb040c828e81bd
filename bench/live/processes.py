"""Processes of a live run: started on loopback, each in a group of its own, ended by their ids."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests

from exporter.errors import PrefixscopeError

_STOP_SECONDS = 20
_LOG_TAIL = 2000


@dataclass(frozen=True)
class Started:
    """A process, what it is called in messages, and its output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Ask until `ready`; a refused connection counts as not yet. PrefixscopeError with the end
        of its log when it ends before, or takes longer."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(OSError):
                if ready():
                    return
            time.sleep(0.3)
        raise PrefixscopeError(self._why_not(f"was not ready within {seconds:.0f} s"))

    def finish(self, seconds: float) -> None:
        """Wait for its end. PrefixscopeError where it fails or takes longer."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise PrefixscopeError(self._why_not(f"took more than {seconds:.0f} s")) from None
        if status:
            raise PrefixscopeError(self._why_not("failed"))

    def _why_not(self, what: str) -> str:
        status = self.process.poll()
        ended = "" if status is None else f" (it ended with status {status})"
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        return f"{self.name} {what}{ended}; the end of its output:\n{tail}"


@contextmanager
def started(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Started]:
    """A process for as long as the block lasts. Its standard input is held open: programs of ours
    end by themselves when it closes, however we ended."""
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})}, cwd=folder, start_new_session=True,
        )  # fmt: skip
    try:
        yield Started(name, process, log)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, and end whatever is left of its group."""
    process.terminate()
    if process.stdin is not None:
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def is_ok(url: str) -> bool:
    """Does a loopback address answer with success? OSError where nothing listens."""
    return requests.get(url, timeout=5).ok
