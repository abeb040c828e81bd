"""Tenants with salts of their own before a real engine: llama-server ignores salts, vLLM does not.

    PREFIXSCOPE_LLAMA_SERVER=… PREFIXSCOPE_LLAMA_MODEL=… python -m tests.engine.two_tenants OUT

records what the tap wrote (hashes, no token ids) and, beside it, what is true by the raw ids.
"""

import json
import os
import random
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.running import PROGRAM, free_port, get, running, wait_for
from tests.unit_isolation.told import Told
from tests.unit_tap.scripted import rows_in, until

SERVER, MODEL = (os.environ.get(f"PREFIXSCOPE_LLAMA_{name}") for name in ("SERVER", "MODEL"))
REPLICA = "llama-0"


def asked() -> list[tuple[str, list[int]]]:
    """Salts and prompts of token ids, in order: a prompt of 500 that all have in common."""
    draw = random.Random(7)
    shared = [draw.randrange(10, 4000) for _ in range(500)]
    other = [draw.randrange(10, 4000) for _ in range(300)]
    return [
        ("acme", shared),
        ("birch", shared),  # its first: all of it is another's
        ("birch", shared),  # its own by now
        ("cedar", other),
        ("cedar", shared),  # all of it is another's again, and cedar had sent something before
        ("cedar", [*shared[:203], *other]),  # its own
        ("", [*shared, *other[:77]]),  # without a salt, which is a scope too
    ]


@contextmanager
def llama_server(folder: Path) -> Iterator[str]:
    """The address of a llama-server."""
    port = free_port()
    server, log = f"http://127.0.0.1:{port}", folder / "llama.log"
    start = [str(SERVER), "-m", str(MODEL), "--alias", "tiny", "--host", "127.0.0.1", "--port",
             str(port), "-np", "4", "-c", "8192"]  # fmt: skip
    with running(start, log) as process:
        wait_for("llama-server", lambda: b"ok" in get(f"{server}/health"), 120, process, log)
        yield server


@contextmanager
def tap_before(server: str, folder: Path) -> Iterator[str]:
    """The address of a tap in front of a server, which hashes prompts."""
    port = free_port()
    tap, log = f"http://127.0.0.1:{port}", folder / "proxy.log"
    settings = {"HASHES": "all", "REPLICA": REPLICA}
    start = ["env", *(f"PREFIXSCOPE_TAP_{name}={value}" for name, value in settings.items()),
             PROGRAM, "tap", "--upstream", server, "--listen", f"127.0.0.1:{port}",
             "--out", str(folder / "tap.ndjson")]  # fmt: skip
    with running(start, log) as process:
        wait_for("tap", lambda: get(f"{tap}/health") is not None, 60, process, log)
        yield tap


def ask_all(tap: str, folder: Path) -> list[Told]:
    """Every request, one after the other, until its row is written."""
    told: list[Told] = []
    before: list[tuple[str, list[int]]] = []
    for number, (tenant, prompt) in enumerate(asked()):
        answer = _ask(tap, tenant, prompt)
        own = [_agreed(prompt, ids) for name, ids in before if name == tenant]
        told.append(
            Told(
                tenant,
                answer["usage"]["prompt_tokens"],
                (answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0),
                max(own, default=0),
            )
        )
        before.append((tenant, prompt))
        until(lambda count=number + 1: len(rows_in(folder)) == count)
    return told


def _ask(tap: str, tenant: str, prompt: list[int]) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 4, "temperature": 0}
    if tenant:
        body["cache_salt"] = f"salt of {tenant}"
    request = urllib.request.Request(
        f"{tap}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "x-prefixscope-tenant": tenant or "no salt"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return dict(json.loads(reply.read()))


def _agreed(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def main(out: Path) -> None:
    """Record into a folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with llama_server(folder) as server, tap_before(server, folder) as tap:
            told = ask_all(tap, folder)
        out.mkdir(parents=True, exist_ok=True)
        (out / "tap.ndjson").write_bytes((folder / "tap.ndjson").read_bytes())
    lines = [json.dumps(asdict(one)) for one in told]
    (out / "told.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
