"""A real vLLM, the real exporter scraping it, real requests: log and counters must agree.

Run with `make test-engine`. Everything listens on loopback and is stopped at the end.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.live import ENGINE, needs_engine, running_vllm
from tests.running import ENVIRONMENT, PROGRAM, answer, free_port, get, running, wait_for

pytestmark = needs_engine


@dataclass(frozen=True)
class Seen:
    """What the client of the workload saw, and the exporter that watched and was then told."""

    exporter: str
    requests: int
    prompt_tokens: int
    cached_tokens: int


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a vLLM with the tiny model, started for these tests."""
    with running_vllm(tmp_path_factory.mktemp("engine")) as address:
        yield address


def _config(folder: Path, engine: str, port: int) -> Path:
    file = folder / "prefixscope.yml"
    settings = {
        "store": {"directory": str(folder / "store")},
        "server": {"listen": f"127.0.0.1:{port}"},
        "scrape": {
            "interval_seconds": 1,
            "targets": {"static": [{"url": engine, "replica": "live"}]},
        },
    }
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return file


def _run_workload(engine: str, out: Path) -> list[dict[str, Any]]:
    """Send the mixed plan; the usage object of every reply."""
    command = [sys.executable, str(ENGINE / "workload.py"), "--url", engine, "--out", str(out)]
    subprocess.run(command, check=True, env=ENVIRONMENT, timeout=300)
    return [json.loads(line)["usage"] for line in out.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def seen(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Scrape first (the baseline), then the requests, then their log through `ingest`."""
    folder = tmp_path_factory.mktemp("exporter")
    port, log = free_port(), folder / "exporter.log"
    exporter, requests_log = f"http://127.0.0.1:{port}", folder / "requests.jsonl"
    command = [PROGRAM, "serve", "--config", str(_config(folder, engine, port))]
    with running(command, log) as process:
        wait_for("first scrape", lambda: bool(answer(exporter, "replicas")), 60, process, log)
        usages = _run_workload(engine, requests_log)
        ingest = [PROGRAM, "ingest", str(requests_log), "--url", exporter]
        subprocess.run(ingest, check=True, env=ENVIRONMENT, timeout=60)
        prompt_tokens = sum(usage["prompt_tokens"] for usage in usages)
        wait_for(
            "scrape of the last request",
            lambda: answer(exporter, "engine_hit_ratio")[0]["prompt_tokens"] == prompt_tokens,
            30, process, log,
        )  # fmt: skip
        yield Seen(exporter, len(usages), prompt_tokens, sum(map(_cached, usages)))


def _cached(usage: dict[str, Any]) -> int:
    """As reported: this vLLM names it on every reply, 0 included, and we would not guess."""
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def test_workload_reused_something(seen: Seen) -> None:
    assert seen.requests > 40
    assert 0 < seen.cached_tokens < seen.prompt_tokens


def test_log_side_is_exact(seen: Seen) -> None:
    (row,) = answer(seen.exporter, "hit_ratio")
    assert row["requests"] == seen.requests
    assert row["prompt_tokens"] == seen.prompt_tokens
    assert row["cached_tokens"] == seen.cached_tokens
    assert row["coverage_ratio"] == 1


def test_engine_side_agrees_to_the_token(seen: Seen) -> None:
    (row,) = answer(seen.exporter, "engine_hit_ratio?by=replica")
    assert row["replica"] == "live"
    assert row["prompt_tokens"] == seen.prompt_tokens
    assert row["cached_tokens"] == seen.cached_tokens
    assert row["computed_tokens"] == seen.prompt_tokens - seen.cached_tokens
    assert row["resets"] == 0


def test_metrics_page_shows_both_sides(seen: Seen) -> None:
    page = get(f"{seen.exporter}/metrics").decode()

    def total(name: str) -> float:
        lines = [line for line in page.splitlines() if line.startswith(name + "{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    assert total("prefixcache_prompt_tokens_total") == seen.prompt_tokens
    assert total("prefixcache_cached_tokens_total") == seen.cached_tokens
    assert total("prefixcache_engine_prompt_tokens_total") == seen.prompt_tokens
    assert total("prefixcache_engine_cached_tokens_total") == seen.cached_tokens
