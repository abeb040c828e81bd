"""Ingest of a log into the store against DuckDB's own typed `read_json` into a table.

Ours validates, de-duplicates, rolls up and counts; the baseline only reads and stores. Both
write a file database of their own, in turns, in this process.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from bench.logs import COLUMNS, write_log
from exporter.sources.intake import Intake
from exporter.store.store import Store


def ours(log: Path, directory: Path) -> None:
    store = Store.open(directory)
    with log.open("rb") as stream:
        summary = Intake(store).ingest(stream, source="bench", format="ndjson")
    assert summary.accepted > 0, summary
    store.close()


def baseline(log: Path, directory: Path) -> None:
    connection = duckdb.connect(str(directory / "baseline.duckdb"))
    connection.execute(
        "CREATE TABLE requests AS SELECT * FROM"
        f" read_json('{log}', format='newline_delimited', columns={COLUMNS})"
    )
    connection.close()


def timed(run: Callable[[Path, Path], None], log: Path) -> tuple[float, float]:
    """Wall and CPU seconds."""
    with tempfile.TemporaryDirectory() as directory:
        wall, cpu = time.perf_counter(), time.process_time()
        run(log, Path(directory))
        return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    log = write_log(arguments.directory / f"bench-{arguments.rows}.jsonl", arguments.rows)
    ratios: list[tuple[float, float]] = []
    for _ in range(arguments.rounds):
        base, own = timed(baseline, log), timed(ours, log)
        ratios.append((own[0] / base[0], own[1] / base[1]))
        print(
            f"baseline {base[0]:.2f} s ({base[1]:.2f} CPU)  ours {own[0]:.2f} s ({own[1]:.2f} CPU)"
        )
    wall, cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{arguments.rows:,} rows: ratio {wall:.2f} wall, {cpu:.2f} CPU (bar 1.5)")
    print(f"peak {peak:.0f} MB, the baseline's included")


if __name__ == "__main__":
    main()
