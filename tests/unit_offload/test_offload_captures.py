"""Real vLLM with a connector that keeps blocks on disk: page, request log, questions."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.sources.pages import ingest_pages
from exporter.store.store import Store as StoredStore
from tests.log_path import CAPTURES, SMALL, ask, load, needs_captures

EXTERNAL = CAPTURES / "vllm-0.32.0" / "external"


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[StoredStore]:
    opened = StoredStore.open(tmp_path, SMALL)
    yield opened
    opened.close()


def rows_of(capture: Path) -> list[dict[str, object]]:
    """The client's own log as rows: usage and its clock."""
    rows = []
    for line in (capture / "requests.jsonl").read_text().splitlines():
        seen = json.loads(line)
        usage = seen["usage"]
        rows.append({
            "ts": seen["sent_unix"], "request_id": seen["id"], "model": "tiny", "replica": "r",
            "prompt_tokens": usage["prompt_tokens"], "ttft_seconds": seen["ttft_s"],
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
            "ttft_point": "client", "e2e_seconds": seen["total_s"], "stream": True,
        })  # fmt: skip
    return rows


@needs_captures
def test_external_blocks_on_disk_end_to_end(stored: StoredStore) -> None:
    """4,640 tokens hit on the device, 13,920 came through the connector, of 23,820 (its README).

    ExampleConnector counts neither transfers nor their time and names no tier, so that nothing
    may be said but what is missing.
    """
    ingest_pages(stored, [EXTERNAL / "metrics"])
    load(stored, rows_of(EXTERNAL))
    facts = json.loads((EXTERNAL / "facts.json").read_text())["arithmetic"]["server_delta"]
    (engine,) = ask(stored, "engine_hit_ratio")
    assert engine["cached_tokens"] == facts["vllm:prompt_tokens_cached_total"] == 18_560
    (loads,) = ask(stored, "offload_load")
    assert loads["loaded_tokens"] == facts["vllm:external_prefix_cache_hits_total"] == 13_920
    assert loads["tier"] == "remote"  # the connector does not say which tier it is
    assert loads["tokens_from"] == "cached tokens"
    assert (loads["loaded_bytes"], loads["load_seconds"]) == (None, None)
    (verdict,) = ask(stored, "offload_verdict")
    assert verdict["verdict"] == "cannot be told"
    assert verdict["missing"].split("; ") == [
        "cached tokens by tier on request rows",
        "time of loads from the remote tier",
        "time of writes to the remote tier",
        "prefill speed (100 requests of different length on a replica)",
    ]


@needs_captures
@pytest.mark.parametrize("name", ["main", "evict", "restart", "dp2"])
def test_engines_without_a_lower_tier_have_no_verdict(stored: StoredStore, name: str) -> None:
    ingest_pages(stored, [CAPTURES / "vllm-0.32.0" / name / "metrics"])
    assert ask(stored, "offload_verdict") == []
    assert ask(stored, "offload_cost") == []
