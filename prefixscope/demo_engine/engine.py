"""The engine as a process of its own, ended with everything it started."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import requests

from exporter.errors import PrefixscopeError
from prefixscope.demo_engine import run_vllm
from prefixscope.demo_engine.model import LONGEST_TOKENS
from prefixscope.serve import listen

MODEL = "demo"
# Small enough that the demo's prompts do not all fit: 160 blocks of 32 tokens.
BLOCK_TOKENS, BLOCKS = 32, 160
START_SECONDS = 600
STOP_SECONDS = 20
# No downloads, no usage statistics; KV memory of one GiB; threads where the machine has room.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


@dataclass(frozen=True)
class Engine:
    """A running engine: where it answers and what it writes."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def check(self) -> None:
        """PrefixscopeError when it has ended by itself."""
        if self.process.poll() is not None:
            raise PrefixscopeError(
                f"vLLM ended with status {self.process.returncode}; the end of {self.log}:\n"
                + self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            )


@contextmanager
def vllm(
    python: Path, model: Path, port: int, folder: Path, tap: Mapping[str, str] | None
) -> Iterator[Engine]:
    """vLLM for as long as the block lasts; gives it once it answers.

    `tap` is the environment the middleware needs, None for an engine without it.
    """
    # In use? Better said now than by its log.
    listen(f"127.0.0.1:{port}", "--engine-port").close()
    log = folder / "vllm.log"
    environment = {**os.environ, **_ENVIRONMENT, **(tap or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(python, model, port, with_tap=tap is not None),
            stdin=subprocess.PIPE,  # held open: when we are gone, it ends itself
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,  # so that Ctrl-C is for us alone
        )
    engine = Engine(f"http://127.0.0.1:{port}", log, process)
    try:
        _wait_until_up(engine)
        yield engine
    finally:
        _stop(process)


def command(python: Path, model: Path, port: int, *, with_tap: bool) -> list[str]:
    """The command line; the flags after `--enforce-eager` are what an operator would add too."""
    return [
        str(python), run_vllm.__file__, "serve", str(model), "--served-model-name", MODEL,
        "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(LONGEST_TOKENS), "--block-size", str(BLOCK_TOKENS),
        "--num-gpu-blocks-override", str(BLOCKS), "--enforce-eager",
        "--enable-prompt-tokens-details",
        "--kv-cache-metrics", "--kv-cache-metrics-sample", "1.0",
        *(["--middleware", "prefixscope_tap.Tap"] if with_tap else []),
    ]  # fmt: skip


def _wait_until_up(engine: Engine) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        engine.check()
        try:
            if requests.get(f"{engine.url}/health", timeout=2).ok:
                return
        except requests.RequestException:
            time.sleep(0.3)
    raise PrefixscopeError(f"vLLM did not answer within {START_SECONDS} s; see {engine.log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, and end whatever is left of its group."""
    process.terminate()
    if process.stdin is not None:
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
