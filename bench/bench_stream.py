"""A live stream: batches of 500 rows, one transaction each, into one store.

Bars: at least 20,000 rows/s over all, the last quarter at least 0.7 times the first, no batch
longer than one second. Rows are made beforehand, so that only the store is measured. CPU time
tells what the machine's other work does not change.
"""

import argparse
import io
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

from bench.logs import rows
from exporter.sources.formats import format_named
from exporter.sources.lines import LineReader
from exporter.store.append import Stream, append
from exporter.store.store import Store

BATCH_ROWS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    stream = Stream("bench", format_named("ndjson"))
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    made = rows(arguments.rows)
    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(Path(directory))
        while batch := list(itertools.islice(made, BATCH_ROWS)):
            body = io.BytesIO("".join(json.dumps(row) + "\n" for row in batch).encode())
            [lines] = LineReader(body)
            start, cpu_start = time.perf_counter(), time.process_time()
            append(store, lines, stream)
            seconds.append(time.perf_counter() - start)
            cpu_seconds.append(time.process_time() - cpu_start)
        store.close()
    quarter = max(1, len(seconds) // 4)
    first, last = sum(seconds[:quarter]), sum(seconds[-quarter:])
    ordered = sorted(seconds)
    print(f"{arguments.rows:,} rows: {arguments.rows / sum(seconds):,.0f} rows/s (bar 20,000)")
    print(f"last quarter {first / last:.2f} x the first (bar 0.7)")
    print(
        f"CPU: {arguments.rows / sum(cpu_seconds):,.0f} rows/s, batch p50 "
        f"{statistics.median(cpu_seconds) * 1e3:.0f} ms, longest {max(cpu_seconds):.2f} s"
    )
    print(
        f"batch p50 {statistics.median(ordered) * 1e3:.0f} ms, "
        f"p99 {ordered[int(len(ordered) * 0.99)] * 1e3:.0f} ms, longest {ordered[-1]:.2f} s (bar 1)"
    )


if __name__ == "__main__":
    main()
