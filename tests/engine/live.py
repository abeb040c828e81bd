"""A real vLLM with the tiny model, for tests that compare its counters with what others say.

Its scripts stand beside the checkout. They install it on the first use (3.5 GB) into
PREFIXSCOPE_ENGINE_DIR, by default a folder of the user's cache.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running import ROOT, free_port, get, running, wait_for

ENGINE = ROOT.parent / "shared" / "engine"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
ENGINE_DIR = Path(os.environ.get("PREFIXSCOPE_ENGINE_DIR") or CACHE / "prefixscope-engine")
MODEL = "tiny"
INSTALL_AND_START_SECONDS = 1200
_EVENT_PORTS = 700  # start_vllm.sh derives event ports up to this far above the server's

needs_engine = [
    pytest.mark.engine,
    pytest.mark.skipif(not ENGINE.is_dir(), reason="no engine scripts at ../shared/engine"),
]


@contextmanager
def running_vllm(folder: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """Address of a vLLM started with these further arguments; its log goes to the folder."""
    log, port = folder / "vllm.log", free_port(_EVENT_PORTS + 1)
    ENGINE_DIR.mkdir(parents=True, exist_ok=True)
    start = ["bash", str(ENGINE / "start_vllm.sh"), str(ENGINE_DIR), MODEL, str(port), *arguments]
    command = ["env", *(f"{name}={text}" for name, text in environment.items()), *start]
    address = f"http://127.0.0.1:{port}"
    with running(command, log) as process:
        seconds = INSTALL_AND_START_SECONDS
        wait_for("vLLM", lambda: get(f"{address}/health") == b"", seconds, process, log)
        yield address
