"""20 clients asking an exporter over HTTP while rows arrive; and what that does to the writer.

The exporter is a process of its own. A first load fills its store, then rows are posted in
batches: alone, and again with the clients asking. Clients are threads of this one process, so
part of every time is theirs.
"""

import argparse
import itertools
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from bench.logs import rows, write_log

ARROW = "application/vnd.apache.arrow.stream"
QUESTIONS = (
    ("hit_ratio", {"by": "tenant", "since": "24h"}),
    ("hit_ratio_over_time", {"since": "24h"}),
    ("ttft_by_outcome", {"since": "24h"}),
    ("movers", {"by": "template", "since": "1h"}),
)
BATCH_ROWS = 500


@contextmanager
def exporter(folder: Path) -> Iterator[str]:
    """`prefixscope serve` on a fresh store; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    settings = {
        "PREFIXSCOPE_SERVER__LISTEN": address,
        "PREFIXSCOPE_STORE__DIRECTORY": str(folder),
    }
    command = [sys.executable, "-m", "prefixscope", "serve"]
    process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                if requests.get(f"http://{address}/-/ready", timeout=5).ok:
                    break
            except requests.ConnectionError:
                time.sleep(0.1)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(60)


def batches(seed: int) -> Iterator[bytes]:
    """Endless batches of fresh rows."""
    endless = (row for part in itertools.count(seed) for row in rows(20_000, seed=part + 100))
    while True:
        lines = (json.dumps(row) + "\n" for row in itertools.islice(endless, BATCH_ROWS))
        yield "".join(lines).encode()


def post_for(url: str, seconds: float, seed: int) -> float:
    """Rows per second taken in by the exporter; building the batches is not counted."""
    session, taken, spent = requests.Session(), 0, 0.0
    for body in batches(seed):
        began = time.perf_counter()
        answer = session.post(f"{url}/v1/requests?source=bench&format=ndjson", body, timeout=60)
        spent += time.perf_counter() - began
        assert answer.status_code == 200, answer.text
        taken += answer.json()["accepted"]
        if spent >= seconds:
            return taken / spent
    raise AssertionError("batches never end")


class Clients:
    """Threads that ask in turn until told to stop, and how long each answer took."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.seconds: dict[str, list[float]] = {name: [] for name, _ in QUESTIONS}
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(count)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, first: int) -> None:
        session = requests.Session()
        for turn in itertools.count(first):
            if self._stop.is_set():
                return
            name, params = QUESTIONS[turn % len(QUESTIONS)]
            began = time.perf_counter()
            answer = session.get(
                f"{self._url}/api/v1/query/{name}", params=params, headers={"Accept": ARROW},
                timeout=60,
            )  # fmt: skip
            spent = time.perf_counter() - began
            assert answer.status_code == 200, answer.text
            with self._lock:
                self.seconds[name].append(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="rows in the store at the start")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15, help="of posting, each time")
    arguments = parser.parse_args()
    print(f"{arguments.rows:,} rows, {arguments.clients} clients, batches of {BATCH_ROWS} rows, "
          f"{os.cpu_count()} CPUs, Python {platform.python_version()}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, exporter(Path(folder) / "store") as url:
        log = write_log(Path(folder) / "log.jsonl", arguments.rows)
        with log.open("rb") as file:
            answer = requests.post(
                f"{url}/v1/requests?source=bench&format=ndjson&input=file", file, timeout=600
            )
        assert answer.json()["accepted"] == arguments.rows, answer.text
        alone = post_for(url, arguments.seconds, seed=1)
        with Clients(url, arguments.clients) as clients:
            beside = post_for(url, arguments.seconds, seed=1_000_000)
    everything = sorted(itertools.chain.from_iterable(clients.seconds.values()))
    for name, seconds in [*clients.seconds.items(), ("all", everything)]:
        cuts = statistics.quantiles(seconds, n=100)
        print(f"{name}: {len(seconds)} answers, p50 {cuts[49] * 1000:.0f} ms, "
              f"p95 {cuts[94] * 1000:.0f} ms")  # fmt: skip
    print(f"writer alone {alone:,.0f} rows/s, beside the clients {beside:,.0f} rows/s: "
          f"{alone / beside:.2f} times slower")  # fmt: skip


if __name__ == "__main__":
    main()
