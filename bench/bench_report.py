"""The weekly report of a large store against one full scan of its request rows.

The scan reads every column of every row once (the xor of their hashes). Both run on the same
store, in turns, in this process. Rows are put into the table by SQL, because how they came does
not matter to a reader; the store has its ordinary settings, its memory limit included.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from dashboard.report import FORMATS, Week, build, render
from exporter.store.store import Store
from prefixscope.client import OpenStore

END = datetime(2026, 11, 30, tzinfo=UTC)  # a Monday
BAR = 20.0
CHUNK_ROWS = 100_000

# Everything follows from the number of the row: the same rows in every run. Five of seven prompts
# hit, tenants are heavy-tailed, 3 % of the rows do not report cached tokens.
_ROWS = """
INSERT INTO requests BY NAME
SELECT
    make_timestamp($since_us + i * $step_us) AS ts, ts AS arrived,
    'bench' AS source, 'ndjson' AS source_format,
    'req-' || to_hex(i) AS request_id, 1 AS attempt,
    'session-' || i // 6 AS session, (i % 6 + 1)::INTEGER AS turn,
    'replica-' || h % 4 AS replica, 'unified' AS replica_role, 'vllm' AS provider,
    'model-' || template_number % 2 AS model, 'route-' || template_number % 6 AS route,
    'template-' || template_number AS template, 'v' || template_number % 3 AS template_version,
    'tenant-' || (300 * pow(h // 64 % 1000 / 1000.0, 3))::INTEGER AS tenant,
    (400 + h // 7 % 11600)::BIGINT AS prompt_tokens,
    CASE
        WHEN h % 100 < 3 THEN NULL
        WHEN h % 7 < 5 THEN (prompt_tokens - 1) // 16 * 16
        WHEN h % 7 = 5 THEN prompt_tokens // 32 * 16
        ELSE 0
    END::BIGINT AS cached_tokens,
    (1 + h // 11 % 600)::BIGINT AS output_tokens,
    0.05 + (prompt_tokens - coalesce(cached_tokens, 0)) / 9000.0 * (0.9 + h // 13 % 400 / 1000.0)
        AS ttft_seconds,
    'gateway' AS ttft_point, h // 17 % 50 / 1000.0 AS queue_seconds,
    ttft_seconds * 0.9 AS prefill_seconds, ttft_seconds + 2 AS e2e_seconds,
    true AS stream, 'ok' AS status,
    CASE
        WHEN cached_tokens IS NULL THEN 'unknown'
        WHEN cached_tokens = 0 THEN 'miss'
        WHEN cached_tokens >= 0.8 * prompt_tokens THEN 'hit'
        ELSE 'partial'
    END AS outcome,
    'inclusive' AS prompt_basis, 16 AS block_size, [] AS flags, $batch AS batch, i AS position
FROM (
    SELECT i, hash(i) AS h, least(floor(-ln((h % 10007 + 1) / 10008.0) / 0.4), 11)::INTEGER
        AS template_number
    FROM range($first::BIGINT, $last::BIGINT) r(i)
)
"""
_SAMPLES = """
INSERT INTO engine_samples BY NAME
SELECT
    'replica-' || r AS target, target AS replica, 'vllm' AS engine, 'model-' || r % 2 AS model,
    'unified' AS role, ts - INTERVAL 1 MINUTE AS since, ts, false AS reset, false AS gap,
    (1000000 + hash(ts) % 1000)::BIGINT AS prompt_tokens, 720000::BIGINT AS cached_tokens,
    (hash(ts) % 8)::BIGINT AS running_requests, 0::BIGINT AS waiting_requests,
    (hash(ts) % 900) / 1000.0 AS kv_usage_ratio, 400000::BIGINT AS kv_capacity_tokens,
    16 AS block_size, true AS caching_enabled, true AS awake
FROM range($since::TIMESTAMP, $until::TIMESTAMP, INTERVAL 1 MINUTE) t(ts), range(4) s(r)
"""


def fill(store: Store, rows: int, weeks: int) -> None:
    """So many rows, evenly over so many weeks before END, with their roll-ups, and a sample a
    minute of 4 replicas."""
    since = END - timedelta(weeks=weeks)
    step_us = int((END - since) / timedelta(microseconds=1)) // rows
    times = {"since_us": int(since.timestamp() * 1e6), "step_us": step_us}
    for first in range(0, rows, CHUNK_ROWS):
        last = min(first + CHUNK_ROWS, rows)
        with store.write() as cursor:
            cursor.execute(_ROWS, {**times, "first": first, "last": last, "batch": last})
        store.added(last, last - first)
    with store.write() as cursor:
        border = {"since": since.replace(tzinfo=None), "until": END.replace(tzinfo=None)}
        cursor.execute(_SAMPLES, border)


def scan(cursor: duckdb.DuckDBPyConnection) -> None:
    """Read every column of every row once."""
    cursor.execute("SELECT bit_xor(hash(COLUMNS(*))) FROM requests").fetchall()


def report(store: Store, week: Week) -> int:
    """Build it and write it all three ways; returns the bytes of the HTML."""
    made = build(OpenStore(store), week)
    assert made.headline.token_hit_ratio is not None
    sizes = {form: len(render(made, form)) for form in FORMATS}
    return sizes["html"]


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--weeks", type=int, default=6, help="over which they are spread")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(Path(directory))
        fill(store, arguments.rows, arguments.weeks)
        week = Week.of(END - timedelta(days=1), "UTC")
        ratios: list[tuple[float, float]] = []
        for _ in range(arguments.rounds):
            base = timed(lambda: scan(store.cursor()))
            ours = timed(lambda: report(store, week))
            ratios.append((ours[0] / base[0], ours[1] / base[1]))
            print(
                f"scan {base[0]:.2f} s ({base[1]:.2f} CPU)  "
                f"report {ours[0]:.2f} s ({ours[1]:.2f} CPU)"
            )
        size = report(store, week)
        store.close()
    wall, cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(
        f"{arguments.rows:,} rows in {arguments.weeks} weeks: ratio {wall:.1f} wall, {cpu:.1f} CPU "
        f"(bar {BAR:g}); HTML of {size:,} bytes"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak {peak:.0f} MB, the scan's included")


if __name__ == "__main__":
    main()
