"""Every public trace at hand is taken in whole: rows and tokens as plain Python adds them up.

Traces tell no cached tokens, so their prompts count as unreported; TraceLab, which has the
provider's counters, is the exception. `EXPECTED.json` beside the traces says the same sums.
"""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.formats import trace_weka
from exporter.sources.intake import IngestSummary, Intake
from exporter.sources.packed import open_input
from exporter.store.store import Store
from tests.log_path import SHARED, hit_ratio, requests

TRACES = SHARED / "traces"
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the public traces are not beside the project"
)
MOONCAKE = sorted(TRACES.glob("mooncake-fast25/*.jsonl.gz"))
AZURE = sorted(TRACES.glob("azure-llm-2023/*.csv.gz"))
WEKA = sorted(TRACES.glob("claude-code-agentic/raw_sample/*.json.gz"))
WEKA_REQUESTS = TRACES / "claude-code-agentic" / "requests_rle.jsonl.gz"
LMCACHE = sorted(TRACES.glob("lmcache-agent/raw_text_sample/*.jsonl.gz"))
LMCACHE_BLOCKS = TRACES / "lmcache-agent" / "requests_hashed_256B.jsonl.gz"
TRACELAB = TRACES / "tracelab-sample" / "round_trace.jsonl.gz"


def expected(name: str) -> dict[str, Any]:
    sums: dict[str, Any] = json.loads((TRACES / "EXPECTED.json").read_text())[name]
    return sums


def unpacked(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in unpacked(path).splitlines()]


def take(store: Store, path: Path, source: str | None = None) -> IngestSummary:
    """As `prefixscope ingest` takes a file; its name is source and route."""
    named = source or path.name
    with path.open("rb") as raw:
        return Intake(store).ingest(
            open_input(raw), source=named, name=path.name, defaults={"route": named}
        )


def check(store: Store, path: Path, format: str, rows: int, prompt: int) -> None:
    """Ingest, then ask: all rows, all tokens, none reported. Once more: nothing new."""
    summary = take(store, path)
    assert (summary.format, summary.accepted, summary.rejected) == (format, rows, 0)
    assert summary.prompt_tokens == prompt
    again = take(store, path)
    assert (again.accepted, again.duplicate, again.conflicting) == (0, rows, 0)
    figures = hit_ratio(store, route=path.name)
    assert (figures["requests"], figures["prompt_tokens"]) == (rows, prompt)
    assert figures["reported_prompt_tokens"] == 0
    assert figures["token_hit_ratio"] is None
    assert figures["coverage_ratio"] == (0.0 if prompt else None)


@pytest.mark.parametrize("path", MOONCAKE, ids=lambda path: path.name)
def test_mooncake(shared_store: Store, path: Path) -> None:
    rows = rows_of(path)
    sums = expected(f"mooncake-fast25/{path.name.removesuffix('.jsonl.gz')}")
    prompt = sum(row["input_length"] for row in rows)
    assert (len(rows), prompt) == (sums["rows"], sums["prompt_tokens"])
    check(shared_store, path, "mooncake", len(rows), prompt)
    stored = shared_store.cursor().execute(
        """SELECT sum(len(block_hashes)), sum(output_tokens),
            count(*) FILTER (len(block_hashes) = ceil(prompt_tokens / block_size)),
            epoch(max(ts) - min(ts)), any_value(hash_scope), max(block_size), min(block_size)
        FROM requests WHERE source = ?""",
        [path.name],
    ).fetchone()  # fmt: skip
    span = (rows[-1]["timestamp"] - rows[0]["timestamp"]) / 1000
    assert stored == (
        sums["blocks"], sums["output_tokens"], len(rows), pytest.approx(span), "global", 512, 512,
    )  # fmt: skip


def test_t65_mooncake_times_are_milliseconds_from_the_start(shared_store: Store) -> None:
    path = MOONCAKE[0]
    take(shared_store, path, "times")
    cursor = shared_store.cursor()
    cursor.execute(
        """SELECT (epoch_us(ts) - min(epoch_us(ts)) OVER ()) // 1000 FROM requests
        WHERE source = 'times' ORDER BY position"""
    )
    assert [row[0] for row in cursor.fetchall()] == [row["timestamp"] for row in rows_of(path)]


@pytest.mark.parametrize("path", AZURE, ids=lambda path: path.name)
def test_azure(shared_store: Store, path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(unpacked(path))))
    prompt = sum(int(row["ContextTokens"]) for row in rows)
    name = path.name.removeprefix("AzureLLMInferenceTrace_").removesuffix(".csv.gz")
    sums = expected(f"azure-llm-2023/{name}")
    assert (len(rows), prompt) == (sums["rows"], sums["prompt_tokens"])
    check(shared_store, path, "azure_llm", len(rows), prompt)
    stored = shared_store.cursor().execute(
        """SELECT sum(output_tokens), strftime(min(ts), '%Y-%m-%d %H:%M:%S.%f'),
            strftime(max(ts), '%Y-%m-%d %H:%M:%S.%f')
        FROM requests WHERE source = ?""",
        [path.name],
    ).fetchone()  # fmt: skip
    stamps = [row["TIMESTAMP"][:26] for row in rows]
    assert stored == (sums["output_tokens"], min(stamps), max(stamps))


