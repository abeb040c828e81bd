"""`backfill` as a process, ended by SIGKILL again and again, on six hours of real blocks.

The history is written by promtool; what it sums up to is counted beside it, scrape by scrape.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from exporter.store.store import Store
from tests.running import ENVIRONMENT, PROGRAM, ROOT
from tests.unit_prometheus.real_prometheus import MISSING, PROMETHEUS, PROMTOOL, prometheus

pytestmark = pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason=MISSING)

INTERVAL_SECONDS = 15
SCRAPES = 21_600 // INTERVAL_SECONDS
BEGAN = 1_796_000_000 - 3 * 86_400
PODS = ("vllm-0", "vllm-1")


def write_history(file: Path) -> dict[str, tuple[int, int, int]]:
    """Two engines for six hours, with restarts, failures and a hole; what each one counted: prompt
    and cached tokens, restarts."""
    rng = random.Random(5)
    told: dict[str, tuple[int, int, int]] = {}
    series: dict[str, list[str]] = {
        name: [] for name in ("up", "process_start_time_seconds", "vllm:prompt_tokens_total",
                              "vllm:prompt_tokens_cached_total")
    }  # fmt: skip
    for number, pod in enumerate(PODS):
        prompt = cached = prompt_sum = cached_sum = restarts = 0
        started, first = BEGAN - 1000, True
        labels = f'job="vllm",instance="10.0.0.{number}:8000",pod="{pod}"'
        model = f'{labels},engine="0",model_name="m"'
        hole = range(800, 800 + 200 * number)
        for scrape in range(SCRAPES):
            unix = BEGAN + scrape * INTERVAL_SECONDS + number
            if scrape in hole:
                continue
            chance = rng.random()
            if chance < 0.0016 and not first:
                prompt, cached, started, restarts = 0, 0, unix - 3, restarts + 1
            if chance > 0.996:
                series["up"].append(f"up{{{labels}}} 0 {unix}")
                continue
            new = rng.randrange(4000)
            hit = new * 2 // 3
            prompt, cached = prompt + new, cached + hit
            if not first:
                prompt_sum, cached_sum = prompt_sum + new, cached_sum + hit
            first = False
            series["up"].append(f"up{{{labels}}} 1 {unix}")
            values = (started, prompt, cached)
            for name, value in zip(list(series)[1:], values, strict=True):
                own = model if name.startswith("vllm") else labels
                series[name].append(f"{name}{{{own}}} {value} {unix}")
        told[pod] = (prompt_sum, cached_sum, restarts)
    lines = [line for name, rows in series.items() for line in (f"# TYPE {name} gauge", *rows)]
    file.write_text("\n".join([*lines, "# EOF", ""]))
    return told


def sums(folder: Path) -> dict[str, tuple[int, int, int]]:
    store = Store.open(folder)
    rows = store.cursor().execute(
        "SELECT replica, sum(prompt_tokens)::BIGINT, sum(cached_tokens)::BIGINT,"
        " sum(reset::INTEGER)::BIGINT FROM engine_samples GROUP BY replica"
    )
    told = {row[0]: row[1:] for row in rows.fetchall()}
    store.close()
    return told


def everything(folder: Path) -> list[tuple[object, ...]]:
    store = Store.open(folder)
    rows = store.cursor().execute("FROM engine_samples ORDER BY target, ts, replica").fetchall()
    store.close()
    return rows


def command(address: str, store: Path, every: int) -> list[str]:
    return [
        PROGRAM, "backfill", "--prometheus", address, "--store", str(store), "--every", str(every),
        "--since", f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(BEGAN - 86_400))}",
        "--until", f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(BEGAN + 86_400))}",
    ]  # fmt: skip


def run(arguments: list[str], kill_after: float | None = None) -> bool:
    """Whether it came to its end; else it was killed."""
    process = subprocess.Popen(
        arguments, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=kill_after or 400)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    assert process.returncode == 0, output.decode()
    return True


def killed_again_and_again(arguments: list[str], seconds: float) -> int:
    """How often it was killed before it came to its end. Each try gets a little further; the last
    one has the time it needs."""
    rng = random.Random(7)
    for deaths in range(4):
        if run(arguments, rng.uniform(0.3, 0.8) * seconds):
            return deaths
    assert run(arguments)
    return 4


def test_killed_again_and_again_is_the_same(tmp_path: Path) -> None:
    expected = write_history(tmp_path / "history.txt")
    server = tmp_path / "server"
    subprocess.run(
        [str(PROMTOOL), "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "history.txt"),
         str(server / "data")], check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    with prometheus(server, {}) as address:
        began = time.monotonic()
        assert run(command(address, tmp_path / "whole", 0))
        seconds = time.monotonic() - began
        assert run(command(address, tmp_path / "thin", 600))
        while killed_again_and_again(command(address, tmp_path / "killed", 0), seconds) == 0:
            # The machine was slower while it was measured than it is now.
            shutil.rmtree(tmp_path / "killed")
            seconds /= 2
    assert sums(tmp_path / "whole") == expected
    assert sums(tmp_path / "thin") == expected
    assert everything(tmp_path / "killed") == everything(tmp_path / "whole")
    assert len(everything(tmp_path / "thin")) < len(everything(tmp_path / "whole")) / 5
