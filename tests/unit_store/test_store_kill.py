"""A writer that is killed at any moment leaves a prefix of its input, whole and counted once."""

import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from exporter.store.store import Store
from tests.log_path import SMALL, ndjson

KILLS = 6
ROWS = 40_000

# Reads ever more of the file, as a follower does, and says so after each batch.
WRITER = """
import io, sys
from pathlib import Path
from exporter.sources.intake import Intake
from exporter.store.store import Store, StoreSettings
lines = Path(sys.argv[2]).read_bytes().splitlines(keepends=True)
store = Store.open(Path(sys.argv[1]), StoreSettings(memory_limit="256MB"))
row = store.cursor().execute("SELECT max(lines) FROM offsets").fetchone()
done = row[0] or 0
intake = Intake(store)
while done < len(lines):
    done += 50
    data = b"".join(lines[:done])
    intake.ingest(io.BytesIO(data), source="log", format="ndjson")
    print(done, flush=True)
    if done % 250 == 0:
        store.cursor().execute("FORCE CHECKPOINT")
"""


def killed_writer(directory: Path, log: Path, batches: int, then_seconds: float) -> bool:
    """Runs a writer and kills it a moment after so many batches; True if it still wrote."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(log)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(batches):
        assert process.stdout.readline() != b"", "the writer writes"
    time.sleep(then_seconds)
    process.send_signal(signal.SIGKILL)
    status = process.wait(60)
    process.stdout.close()
    assert status in (0, -signal.SIGKILL)
    return status != 0


def check(directory: Path, log: Path) -> int:
    """The store opens, holds a prefix of the log, and everything in it agrees."""
    lines = log.read_bytes().splitlines(keepends=True)
    store = Store.open(directory, SMALL)
    cursor = store.cursor()
    ids = [row[0] for row in cursor.execute(
        "SELECT request_id FROM requests ORDER BY ts, request_id").fetchall()]  # fmt: skip
    kept = len(ids)
    assert ids == [f"r{n:05}" for n in range(kept)], "a prefix, nothing twice"
    offset = cursor.execute("SELECT position, lines FROM offsets").fetchall()
    assert offset == ([(sum(map(len, lines[:kept])), kept)] if kept else [])
    prompt = sum(100 + n for n in range(kept))
    for table in ("requests", "minute_rollup", "hour_rollup"):
        count = "count(*)" if table == "requests" else "coalesce(sum(requests), 0)"
        sums = cursor.execute(
            f"SELECT {count}, coalesce(sum(prompt_tokens), 0) FROM {table}"
        ).fetchone()  # fmt: skip
        assert sums == (kept, prompt), table
    accepted = cursor.execute("SELECT coalesce(sum(accepted), 0) FROM ingest_batches").fetchone()
    assert accepted == (kept,)
    counted = store.counters.snapshot()
    assert sum(row.prompt_tokens for row in counted.requests.values()) == prompt
    store.close()
    return kept


def test_t71_sigkill_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    moment = int(datetime.now(UTC).timestamp())
    log.write_bytes(ndjson(
        {"request_id": f"r{n:05}", "ts": moment + n / 1e6, "prompt_tokens": 100 + n,
         "cached_tokens": 0, "output_tokens": 1}
        for n in range(ROWS)
    ))  # fmt: skip
    chance = random.Random(71)
    kept, writing = [0], 0
    for n in range(KILLS):
        writing += killed_writer(tmp_path / "store", log, 1 + n % 4, chance.uniform(0.0, 0.15))
        kept.append(check(tmp_path / "store", log))
        assert kept[-1] >= kept[-2], "nothing that was committed is lost"
    assert writing == KILLS, "each was killed while it wrote"
    assert kept[-1] > KILLS * 50
