"""What an experiment begins with: each figure as the store tells it, with where it is from."""

from dataclasses import replace

import pytest

from queries import registry
from replay.calibration import QUESTIONS, Calibration, Row, calibration
from replay.clock import USUAL_HOST

ENGINES: list[Row] = [
    {"replica": "a", "model": "m", "role": "unified", "up": True},
    {"replica": "b", "model": "m", "role": "unified", "up": None},
    {"replica": "gone", "model": "m", "role": "unified", "up": False},
    {"replica": "d", "model": "m", "role": "decode", "up": True},
    {"replica": "other", "model": "n", "role": "unified", "up": True},
]
MEMORY: list[Row] = [
    {"replica": "a", "capacity_tokens": 102_400, "capacity_blocks": 3200},
    {"replica": "b", "capacity_tokens": 297_600, "capacity_bytes": 29_760_000},
    {"replica": "gone", "capacity_tokens": 7, "capacity_blocks": 7},
    {"replica": "other", "capacity_tokens": 999, "capacity_blocks": 999},
]


def of(**told: list[Row]) -> Calibration:
    return calibration(told, "m")


def test_the_questions_can_be_asked_so() -> None:
    for name, params in QUESTIONS.items():
        assert registry.checked(registry.question(name), {**params, "since": None, "until": None})


def test_memory_block_and_bytes_are_those_of_the_models_engines() -> None:
    """Two at work: 200,000 tokens on average; the one that tells both has blocks of 32."""
    found = of(replicas=ENGINES, memory_split=MEMORY)
    assert (found.replicas.value, found.replicas.source) == (2, "engines that were heard")
    assert found.capacity_tokens is not None
    assert found.capacity_tokens.value == 200_000
    assert found.block_tokens is not None
    assert found.block_tokens.value == 32
    assert found.token_bytes is not None
    assert found.token_bytes.value == 100
    assert found.words()[1] == (
        "memory for 200,000 tokens a replica: as its engines tell, median of 2"
    )


def test_replicas_are_those_that_most_requests_name() -> None:
    named = {"model": "m", "requests": 10, "named_requests": 5, "replicas": 3, "block_tokens": 16}
    found = of(replicas=ENGINES, serving=[named])
    assert found.replicas.value == 3
    assert found.block_tokens is not None
    assert (found.block_tokens.value, found.block_tokens.source) == (16, "as most requests state")
    assert of(replicas=ENGINES, serving=[named | {"named_requests": 4}]).replicas.value == 2


def test_speeds_are_medians_over_replicas() -> None:
    found = of(
        prefill_speed=[
            {"model": "m", "requests": 100, "tokens_per_second": 9_000.0, "fit": 0.98,
             "overhead_seconds": 0.03, "basis": "prefill_seconds"},
            {"model": "m", "requests": 200, "tokens_per_second": 1_000.0, "fit": 0.5,
             "overhead_seconds": None, "basis": "ttft_seconds, queue unknown at gateway"},
            {"model": "n", "requests": 900, "tokens_per_second": 77.0, "fit": 0.1,
             "overhead_seconds": 9.0, "basis": "prefill_seconds"},
        ],
        decode_speed=[
            {"model": "m", "requests": 50, "told_requests": 25, "seconds_per_token": 0.02},
            {"model": "m", "requests": 50, "told_requests": 5, "seconds_per_token": None},
            {"model": "m", "requests": 50, "told_requests": 50, "seconds_per_token": 0.04},
        ],
    )  # fmt: skip
    assert found.prefill_tokens_per_second.value == 5_000
    assert found.prefill_overhead_seconds.value == 0.03
    assert found.decode_seconds_per_token.value == pytest.approx(0.03)
    prefill, overhead, decode = found.words()[1:]
    assert prefill == (
        "prefill of 5,000 tokens/s: estimated from prefill_seconds and ttft_seconds, queue unknown "
        "at gateway of 300 requests, fit from 0.50, median of 2"
    )
    assert overhead == "0.03 s of each prefill beside that: intercept of the same"
    assert decode == (
        "0.03 s a generated token: from 75 requests (75% tell it) under the load there was, "
        "median of 2"
    )


def test_without_a_word_everything_is_assumed_and_says_so() -> None:
    found = of()
    assert (found.capacity_tokens, found.block_tokens, found.tiers) == (None, None, ())
    assert all("assumed" in word for word in found.words())
    assert len(found.words()) == 4
    assert len(found.words(given=("replicas", "decode_seconds_per_token"))) == 2


def test_where_no_engine_has_the_gateways_name_all_are_taken() -> None:
    found = calibration({"replicas": ENGINES, "memory_split": MEMORY[:2]}, "alias")
    assert found.replicas.value == 3
    assert found.capacity_tokens is not None
    assert found.capacity_tokens.value == 200_000


def test_tiers_at_work_have_a_size_and_a_speed() -> None:
    """Host: 8,000 tokens on two replicas, 0.5 ms a token. Remote: one store for all, by bytes."""
    found = of(
        replicas=ENGINES, memory_split=MEMORY,
        offload_load=[
            {"model": "m", "tier": "host", "load_seconds_per_token": 0.0005},
            {"model": "m", "tier": "remote", "bytes_per_second": 200_000.0},
            {"model": "n", "tier": "host", "load_seconds_per_token": 9.0},
            {"model": "m", "tier": "disk", "load_seconds_per_token": None},
        ],
        tier_memory=[
            {"model": "m", "observer": "engine", "tier": "host", "capacity_tokens": 8_000,
             "replicas": 2},
            {"model": "", "observer": "kv_store", "tier": "remote", "capacity_tokens": 64_000,
             "replicas": 1},
        ],
    )  # fmt: skip
    assert [tier.name for tier in found.tiers] == ["host", "disk", "remote"]
    host, remote = found.known_tiers(block_tokens=32)
    assert (host.name, host.capacity_blocks, host.is_shared) == ("host", 125, False)
    assert host.tokens_per_second == pytest.approx(2_000)
    assert (remote.name, remote.capacity_blocks, remote.is_shared) == ("remote", 2000, True)
    assert remote.tokens_per_second == pytest.approx(2_000)
    assert found.added_host() == replace(USUAL_HOST, tokens_per_second=host.tokens_per_second)
    unknown_room = replace(found.tiers[0], capacity_tokens=None)
    assert replace(found, tiers=(unknown_room,)).added_host() == found.added_host()
    assert replace(found, tiers=found.tiers[1:]).added_host() == USUAL_HOST
    assert found.tiers[0].words() == (
        "host tier: 4,000 tokens a replica, as its pages tell; loads 2,000 tokens/s, by counted "
        "load times, at least"
    )
    assert found.tiers[1].words() == (
        "disk tier: nothing tells its size; nothing tells how fast it loads"
    )
