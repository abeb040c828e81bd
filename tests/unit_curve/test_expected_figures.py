"""Figures that somebody else worked out from the public traces, by another rule than ours.

`EXPECTED.json` beside the traces stores the last, partial block of a prompt, and counts whole
blocks only; a prompt that is whole blocks can be found to its end. No cache known to us counts so,
so the rule is made here and not offered. Block hits are found by taking each block for one token.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from prefixscope.traces.file import TraceFile, read_trace
from replay.clock import Clock
from replay.curve import curve, curves_of_groups, summed
from replay.known_blocks import numbered, within
from replay.prompts import Prompts
from replay.routers import Router
from replay.rules import RULES, CacheRule
from replay.timed import Fleet, serve_timed
from replay.traffic import Numbers
from replay.untimed import serve
from tests.log_path import SHARED

TRACES = SHARED / "traces"
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the public traces are not beside the project"
)
MOONCAKE = ("mooncake-fast25/conversation_trace", "mooncake-fast25/synthetic_trace")
CLAUDE_CODE, LMCACHE = "claude-code-agentic/requests_rle", "lmcache-agent/requests_hashed_256B"
ONE = Router(name="round-robin")
UNLIMITED = 10**9


class WholeBlocksCounted(CacheRule):
    """Partial blocks take memory, and count for nothing."""

    def ceiling_tokens(self, prompt_tokens: Numbers) -> Numbers:
        size = self.block_tokens or 1
        return prompt_tokens // size * size


COUNTED = WholeBlocksCounted("counted", "whole blocks counted", ceiling="partial")


def expected(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((TRACES / "EXPECTED.json").read_text())[name]
    return figures


@cache
def trace(name: str) -> TraceFile:
    return read_trace([TRACES / f"{name}.jsonl.gz"])


def as_blocks(prompts: Prompts) -> Prompts:
    """Each block for one token."""
    return replace(prompts, prompt_tokens=np.diff(prompts.starts), block_tokens=1)


def both_ways(prompts: Prompts, rule: CacheRule, capacity: int) -> Iterator[float | None]:
    """By the curve and by the simulated cache."""
    yield curve(prompts, rule).ratio_at(capacity)
    yield serve(prompts, rule, ONE, 1, capacity).token_hit_ratio


@pytest.mark.parametrize("name", MOONCAKE)
def test_every_capacity_of_the_mooncake_traces(name: str) -> None:
    figures, prompts = expected(name), trace(name).prompts
    assert (len(prompts), len(prompts.blocks)) == (figures["rows"], figures["blocks"])
    assert prompts.distinct_blocks == figures["unique_blocks"]
    unlimited = [figures["block_hit"], figures["token_hit_full_blocks"]]
    for capacity, (blocks, tokens) in {str(UNLIMITED): unlimited, **figures["lru"]}.items():
        for ratio in both_ways(as_blocks(prompts), RULES["partial"], int(capacity)):
            assert round(ratio or 0, 6) == blocks, capacity
        for ratio in both_ways(prompts, COUNTED, int(capacity)):
            assert round(ratio or 0, 6) == tokens, capacity
    served = serve(prompts, RULES["partial"], ONE, 1, None)
    assert round(served.token_hit_ratio or 0, 6) == figures["token_hit_partial_last_block"]
    assert round(float((served.cached_tokens > 0).mean()), 4) == figures["requests_with_a_hit"]


@pytest.mark.parametrize("name", MOONCAKE)
def test_every_lifetime_of_the_mooncake_traces(name: str) -> None:
    """With a clock that costs no time, and answers that take no memory."""
    prompts = trace(name).prompts
    silent = replace(prompts, output_tokens=np.zeros_like(prompts.output_tokens))
    clock = Clock(
        prefill_tokens_per_second=1e13, decode_seconds_per_token=0.0, most_running=100_000
    )
    for seconds, ratio in expected(name)["ttl"].items():
        fleet = Fleet(replicas=1, capacity_blocks=None, clock=clock, router=ONE,
                      lifetime_seconds=float(seconds))  # fmt: skip
        served = serve_timed(silent, COUNTED, fleet)
        found = int(served.cached_tokens.sum()) / int(served.prompt_tokens.sum())
        assert round(found, 6) == ratio, seconds


def test_agents_of_claude_code_share_within_their_trace_alone() -> None:
    """6 billion tokens in 94 million blocks; each trace has a cache of its own, as none shares a
    block with another."""
    figures, read = expected(CLAUDE_CODE), read_trace([TRACES / f"{CLAUDE_CODE}.jsonl.gz"])
    prompts, scope = read.prompts, read.recorded.scope
    assert scope is not None
    assert (len(prompts), len(prompts.blocks)) == (figures["rows"], figures["blocks"])
    assert int(prompts.prompt_tokens.sum()) == figures["prompt_tokens"]
    assert int(prompts.output_tokens.sum()) == figures["output_tokens"]
    assert (prompts.distinct_blocks, len(scope.names)) == (
        figures["unique_blocks"], figures["traces"]
    )  # fmt: skip
    curves = curves_of_groups(prompts, COUNTED, scope.codes)
    ratio = summed(curves).ratio_at(UNLIMITED)
    assert round(ratio or 0, 6) == figures["token_hit_full_blocks"]
    each = np.array([found.ratio_at(UNLIMITED) for found in curves])
    low, median = np.percentile(each, [25, 50])
    told = {"min": each.min(), "p25": low, "median": median, "mean": each.mean(), "max": each.max()}
    assert {name: round(float(value), 3) for name, value in told.items()} == (
        figures["per_trace_hit"]
    )
    served = serve(prompts, COUNTED, ONE, 1, None)
    assert served.token_hit_ratio == ratio
    hits = int((served.cached_tokens // prompts.block_tokens).sum())
    assert round(hits / len(prompts.blocks), 6) == figures["block_hit"]


def test_agents_known_by_bytes() -> None:
    """A partial block counts with its own bytes: our rule `partial`."""
    figures, read = expected(LMCACHE), trace(LMCACHE)
    prompts, agents, sessions = read.prompts, read.recorded.template, read.recorded.sessions
    assert agents is not None
    assert sessions is not None
    assert int(prompts.prompt_tokens.sum()) == figures["input_bytes"]
    assert len(np.unique(sessions)) == figures["sessions"]
    for ratio in both_ways(prompts, RULES["partial"], UNLIMITED):
        assert round(ratio or 0, 4) == figures["byte_hit_global"]
    by_agent = curves_of_groups(prompts, RULES["partial"], agents.codes)
    told = {name: round(found.ratio_at(UNLIMITED) or 0, 4)
            for name, found in zip(agents.names, by_agent, strict=True)}  # fmt: skip
    assert told == {name: each["byte_hit_global"] for name, each in figures["by_agent"].items()}
    session_of_block = np.repeat(
        np.unique(sessions, return_inverse=True)[1], np.diff(prompts.starts)
    )
    apart = replace(
        prompts, blocks=numbered(within(prompts.blocks.astype(np.uint64), session_of_block))[0]
    )
    for ratio in both_ways(apart, RULES["partial"], UNLIMITED):
        assert round(ratio or 0, 4) == figures["byte_hit_within_session"]
