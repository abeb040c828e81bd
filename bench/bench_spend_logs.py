"""A table of 2 M spend logs in a real PostgreSQL on loopback, read into a store.

Against the same rows in one file, written by the copy of docs/spend-logs.md, in the same run. The
server shares the machine; beside the time stand the CPU seconds of the reading process alone. Needs
the extra postgres and PostgreSQL's programs.
"""

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.unit_spend_logs.litellm_tables import ERAS, create
from tests.unit_spend_logs.server import OWNER_PASSWORD, Server, running_server

DATABASE = "postgres"
ROWS_AT_ONCE = 250_000
# Rows of LiteLLM repeat much that no field of ours is made of.
_STATIC = {
    "user_api_key": "b" * 64, "user_api_key_alias": "support-production", "applied_guardrails": [],
    "user_agent": "openai-python/2.1.0", "requester_ip_address": "10.1.2.3", "status": None,
    "cost_breakdown": {"input_cost": 0.0012, "output_cost": 0.0044, "total_cost": 0.0056,
                       "tool_usage_cost": 0.0, "original_cost": 0.0056, "discount_percent": 0.0},
    "model_map_information": {"model_map_key": "claude-sonnet-4-5", "model_map_value": None},
    "guardrail_information": None, "mcp_tool_call_metadata": None, "batch_models": None,
    "vector_store_request_metadata": None, "cold_storage_object_key": None,
    "attempted_retries": 0, "max_retries": 2, "attempted_fallbacks": 0,
}  # fmt: skip
_GENERATE = """
INSERT INTO "LiteLLM_SpendLogs" (request_id, litellm_call_id, call_type, api_key, spend,
    total_tokens, prompt_tokens, completion_tokens, "startTime", "endTime", "completionStartTime",
    request_duration_ms, model, model_id, model_group, custom_llm_provider, api_base, "user",
    cache_hit, team_id, session_id, status, request_tags, metadata)
SELECT 'chatcmpl-' || md5(i::text), md5('c' || i)::uuid::text, 'acompletion', repeat('b', 64),
    0.0056, prompt + 200, prompt, 200, at, at + interval '2.5 s', at + interval '0.4 s',
    2500, 'claude-sonnet-4-5', 'deployment-' || i % 8, 'assistant', 'anthropic',
    'https://api.example.com', 'user-' || i % 500, 'False', 'team-' || i % 40, 's-' || i / 6,
    'success', '["User-Agent: openai-python"]', $3::text::jsonb || jsonb_build_object(
        'litellm_call_id', md5('c' || i)::uuid::text,
        'usage_object', jsonb_build_object('prompt_tokens', prompt, 'completion_tokens', 200,
            'total_tokens', prompt + 200, 'prompt_tokens_details', jsonb_build_object(
                'cached_tokens', prompt / 2, 'cache_creation_tokens', 64, 'text_tokens', 21)),
        'additional_usage_values', jsonb_build_object('cache_read_input_tokens', prompt / 2,
            'cache_creation_input_tokens', 64))
FROM (SELECT i, 1000 + i % 7000 AS prompt,
    (now() AT TIME ZONE 'UTC') - interval '20 days' + i * interval '0.8 s' AS at
    FROM generate_series($1::int, $2::int) AS i) AS made"""
COPY = """COPY (SELECT to_jsonb(s) - '{messages,response,proxy_server_request}'::text[]
    FROM "LiteLLM_SpendLogs" AS s ORDER BY "startTime")
    TO STDOUT (FORMAT csv, QUOTE e'\\x01', DELIMITER e'\\x02')"""


