"""Memory, threads and time zones: limits hold, readers do not meet, hours are UTC hours."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from exporter.store.store import Store, StoreSettings
from tests.log_path import ask, hit_ratio, load

THREADS, QUERIES = 20, 15


def _many(start: int, rows: int) -> bytes:
    line = (
        '{"request_id":"request-%08d-of-many","ts":%d,"tenant":"tenant-%03d","model":"m",'
        '"prompt_tokens":%d,"cached_tokens":%d,"output_tokens":10,"session":"session-%06d"}\n'
    )
    return "".join(
        line % (n, 1772452800 + n // 50, n % 150, 1000 + n % 7, n % 1000, n // 4)
        for n in range(start, start + rows)
    ).encode()


def test_t72_large_load_stays_in_its_memory_and_spills_beside_the_data(tmp_path: Path) -> None:
    settings = StoreSettings(memory_limit="200MB")
    store = Store.open(tmp_path / "store", settings)
    cursor = store.cursor()
    spill, limit = cursor.execute(
        "SELECT current_setting('temp_directory'), current_setting('memory_limit')"
    ).fetchone() or ("", "")  # fmt: skip
    assert Path(spill).parent == store.directory
    assert limit == "190.7 MiB"
    for part in range(3):
        load(store, _many(part * 50_000, 50_000), origin="http", format="auto")
    again = load(store, _many(50_000, 50_000), origin="http", format="auto")
    assert again.duplicate == 50_000
    figures = hit_ratio(store)
    assert figures["requests"] == 150_000
    assert figures["prompt_tokens"] == sum(1000 + n % 7 for n in range(150_000))
    assert figures["cached_tokens"] == sum(n % 1000 for n in range(150_000))
    used = cursor.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchone()
    assert used is not None
    assert used[0] < 200e6
    store.close()


def test_t74_every_thread_has_its_own_cursor(store: Store) -> None:
    tenants = [f"t{n}" for n in range(THREADS)]
    load(store, [
        {"request_id": f"{n}-{i}", "ts": 1772452800, "tenant": tenant, "prompt_tokens": 1000,
         "cached_tokens": 0, "ttft_s": 1.0 + n}
        for n, tenant in enumerate(tenants) for i in range(n + 1)
    ])  # fmt: skip
    right: list[int] = []
    wrong: list[object] = []

    def visit(number: int) -> None:
        try:
            for _ in range(QUERIES):
                (answer,) = ask(store, "ttft_dose", tenant=tenants[number])
                if (answer["requests"], answer["p50_seconds"]) == (number + 1, 1.0 + number):
                    right.append(number)
                else:
                    wrong.append(answer)
        except Exception as error:  # noqa: BLE001  # a thread must not swallow it
            wrong.append(error)

    threads = [threading.Thread(target=visit, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for n in range(3):
        load(store, [{"request_id": f"w{n}", "ts": 1772452800, "prompt_tokens": 1}], origin="http")
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(right) == THREADS * QUERIES


def test_writers_of_several_threads_take_turns(store: Store) -> None:
    def write(number: int) -> None:
        for n in range(5):
            row = {"request_id": f"{number}-{n}", "ts": 1772452800, "prompt_tokens": 10}
            load(store, [row], origin="http")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.fold()
    assert hit_ratio(store)["requests"] == 30
    (rolled,) = store.cursor().execute("SELECT sum(requests) FROM hour_rollup").fetchone() or (0,)
    assert rolled == 30


ANSWERS = """
import json, sys
from pathlib import Path
from tests.log_path import SMALL, ask, load
from exporter.store.store import Store
store = Store.open(Path(sys.argv[1]) / "store", SMALL)
times = ["2026-03-02T23:30:00Z", "2026-03-03T08:30:00+09:00", 1772497800, "2026-03-02 23:59:59.5",
         "2026-03-08T02:30:00-05:00", "2026-10-25T01:30:00Z"]
load(store, [{"request_id": str(n), "ts": ts, "prompt_tokens": 100, "cached_tokens": 10 * n,
              "tenant": "t", "ttft_s": 0.1 + n, "e2e_s": 99} for n, ts in enumerate(times)])
day = {"since": "2026-03-02", "until": "2026-03-03"}
rollups = store.cursor().execute(
    "SELECT hour::VARCHAR, requests, cached_tokens FROM hour_rollup ORDER BY ALL")
print(json.dumps([
    ask(store, "hit_ratio", **day), ask(store, "hit_ratio", by="tenant"),
    ask(store, "hit_ratio_over_time", step_seconds=86400), ask(store, "ttft_by_outcome"),
    [{k: v for k, v in row.items() if k != "arrived"} for row in ask(store, "requests")],
    rollups.fetchall(),
]))
store.close()
"""


def test_t78_answers_do_not_depend_on_the_zone_of_the_machine(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    running = {}
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        (tmp_path / zone).mkdir(parents=True)
        running[zone] = subprocess.Popen(
            [sys.executable, "-c", ANSWERS, str(tmp_path / zone)],
            cwd=root,
            env={**os.environ, "TZ": zone, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
        )
    answers = {zone: process.communicate()[0] for zone, process in running.items()}
    assert [process.returncode for process in running.values()] == [0, 0, 0]
    assert answers["UTC"] == answers["Asia/Tokyo"] == answers["America/New_York"]
    (day,), *_, rollups = json.loads(answers["UTC"])
    assert (day["requests"], day["cached_tokens"]) == (3, 0 + 10 + 30)
    assert [hour for hour, *_ in rollups] == [
        "2026-03-02 23:00:00", "2026-03-03 00:00:00", "2026-03-08 07:00:00", "2026-10-25 01:00:00",
    ]  # fmt: skip
