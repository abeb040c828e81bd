"""A real vLLM keeps salts apart: the same requests that llama.cpp shares, and nothing is found."""

from pathlib import Path

from tests.engine.live import needs_engine, running_vllm
from tests.engine.two_tenants import ask_all, tap_before
from tests.unit_isolation.told import audited

pytestmark = needs_engine


def test_vllm_keeps_salts_apart(tmp_path: Path) -> None:
    with (
        running_vllm(tmp_path, "--enable-prompt-tokens-details") as server,
        tap_before(server, tmp_path) as tap,
    ):
        told = ask_all(tap, tmp_path)
    # Only what a salt had sent before was served, in whole blocks.
    assert [one.cached_tokens > 0 for one in told] == [one.own_tokens >= 128 for one in told], (
        "of the tiny model blocks are at most of 128 tokens"
    )
    assert any(one.cached_tokens for one in told)
    found = audited(tmp_path / "tap.ndjson", "--warm-up", "0s")
    assert found["reused_at_most_tokens"] == found["cannot_tell_tokens"] == 0
    assert found["judged_cached_tokens"] == sum(one.cached_tokens for one in told)
    # Three scopes computed anew what acme had computed first: 31 blocks of 16 tokens each.
    assert found["merged_tokens"] == 3 * 496