async def fill(server: Server, count: int, file: Path) -> None:
    """The table, then the same rows as a file."""
    import asyncpg

    connection = await asyncpg.connect(server.address(DATABASE, "owner"), password=OWNER_PASSWORD)
    await connection.execute(create("LiteLLM_SpendLogs", ERAS["2026-11"].spend_logs))
    for columns in ERAS["2026-11"].indexed:
        await connection.execute(f'CREATE INDEX ON "LiteLLM_SpendLogs" ({columns})')
    for first in range(1, count + 1, ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE - 1, count)
        await connection.execute(_GENERATE, first, last, json.dumps(_STATIC), timeout=600)
    await connection.execute('VACUUM ANALYZE "LiteLLM_SpendLogs"', timeout=600)
    await connection.close()
    environment = os.environ | {"PGPASSWORD": OWNER_PASSWORD}
    with file.open("wb") as out:
        psql = ["psql", server.address(DATABASE, "owner"), "-c", COPY]
        subprocess.run(psql, env=environment, stdout=out, check=True)


def measure(what: str, path: str) -> None:
    """One load in a process of its own; prints what it took as JSON."""
    from exporter.sources.intake import Intake
    from exporter.sources.spend_logs.intake import SpendLogReader
    from exporter.store.store import Store

    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(Path(directory))
        reader = SpendLogReader(store, path, source="bench") if what == "table" else None
        idle_bytes = peak_bytes()
        began, used = time.perf_counter(), time.process_time()
        if reader is not None:
            summary, problems = reader.run(), reader.problems
        else:
            with Path(path).open("rb") as file:
                summary, problems = Intake(store).ingest(file, source="bench"), []
        result = {
            "rows": summary.accepted,
            "prompt_tokens": summary.prompt_tokens,
            "cached_tokens": summary.cached_tokens,
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - used,
            "peak_bytes": peak_bytes(),
            "idle_bytes": idle_bytes,
            "problems": problems,
        }
        if reader is not None:
            began, used = time.perf_counter(), time.process_time()
            assert reader.run().accepted == 0
            result["again_seconds"] = time.perf_counter() - began
            result["again_cpu_seconds"] = time.process_time() - used
        store.close()
    print(json.dumps(result))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(what: str, path: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.bench_spend_logs", "--measure", what, path],
        env=os.environ | {"PGPASSWORD": OWNER_PASSWORD}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(count: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="prefixscope-bench-"))
    file = folder / "rows.jsonl"
    try:
        with running_server(folder) as server:
            began = time.perf_counter()
            asyncio.run(fill(server, count, file))
            print(f"made in {time.perf_counter() - began:.0f} s", flush=True)
            of_table = run("table", server.address(DATABASE, "owner"))
        report(count, file.stat().st_size, run("file", str(file)), of_table)
    finally:
        shutil.rmtree(folder)


def report(
    count: int, size_bytes: int, of_file: dict[str, float], of_table: dict[str, float]
) -> None:
    for name in ("rows", "prompt_tokens", "cached_tokens"):
        assert of_file[name] == of_table[name], (name, of_file[name], of_table[name])
    assert of_table["rows"] == count, of_table
    assert not of_table["problems"], of_table["problems"]
    print(f"{count:,} rows of {size_bytes / count:,.0f} bytes; the same rows and tokens")
    for name, result in (("table", of_table), ("one file", of_file)):
        print(
            f"{name:9} {result['seconds']:8.1f} s ({count / result['seconds']:,.0f} rows/s), "
            f"{result['cpu_seconds']:8.1f} s CPU ({result['cpu_seconds'] / count * 1e6:,.0f} µs "
            f"a row), peak {result['peak_bytes'] / 2**20:,.0f} MiB "
            f"({(result['peak_bytes'] - result['idle_bytes']) / 2**20:,.0f} above idle)"
        )
    print(
        f"table / file: {of_table['seconds'] / of_file['seconds']:.2f} x the time, "
        f"{of_table['cpu_seconds'] / of_file['cpu_seconds']:.2f} x the CPU, "
        f"{of_table['peak_bytes'] / of_file['peak_bytes']:.2f} x the memory"
    )
    print(
        f"pass without news: {of_table['again_seconds']:.1f} s, "
        f"{of_table['again_cpu_seconds']:.1f} s CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*arguments.measure)
    else:
        compare(arguments.rows)


if __name__ == "__main__":
    main()
