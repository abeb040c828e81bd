"""The block pool must predict what real engines reused, request by request."""

import json
from pathlib import Path
from typing import Any

import pytest

from replay.blocks import BlockPool, reusable_blocks
from replay.hashes import chain_hashes

CAPTURES = Path(__file__).parents[2].parent / "shared" / "captures"
BLOCK_TOKENS = 32


def requests_of(capture: str) -> list[dict[str, Any]]:
    path = CAPTURES / capture / "requests.jsonl"
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    return [json.loads(line) for line in path.read_text().splitlines()]


def predict(pool: BlockPool, request: dict[str, Any]) -> int:
    """Serve one request with nothing beside it and return its cached tokens."""
    token_ids, output_tokens = request["prompt_token_ids"], request["usage"]["completion_tokens"]
    chain = chain_hashes(token_ids, BLOCK_TOKENS, request["cache_salt"] or "")
    lease = pool.start(
        chain,
        prompt_blocks=len(chain),
        reusable=reusable_blocks(len(token_ids), BLOCK_TOKENS),
        total_blocks=-(-(len(token_ids) + output_tokens) // BLOCK_TOKENS),
    )
    assert lease is not None
    pool.end_prefill(lease)
    pool.end(lease)
    return lease.hit_blocks * BLOCK_TOKENS


def reported(request: dict[str, Any]) -> int:
    return int(request["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize(
    "capture",
    [
        "vllm-0.32.0-x2-sglang-router-0.3.2/cache-aware",
        "vllm-0.32.0-x2-vllm-router-0.1.17/cache-aware",
    ],
)
def test_every_request_of_the_cache_aware_runs_is_predicted(capture: str) -> None:
    requests = requests_of(capture)
    pools = {request["replica"]: BlockPool(259) for request in requests}
    predicted = [predict(pools[request["replica"]], request) for request in requests]
    assert len(predicted) == 48
    assert predicted == [reported(request) for request in requests]
    assert sum(predicted) == 60_192


def test_main_capture_is_predicted_with_its_reset_and_its_tenants() -> None:
    # 512 blocks, one of them the engine's null block; nothing is evicted, one reset.
    pool = BlockPool(511)
    predicted: list[int] = []
    requests = requests_of("vllm-0.32.0/main")
    for before, request in zip([None, *requests], requests, strict=False):
        if before and before["phase"] != request["phase"] and "reset" in request["phase"]:
            pool.clear()
        predicted.append(predict(pool, request))
    assert predicted == [reported(request) for request in requests]
    assert sum(predicted) == 29_696
