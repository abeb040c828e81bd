"""Following is killed at random moments: nothing is lost, nothing counts twice."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import Tailer
from exporter.store.store import Store
from tests.running import ENVIRONMENT, ROOT

CHILD = """
import sys, time
from pathlib import Path
from exporter.sources.log_settings import LogSettings
from exporter.sources.tail import Tailer
from exporter.store.store import Store

store = Store.open(Path(sys.argv[1]))
tailer = Tailer(store, LogSettings(source="gateway", path=sys.argv[2]), poll_seconds=0.001)
tailer.start()
print("following", flush=True)
while tailer.alive:
    time.sleep(0.1)
"""
KILLS = 10
ROWS_A_ROUND = 100


def _line(number: int) -> bytes:
    """Every third row has no id. Row n has n prompt tokens, half of them cached."""
    row: dict[str, object] = {"prompt_tokens": number, "cached_tokens": number // 2}
    if number % 3:
        row["request_id"] = f"r{number}"
    return json.dumps(row).encode() + b"\n"


@pytest.mark.parametrize("seed", [20260302])
def test_t71_kill_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    directory, log = tmp_path / "store", tmp_path / "app.log"
    written = 0
    for turn in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(directory), f"{log}*"],
            stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"following\n"
        # The moment is anywhere in the round, often in the middle of a transaction.
        last = moments.randrange(ROWS_A_ROUND)
        for place in range(ROWS_A_ROUND):
            written += 1
            line = _line(written)
            cut = moments.randrange(len(line))
            with log.open("ab", buffering=0) as file:
                file.write(line[:cut])
                file.write(line[cut:])
            if place == last:
                time.sleep(moments.uniform(0, 0.05))
                process.send_signal(signal.SIGKILL)
                process.wait(60)
        process.stdout.close()
        if turn % 2 == 1:
            log.rename(tmp_path / f"app.log.{turn}")
    with_rest = Store.open(directory)
    tailer = Tailer(with_rest, LogSettings(source="gateway", path=f"{log}*"))
    tailer.poll_once()
    tailer.stop()
    with_rest.fold()
    cursor = with_rest.cursor()
    stored = cursor.execute("SELECT prompt_tokens FROM requests ORDER BY ALL").fetchall()
    assert [tokens for (tokens,) in stored] == list(range(1, written + 1))
    # 1,000 rows: 1 + … + 1000, and half of each rounded down: (500500 - 500) / 2.
    assert written == 1000
    for table in ("hour_rollup", "minute_rollup"):
        sums = f"SELECT sum(requests), sum(prompt_tokens), sum(cached_tokens) FROM {table}"
        assert cursor.execute(sums).fetchall() == [(1000, 500500, 250000)]
    files = sum(path.stat().st_size for path in tmp_path.glob("app.log*"))
    offsets = cursor.execute("SELECT sum(position), sum(lines) FROM offsets").fetchall()
    assert offsets == [(files, 1000)]
    with_rest.close()
