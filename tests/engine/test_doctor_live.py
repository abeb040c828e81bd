"""A real vLLM with and without the flag that makes answers name cached tokens: what doctor says,
and the way from `init` to answers. Run with `make test-engine`; everything is on loopback.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.live import ENGINE, needs_engine, running_vllm
from tests.running import ENVIRONMENT, PROGRAM, answer, free_port, running, wait_for

pytestmark = needs_engine
DETAILS = "--enable-prompt-tokens-details"


class Place:
    """A folder of its own with an engine and the log of a client; commands run in it."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder = folder
        self.engine = engine
        self.log = folder / "client.jsonl"
        workload = [sys.executable, str(ENGINE / "workload.py"), "--url", engine]
        subprocess.run(
            [*workload, "--out", str(self.log)], check=True, env=ENVIRONMENT, timeout=600
        )
        self.port = free_port()
        # The store and the port of the test; the file that init writes is not touched.
        self.overrides = {
            "PREFIXSCOPE_SERVER__LISTEN": f"127.0.0.1:{self.port}",
            "PREFIXSCOPE_STORE__DIRECTORY": str(folder / "store"),
        }

    def usages(self) -> list[dict[str, Any]]:
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["usage"] for line in lines]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *arguments], cwd=self.folder, env={**ENVIRONMENT, **self.overrides},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def doctor(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = self.run("doctor", *arguments, "--output", "json")
        assert done.stderr == "", done.stderr
        return done.returncode, json.loads(done.stdout)


def flags(told: dict[str, Any]) -> list[dict[str, str]]:
    """Warnings and faults."""
    return [f for f in told["findings"] if f["severity"] in ("warning", "fault")]


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Place]:
    """One engine at a time, ended before the next starts: the machine may be small."""
    with running_vllm(folder, *arguments) as engine:
        yield Place(folder, engine)


def test_without_the_flag_probe_and_log_name_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-enable-prompt-tokens-details") as place:
        _probe_names_it(place)
        _log_and_counters_name_it(place)


def _probe_names_it(place: Place) -> None:
    status, told = place.doctor("--target", place.engine, "--probe")
    (flag,) = flags(told)
    assert (status, flag["check"]) == (0, "usage-details")
    assert DETAILS in flag["fix"]
    assert place.doctor("--target", place.engine, "--probe", "--strict")[0] == 1


def _log_and_counters_name_it(place: Place) -> None:
    """Nobody is asked: the rows report none while the counters count."""
    assert not any(usage.get("prompt_tokens_details") for usage in place.usages())
    assert place.run("init", place.engine, str(place.log)).returncode == 0
    _, told = place.doctor("--config", "prefixscope.yml")
    (flag,) = flags(told)
    assert flag["check"] == "usage-details"
    assert DETAILS in flag["fix"]
    assert "while the engine counts" in flag["says"]
    assert told["level"] == 0


def test_with_the_flag_all_is_green_and_data_comes_unedited(tmp_path: Path) -> None:
    with serving(tmp_path) as place:
        _probe_is_green(place)
        _init_and_serve_bring_data(place)


def _probe_is_green(place: Place) -> None:
    status, told = place.doctor("--target", place.engine, "--probe", "--strict")
    assert (status, told["worst"]) == (0, "ok"), told
    (reached,) = [f for f in told["findings"] if f["check"] == "target-reachable"]
    assert reached["says"].startswith("vLLM 0.32.0: model tiny; ")


def _init_and_serve_bring_data(place: Place) -> None:
    done = place.run("init", place.engine, str(place.log))
    assert done.returncode == 0, done.stderr
    config, log = place.folder / "prefixscope.yml", place.folder / "exporter.log"
    settings = [f"{name}={value}" for name, value in place.overrides.items()]
    exporter = f"http://127.0.0.1:{place.port}"
    usages = place.usages()
    with running(["env", *settings, PROGRAM, "serve", "--config", str(config)], log) as process:

        def taken() -> bool:
            (state,) = answer(exporter, "store_state")
            return state["requests"] == len(usages) and state["engine_last_ts"] is not None

        wait_for("rows and pages", taken, 60, process, log)
        status, told = place.doctor("--config", "prefixscope.yml", "--strict")
        (ratio,) = answer(exporter, "hit_ratio")
    # The client's rows carry the token ids of their prompts, which make chains.
    assert (status, told["worst"], told["level"]) == (0, "ok", 3), told
    assert ratio["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in usages)
    assert ratio["cached_tokens"] == sum(
        usage["prompt_tokens_details"]["cached_tokens"] for usage in usages
    )
