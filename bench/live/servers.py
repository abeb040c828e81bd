"""The servers of one arm: two vLLM replicas with the tap in them, and a real router before them.

Where the machine has a core for each replica, each gets one to itself: then the prefill of one does
not slow the other, as with replicas on GPUs of their own.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.live.processes import is_ok, started
from bench.live.trace import BLOCK_TOKENS
from prefixscope.demo_engine import run_vllm
from prefixscope.demo_engine.install import PACKAGE, interpreter, is_installed
from prefixscope.demo_engine.model import LONGEST_TOKENS, Shape
from tests.running import free_port

REPLICAS = 2
MODEL = "live"
# Prefill of about two thousand tokens a second on a core, nearly all of it proportional to length.
SHAPE = Shape(hidden=768, inner=3072, layers=3, heads=4)
ROUTER, ROUTER_VERSION = "vllm-router", "0.1.17"
# As an operator might start it: the longest match wins unless less than a third matches.
_MATCH_RATIO, _IMBALANCE_REQUESTS = 0.3, 64
_START_SECONDS = 240
# What a step of the engine computes of prompts at most: vLLM's own default for small machines.
STEP_TOKENS = 2048
_NO_DOWNLOADS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True)
class Engines:
    """Where vLLM and the router are installed: `vllm/` and `router/` of one folder, the one that
    `make test-engine` uses."""

    folder: Path

    @property
    def python(self) -> Path:
        return interpreter(self.folder / "vllm")

    @property
    def router(self) -> Path:
        return self.folder / "router" / "bin" / ROUTER

    def missing(self) -> str | None:
        """What is not installed, and what to do about it; None where all is there."""
        if not is_installed(self.folder / "vllm"):
            return (
                f"no {PACKAGE} in {self.folder / 'vllm'}: `make test-engine` installs it (3.5 GB),"
                " or set PREFIXSCOPE_ENGINE_DIR to a folder whose vllm/ has it"
            )
        if not self.router.is_file():
            where = self.folder / "router"
            return (
                f"no {ROUTER} in {where}: python3 -m venv {where} && {where}/bin/python -m pip "
                f"install {ROUTER}=={ROUTER_VERSION}"
            )
        return None

    def versions(self) -> str:
        """What is installed, by the environments' own word."""
        router = _versions(self.folder / "router" / "bin" / "python", ROUTER)
        return f"{_versions(self.python, PACKAGE, 'torch')}, {router}"


def _versions(python: Path, *packages: str) -> str:
    ask = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    found = subprocess.run(
        [python, "-c", ask, *packages], capture_output=True, check=True, text=True
    ).stdout.split()
    return ", ".join(f"{name} {version}" for name, version in zip(packages, found, strict=True))


@dataclass(frozen=True)
class Replica:
    """`tap`: the rows of its requests."""

    name: str
    url: str
    tap: Path


@dataclass(frozen=True)
class Fleet:
    """What runs while an arm lasts; `url` is the router's."""

    url: str
    replicas: list[Replica]


def cores() -> list[int | None]:
    """The core of each replica; None for all of them where there are too few, or no `taskset`."""
    known = sorted(os.sched_getaffinity(0))
    if len(known) < REPLICAS or shutil.which("taskset") is None:
        return [None] * REPLICAS
    return list(known[:REPLICAS])


def machine_words() -> str:
    """What it runs on, and how replicas share it."""
    shared = "a core for each replica, so that neither slows the other"
    if None in cores():
        shared = "both replicas share all cores and slow each other, which the model does not know"
    return f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores: {shared}"


@contextmanager
def fleet(
    engines: Engines, folder: Path, model: Path, blocks: int, policy: str, caches: bool
) -> Iterator[Fleet]:
    """Replicas and router, freshly started, for as long as the block lasts."""
    folder.mkdir()
    with ExitStack() as stack:
        replicas, starting = [], []
        for number, core in enumerate(cores()):
            replica = Replica(
                f"replica-{number}",
                f"http://127.0.0.1:{free_port()}",
                folder / f"tap-{number}.ndjson",
            )
            command = _replica_command(engines, model, replica.url, blocks, core, caches)
            environment = _replica_environment(replica, model.parent, core)
            starting.append(
                stack.enter_context(started(replica.name, command, folder, environment))
            )
            replicas.append(replica)
        for process, replica in zip(starting, replicas, strict=True):
            process.wait_until(lambda url=replica.url: is_ok(f"{url}/health"), _START_SECONDS)
        url = f"http://127.0.0.1:{free_port()}"
        router = stack.enter_context(
            started("router", _router_command(engines, url, replicas, policy), folder)
        )
        router.wait_until(lambda: is_ok(f"{url}/readiness"), _START_SECONDS)
        yield Fleet(url, replicas)


def _replica_command(
    engines: Engines, model: Path, url: str, blocks: int, core: int | None, caches: bool
) -> list[str]:
    caching = "--enable-prefix-caching" if caches else "--no-enable-prefix-caching"
    return [
        *([] if core is None else ["taskset", "-c", str(core)]),
        str(engines.python), run_vllm.__file__, "serve", str(model), "--served-model-name", MODEL,
        "--host", "127.0.0.1", "--port", url.rsplit(":", 1)[1],
        "--max-model-len", str(LONGEST_TOKENS), "--block-size", str(BLOCK_TOKENS),
        "--num-gpu-blocks-override", str(blocks), "--enforce-eager", caching,
        "--max-num-batched-tokens", str(STEP_TOKENS),
        "--enable-prompt-tokens-details", "--enable-per-request-metrics",
        "--middleware", "prefixscope_tap.Tap",
    ]  # fmt: skip


def _replica_environment(replica: Replica, modules: Path, core: int | None) -> dict[str, str]:
    return {
        **_NO_DOWNLOADS,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind" if core is None else str(core),
        "PYTHONPATH": str(modules),
        "PREFIXSCOPE_TAP_FILE": str(replica.tap),
        "PREFIXSCOPE_TAP_REPLICA": replica.name,
    }


def _router_command(engines: Engines, url: str, replicas: list[Replica], policy: str) -> list[str]:
    return [
        str(engines.router), "--worker-urls", *(replica.url for replica in replicas),
        "--policy", policy, "--host", "127.0.0.1", "--port", url.rsplit(":", 1)[1],
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()),
        "--cache-threshold", str(_MATCH_RATIO), "--balance-abs-threshold",
        str(_IMBALANCE_REQUESTS),
    ]  # fmt: skip
