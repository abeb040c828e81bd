"""`replay` without a trace: a store's own requests, with speeds and memory as it tells them."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from exporter.store.store import Store
from tests.log_path import NOON, SMALL, Row, load

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out
REQUESTS = 240
# What engines and rows of the store were written with.
REPLICAS, BLOCK_TOKENS, CAPACITY_TOKENS = 2, 32, 3_200
PREFILL_TOKENS_PER_SECOND, OVERHEAD_SECONDS, DECODE_SECONDS = 5_000, 0.02, 0.01
COMMAND = ("replay", "--output", "json", "--arms", "off,round-robin,merged")


def row(number: int) -> Row:
    """Of two tenants, each with a scope of its own, who send the same 160 tokens and some more."""
    scope = number // 2 % 2
    contents = [*range(1, 11), *range(100 * number + 50, 100 * number + 50 + number % 10)]
    prompt_tokens, cached_tokens = 16 * len(contents) + 1, 0 if number < 4 else 160
    computing = (prompt_tokens - cached_tokens) / PREFILL_TOKENS_PER_SECOND
    ttft_seconds = 0.5 + OVERHEAD_SECONDS + computing
    chain = [1_000_000 * (scope + 1) + block for block in contents]
    return {
        "ts": (datetime.fromisoformat(NOON) + timedelta(seconds=number)).isoformat(),
        "request_id": str(number), "model": "m", "replica": f"r{number % REPLICAS}",
        "tenant": f"t{scope}", "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens,
        "output_tokens": 11, "prefill_seconds": OVERHEAD_SECONDS + computing,
        "queue_seconds": 0.5, "ttft_seconds": ttft_seconds, "ttft_point": "gateway",
        "stream": True, "e2e_seconds": ttft_seconds + 10 * DECODE_SECONDS,
        "block_hashes": chain, "content_hashes": contents, "hash_scope": "global",
        "hash_key_id": "k",
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replayed") / "store"
    store = Store.open(path, SMALL)
    try:
        load(store, map(row, range(REQUESTS)))
        with store.write() as cursor:
            cursor.execute(
                "INSERT INTO engine_samples BY NAME SELECT 'r' || i AS target, target AS replica,"
                " 'vllm' AS engine, 'unified' AS role, 'm' AS model, $noon::TIMESTAMP AS ts,"
                " false AS reset, false AS gap, $tokens AS kv_capacity_tokens, $block AS block_size"
                " FROM range($replicas) t(i)",
                {"noon": NOON, "tokens": CAPACITY_TOKENS, "block": BLOCK_TOKENS,
                 "replicas": REPLICAS},
            )  # fmt: skip
    finally:
        store.close()
    return path


def test_one_command_replays_a_store_with_what_it_tells(cli: Cli, folder: Path) -> None:
    done = cli(*COMMAND, "--store", folder, "--since", "2026-03-01T00:00:00Z")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["replicas"], found["block_tokens"], found["capacity_blocks"]) == (2, 32, 100)
    rows = [row(number) for number in range(REQUESTS)]
    prompt, cached = (sum(int(str(each[name])) for each in rows)
                      for name in ("prompt_tokens", "cached_tokens"))  # fmt: skip
    assert found["observed"] == pytest.approx(cached / prompt)
    assert [source.split(":")[0] for source in found["sources"]] == [
        "2 replicas", "memory for 3,200 tokens a replica", "block of 32 tokens",
        "prefill of 5,000 tokens/s", "0.02 s of each prefill beside that",
        "0.01 s a generated token",
    ]  # fmt: skip
    for said in ("prefill of 5,000 tokens/s a replica", "20 ms of prefill beside that for each"):
        assert said in done.out
    arms = {arm["arm"]: arm for arm in found["arms"]}
    # By 32 tokens five blocks are shared: each replica computes them in two scopes, or once.
    assert arms["off"]["token_hit_ratio"] == 0
    assert arms["round-robin"]["token_hit_ratio"] == pytest.approx((REQUESTS - 4) * 160 / prompt)
    assert arms["merged"]["token_hit_ratio"] == pytest.approx((REQUESTS - 2) * 160 / prompt)


def test_what_is_said_by_hand_wins(cli: Cli, folder: Path) -> None:
    done = cli(*COMMAND, "--store", folder, "--replicas", "3", "--prefill-speed", "9000",
               "--capacity-tokens", "6400", "--decode-time", "5")  # fmt: skip
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["replicas"], found["capacity_blocks"]) == (3, 200)
    assert [source.split(":")[0] for source in found["sources"]] == [
        "block of 32 tokens", "0.02 s of each prefill beside that",
    ]  # fmt: skip
    assert "prefill of 9,000 tokens/s" in done.out
    assert "decode of 5 ms a token" in done.out


def test_a_layout_without_findings_is_left_out_and_the_rest_replayed(
    cli: Cli, folder: Path
) -> None:
    """All requests begin alike, and nothing in them changes behind that but the end."""
    asked = ("replay", "--output", "json", "--store", folder, "--arms")
    done = cli(*asked, "off,round-robin,mended,sticky+mended")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert [arm["arm"] for arm in found["arms"]] == ["off", "round-robin"]
    assert "Left out: arms with mended: no layout finding that comes always" in found["traffic"]
    assert "Left out: arms with mended" in done.err
    assert cli(*asked, "mended").status == 2


def test_files_and_a_store_are_not_both_replayed(cli: Cli, folder: Path) -> None:
    done = cli("replay", "trace.jsonl", "--store", folder)
    assert (done.status, "give trace files, or --store, not both" in done.err) == (2, True)