def all_requests(trace: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The requests of a nested trace, sub-agents' included."""
    for request in trace["requests"]:
        if request["type"] == "subagent":
            yield from all_requests(request)
        else:
            yield request


@pytest.mark.parametrize("path", WEKA, ids=lambda path: path.name)
def test_weka_document(shared_store: Store, path: Path) -> None:
    trace = json.loads(unpacked(path))
    rows = list(all_requests(trace))
    prompt = sum(row["in"] for row in rows)
    assert prompt == trace["totals"]["combined_tokens"]["input"]
    check(shared_store, path, "weka", len(rows), prompt)
    kept = requests(shared_store, path.name)
    assert {row["trace_id"] for row in kept} == {trace["id"]}
    assert all(len(row["block_hashes"]) == row["prompt_tokens"] // 64 for row in kept)
    agents = {row["session"] for row in kept} - {trace["id"]}
    assert len(agents) == trace["totals"]["subagent_count"]
    streamed = sum(1 for row in kept if row["stream"])
    assert streamed == sum(1 for row in rows if row["type"] == "s")


def test_weka_requests_are_all_read() -> None:
    """The whole file, without storing its 94 million blocks."""
    sums = expected("claude-code-agentic/requests_rle")
    rows = prompt = blocks = 0
    documents = trace_weka.REQUESTS.documents
    assert documents
    with gzip.open(WEKA_REQUESTS) as stream:
        for row in documents(stream):  # type: ignore[arg-type]  # a GzipFile reads like a file
            assert isinstance(row, dict)
            assert row["trace_id"], "no row is set aside"
            rows, prompt = rows + 1, prompt + row["in"]
            blocks += len(row["hash_ids"])
    assert (rows, prompt, blocks) == (sums["rows"], sums["prompt_tokens"], sums["blocks"])


def test_weka_requests_are_stored(store: Store, tmp_path: Path) -> None:
    rows = rows_of(WEKA_REQUESTS)[:2000]
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompt = sum(row["in"] for row in rows)
    check(store, path, "weka_requests", len(rows), prompt)
    blocks = sum(count for row in rows for _, count in row["hash_runs"])
    stored = store.cursor().execute(
        """SELECT sum(len(block_hashes)), count(DISTINCT trace_id),
            count(*) FILTER (len(block_hashes) = prompt_tokens // 64),
            count(ttft_seconds) FROM requests"""
    ).fetchone()  # fmt: skip
    streamed = sum(1 for row in rows if row["type"] == "s" and row.get("ttft", 0) > 0)
    traces = len({row["trace_id"] for row in rows})
    assert stored == (blocks, traces, len(rows), streamed)


@pytest.mark.parametrize("path", LMCACHE, ids=lambda path: path.name)
def test_lmcache_text_is_read_and_not_kept(tmp_path: Path, path: Path) -> None:
    store = Store.open(tmp_path / "store")
    store.cursor().execute("PRAGMA force_compression='uncompressed'")
    rows = rows_of(path)
    check(store, path, "lmcache_agent", len(rows), 0)
    kept = requests(store)
    assert [row["session"] for row in kept] == [row["session_id"] for row in rows]
    assert all(row["prompt_tokens"] is None for row in kept)
    store.cursor().execute("CHECKPOINT")
    store.close()
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert rows[0]["session_id"].encode() in written, "looking for text in the bytes works"
    for row in rows:
        for text in (row["input"], row["output"]):
            for start in range(0, len(text) - 24, 997):
                assert text[start : start + 24].encode() not in written


def test_lmcache_blocks(shared_store: Store) -> None:
    rows = rows_of(LMCACHE_BLOCKS)
    assert len(rows) == expected("lmcache-agent/requests_hashed_256B")["rows"]
    check(shared_store, LMCACHE_BLOCKS, "lmcache_blocks", len(rows), 0)
    stored = shared_store.cursor().execute(
        """SELECT sum(len(block_hashes)), count(DISTINCT session), count(block_size)
        FROM requests WHERE source = ?""",
        [LMCACHE_BLOCKS.name],
    ).fetchone()  # fmt: skip
    blocks = sum(count for row in rows for _, count in row["hash_runs"])
    assert stored == (blocks, len({row["session"] for row in rows}), 0)


def test_tracelab_reports_what_the_provider_read_from_its_cache(shared_store: Store) -> None:
    rows = rows_of(TRACELAB)
    sums = expected("tracelab-sample/round_trace")
    summary = take(shared_store, TRACELAB)
    assert (summary.format, summary.accepted) == ("tracelab", len(rows))
    figures = hit_ratio(shared_store, route=TRACELAB.name)
    prompt, cached = (sum(row[n] for row in rows) for n in ("input_tokens_total", "prefix_tokens"))
    assert (prompt, cached) == (sums["prompt_tokens"], sums["cached_tokens"])
    assert (figures["prompt_tokens"], figures["cached_tokens"]) == (prompt, cached)
    assert figures["reported_prompt_tokens"] == prompt
    assert figures["token_hit_ratio"] == pytest.approx(sums["cached_share"], abs=1e-6)
    assert figures["coverage_ratio"] == 1.0
