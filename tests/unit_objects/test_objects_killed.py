"""Reading a prefix is killed at random moments: nothing is lost, nothing counts twice."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.sources.objects.intake import ObjectReader
from exporter.store.store import Store
from tests.log_path import SMALL
from tests.running import ENVIRONMENT, ROOT, eventually
from tests.unit_objects.conftest import Bucket
from tests.unit_objects.object_rows import packed, prompts, row, without_id
from tests.unit_objects.s3_front import Front

CHILD = """
import sys
from pathlib import Path
from exporter.sources.objects.place import ObjectSettings
from exporter.sources.objects.intake import ObjectReader
from exporter.store.store import Store

store = Store.open(Path(sys.argv[1]))
settings = ObjectSettings(concurrency=2, memory_bytes=1 << 20)
reader = ObjectReader(store, sys.argv[2], source="bucket", settings=settings)
print("reading", flush=True)
reader.run()
store.close()
"""
KILLS = 4
OBJECTS = 60
ROWS_AN_OBJECT = 40


def _wait_for_ten_more(front: Front, process: subprocess.Popen[bytes]) -> None:
    """Objects it fetches; it may come to its end before."""
    wanted = len(front.gets) + 10
    eventually("fetch", lambda: len(front.gets) >= wanted or process.poll() is not None)


@pytest.mark.parametrize("seed", [20260302])
def test_t71_kill_loses_and_doubles_no_object(
    front: Front, bucket: Bucket, tmp_path: Path, seed: int
) -> None:
    moments = random.Random(seed)
    numbers = range(OBJECTS * ROWS_AN_OBJECT)
    for index in range(OBJECTS):
        some = numbers[index * ROWS_AN_OBJECT : (index + 1) * ROWS_AN_OBJECT]
        rows = [(without_id if n % 3 == 0 else row)(n) | {"note": "x" * 900} for n in some]
        bucket.put(f"{index:03}", packed(*rows))
    directory, path = tmp_path / "killed", f"s3://{bucket.name}/"
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(directory), path],
            stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT | aws,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"reading\n"
        _wait_for_ten_more(front, process)
        time.sleep(moments.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()
    store = Store.open(directory, SMALL)
    ObjectReader(store, path, source="bucket").run()
    assert prompts(store) == [100 + n for n in numbers]
    store.close()
