"""Causes in a store that no exporter runs on: named when files are loaded, beside `attribute`."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from replay.hashes import chain_hashes
from tests.log_path import ndjson

Cli = Callable[..., Any]
GRAIN = 16


def row(minute: int, blocks: list[int]) -> dict[str, object]:
    tokens = [content * GRAIN + place for content in blocks for place in range(GRAIN)]
    return {
        "ts": f"2026-03-02T12:{minute:02}:00Z", "request_id": str(minute), "model": "m",
        "prompt_tokens": len(tokens) + 1, "cached_tokens": 0, "e2e_seconds": 0.5,
        "block_hashes": chain_hashes(tokens, GRAIN), "block_size": GRAIN,
        "hash_scope": "global", "hash_key_id": "0123abcd",
    }  # fmt: skip


def test_a_loaded_log_is_named_and_attribute_says_by_how_much_it_differs(
    cli: Cli, tmp_path: Path
) -> None:
    log, earlier, store = tmp_path / "log", tmp_path / "earlier", tmp_path / "store"
    log.write_bytes(ndjson([row(10, [1, 2]), row(11, [1, 2])]))
    assert cli("ingest", log, "--store", store).status == 0
    asked = cli("query", "missed_tokens", "--store", store, "--output", "json")
    assert {each["cause"]: each["tokens"] for each in json.loads(asked.out)} == {
        "new": 32, "evicted": 32, "rounding": 2,
    }  # fmt: skip
    done = cli("attribute", "--store", store)
    assert "The same was named minute by minute" in done.err
    # A log of the time before comes too late for what is sealed.
    earlier.write_bytes(ndjson([row(1, [1, 2, 3])]))
    assert cli("ingest", earlier, "--store", store).status == 0
    done = cli("attribute", "--store", store)
    assert "these 112 tokens were named otherwise by evicted -32, new -16" in " ".join(
        done.err.split()
    )
    assert "49 prompt tokens came late" in " ".join(done.err.split())
    # With words of one's own there is nothing to compare with.
    assert "minute by minute" not in cli("attribute", "--store", store, "--rule", "vllm").err


def test_what_is_not_named_yet_is_told_and_not_compared(cli: Cli, tmp_path: Path) -> None:
    log, store = tmp_path / "log", tmp_path / "store"
    bare = row(9, [7]) | {"block_hashes": None}
    young = row(12, [1, 2, 3]) | {"ts": datetime.now(UTC).isoformat()}
    log.write_bytes(ndjson([bare, row(10, [1, 2]), row(11, [1, 2]), young]))
    assert cli("ingest", log, "--store", store).status == 0
    said = " ".join(cli("attribute", "--store", store).err.split())
    # Two prompts of 33 tokens are named, one of 49 is too young; that of 17 has no chain.
    assert "49 of these 115 prompt tokens are not named yet" in said
    assert "otherwise" not in said
    until = cli("attribute", "--store", store, "--until", "2026-03-02T12:12:00Z")
    assert "The same was named minute by minute" in until.err
