"""The parts of the live run that need no engine: what is sent, what is read, what is compared."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.live.generator import sent_of
from bench.live.measured import (
    COUNTERS,
    HITS,
    PREFILL_SECONDS,
    PROMPT,
    QUERIES,
    TTFT_COUNT,
    TTFT_SECONDS,
    Measured,
    counts_of,
    joined,
    rise,
)  # fmt: skip
from bench.live.modelled import Machine, calibrated, modelled
from bench.live.recorded_order import given_replica
from bench.live.servers import Engines
from bench.live.tables import missed, report
from bench.live.trace import BLOCK_TOKENS, Plan, rows_of, write_trace
from exporter.errors import PrefixscopeError
from prefixscope.traces.file import read_trace
from replay.prompts import Prompts
from replay.timed import Timed
from replay.traffic import starts_of

PLAN = Plan(requests=40, prefixes=4, gap_seconds=0.5, seed=3)


# ---------------------------------------------------------------- what is sent


def test_every_prefix_is_sent_as_often_and_every_question_once() -> None:
    rows = rows_of(PLAN)
    lengths = PLAN.prefix_lengths()
    assert lengths == [16, 25, 34, 44]  # 16 + 28 * number // 3
    shared: dict[tuple[int, ...], int] = {}
    own: list[int] = []
    for row in rows:
        (length,) = (n for n in lengths if row["hash_ids"][:n] in _prefixes(lengths))
        assert row["input_length"] > length * BLOCK_TOKENS
        key = tuple(row["hash_ids"][:length])
        shared[key] = shared.get(key, 0) + 1
        own += row["hash_ids"][length:]
    assert sorted(shared.values()) == [10, 10, 10, 10]
    assert len(own) == len(set(own))


def _prefixes(lengths: list[int]) -> list[list[int]]:
    ends = np.cumsum(lengths).tolist()
    return [list(range(end - length, end)) for length, end in zip(lengths, ends, strict=True)]


def test_a_plan_is_always_the_same_and_reads_as_the_trace_it_is(tmp_path: Path) -> None:
    assert rows_of(PLAN) == rows_of(PLAN)
    prompts = read_trace([write_trace(PLAN, tmp_path / "trace.jsonl")], BLOCK_TOKENS).prompts
    rows = rows_of(PLAN)
    assert prompts.prompt_tokens.tolist() == [row["input_length"] for row in rows]
    assert prompts.arrived[-1] == pytest.approx(rows[-1]["timestamp"] / 1000)
    assert (np.diff(prompts.arrived) >= 0).all()


# ---------------------------------------------------------------- what is read


RESULT: dict[str, Any] = {
    "errors": ["", ""],
    "start_times": [100.5, 100.0],
    "ttfts": [0.25, 0.5],
    "itls": [[0.125, 0.125], []],
    "input_lens": [70, 40],
    "output_lens": [3, 1],
}


def test_the_generators_result_is_told_from_its_first_request_on() -> None:
    first, second = sent_of(RESULT, 2)
    assert (first.sent_seconds, first.ttft_seconds, first.ended_seconds) == (0.5, 0.25, 1.0)
    assert (second.sent_seconds, second.ended_seconds) == (0.0, 0.5)


def test_a_request_that_failed_or_is_missing_ends_the_run() -> None:
    with pytest.raises(PrefixscopeError, match=r"1 of 2 requests failed.*refused"):
        sent_of({**RESULT, "errors": ["", "refused"]}, 2)
    with pytest.raises(PrefixscopeError, match="0 of 3 requests failed"):
        sent_of(RESULT, 3)


PAGE = """# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0"} 100.0
vllm:prompt_tokens_total{engine="1"} 20.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0"} 32.0
vllm:prefix_cache_hits_created{engine="0"} 1.7e+09
"""


def test_counters_are_summed_over_their_series_and_0_where_there_are_none() -> None:
    assert counts_of(PAGE) == {**dict.fromkeys(COUNTERS, 0.0), PROMPT: 120.0, HITS: 32.0}


def test_rises_of_all_replicas_are_added() -> None:
    none = dict.fromkeys(COUNTERS, 0.0)
    before, after = [{**none, PROMPT: 5.0}, none], [{**none, PROMPT: 9.0}, {**none, PROMPT: 2.0}]
    assert rise(before, after)[PROMPT] == 6.0


def _row(identity: str, prompt: int, cached: int) -> str:
    return json.dumps({
        "request_id": identity, "prompt_tokens": prompt, "cached_tokens": cached,
        "prefill_seconds": 0.125,
    })  # fmt: skip


def test_client_and_taps_are_joined_by_request_whichever_replica_served_it() -> None:
    warm_up = json.dumps({"prompt_tokens": 200})
    taps = [[warm_up, _row("live-1", 40, 0)], [warm_up, _row("live-0", 70, 64)]]
    seen = joined(sent_of(RESULT, 2), taps, dict.fromkeys(COUNTERS, 0.0))
    assert seen.replica.tolist() == [1, 0]
    assert seen.cached_tokens.tolist() == [64, 0]
    assert seen.step_seconds.tolist() == [0.125, 0.125]
    assert seen.token_hit_ratio == pytest.approx(64 / 110)


def test_a_request_without_a_row_and_one_with_two_are_refused() -> None:
    sent, counts = sent_of(RESULT, 2), dict.fromkeys(COUNTERS, 0.0)
    with pytest.raises(PrefixscopeError, match="no tap has a row of 1 requests, such as 1"):
        joined(sent, [[_row("live-0", 70, 0)], []], counts)
    with pytest.raises(PrefixscopeError, match="live-0 was served twice"):
        joined(sent, [[_row("live-0", 70, 0)], [_row("live-0", 70, 0)]], counts)


# ---------------------------------------------------------------- what is compared


def seen_of(
    sent: list[float],
    ttft: list[float],
    replica: list[int],
    *,
    prompt: list[int] | None = None,
    cached: list[int] | None = None,
    prefill: list[float] | None = None,
    counters: dict[str, float] | None = None,
) -> Measured:
    """A run in which every request ends 0.1 s after its first token."""
    count = len(sent)
    return Measured(
        sent_seconds=np.array(sent),
        ended_seconds=np.array(sent) + np.array(ttft) + 0.1,
        ttft_seconds=np.array(ttft),
        prefill_seconds=np.array(prefill or ttft),
        prompt_tokens=np.array(prompt or [100] * count),
        cached_tokens=np.array(cached or [0] * count),
        replica=np.array(replica),
        step_seconds=np.array([0.02, 0.01, 0.03]),
        counters=counters or dict.fromkeys(COUNTERS, 0.0),
    )


def test_alone_is_who_met_no_other_prompt_at_its_replica() -> None:
    # 0 and 1 overlap on replica 0; 2 runs at the same time elsewhere; 3 comes when 1 is ready.
    seen = seen_of([0.0, 0.5, 0.1, 1.5], [1.0, 1.0, 1.0, 0.2], [0, 0, 1, 0])
    assert seen.alone().tolist() == [False, False, True, True]


def test_prompts_computed_together_keep_a_replica_once() -> None:
    # Replica 0: 0.0 to 1.0, within it 0.5 to 1.0, then 2.0 to 2.5; replica 1: 0.5 to 1.0.
    seen = seen_of(
        [0.0, 0.2, 2.0, 0.0], [1.0, 0.8, 0.5, 1.0], [0, 0, 0, 1], prefill=[1.0, 0.5, 0.5, 0.5]
    )
    assert seen.busy_seconds() == pytest.approx(1.0 + 0.5 + 0.5)


def test_counters_that_differ_from_the_requests_are_told() -> None:
    fitting = {**dict.fromkeys(COUNTERS, 0.0), PROMPT: 200.0, HITS: 64.0, QUERIES: 200.0,
               TTFT_COUNT: 2.0}  # fmt: skip
    seen = seen_of([0.0, 1.0], [0.1, 0.1], [0, 1], cached=[0, 64], counters=fitting)
    assert seen.disagreements() == []
    other = {**fitting, HITS: 96.0}
    seen = seen_of([0.0, 1.0], [0.1, 0.1], [0, 1], cached=[0, 64], counters=other)
    assert seen.disagreements() == [f"{HITS} rose by 96, the requests say 64"]


def test_calibration_takes_the_step_from_decode_and_the_speed_from_who_was_alone() -> None:
    # 100 tokens in 0.12 s alone, of which a step is 0.02: 1,000 tokens a second. The last two
    # disturb each other and are left out.
    sent = [float(number) for number in range(11)] + [20.0, 20.1]
    seen = seen_of(sent, [0.12] * 11 + [0.9, 0.9], [0] * 13)
    machine = Machine(replicas=2, usable_blocks=8, step_tokens=2048, clients=2)
    clock = calibrated(seen, machine)
    assert clock.prefill_tokens_per_second == pytest.approx(1000)
    assert clock.prefill_overhead_seconds == clock.decode_seconds_per_token == 0.02
    assert clock.batched_tokens == 2048


def _prompts(chains: list[list[int]], output: int = 1) -> Prompts:
    """Prompts of whole blocks and one token more, so that all of them can be found."""
    count = len(chains)
    return Prompts(
        arrived=np.arange(count, dtype=np.float64),
        prompt_tokens=np.array([len(chain) * BLOCK_TOKENS + 1 for chain in chains]),
        output_tokens=np.full(count, output, np.int64),
        blocks=np.array([block for chain in chains for block in chain], np.int32),
        starts=starts_of([len(chain) for chain in chains]),
        block_tokens=BLOCK_TOKENS,
    )


def test_given_who_served_what_each_replica_is_a_cache_by_itself() -> None:
    prompts = _prompts([[0, 1], [0, 1], [0, 1]])
    seen = seen_of([0.0, 1.0, 2.0], [0.1] * 3, [0, 1, 0])
    assert given_replica(prompts, seen, 10).tolist() == [0, 0, 2 * BLOCK_TOKENS]


def test_given_who_served_what_a_prompt_scheduled_beside_another_finds_its_blocks() -> None:
    # Both wait while the replica is at another step, and are scheduled together at 1.0; the
    # client sees the answer of the later one first.
    prompts = _prompts([[0, 1], [0, 1]])
    seen = seen_of([0.0, 0.1], [1.502, 1.4], [0, 0], prefill=[0.5, 0.5])
    assert given_replica(prompts, seen, 10).tolist() == [0, 2 * BLOCK_TOKENS]


def test_given_who_served_what_answers_take_memory_too() -> None:
    # Four blocks. With answers of one token, of which nothing is written, two named blocks of the
    # first prompt and two of the second fit. With 34 tokens the first leaves 98 // 32 = 3 named
    # ones, and the second holds three (66 tokens): the answer's block and the prompt's last go.
    chains = [[0, 1], [2], [0, 1]]
    seen = seen_of([0.0, 1.0, 2.0], [0.1] * 3, [0, 0, 0])
    assert given_replica(_prompts(chains), seen, 4).tolist() == [0, 0, 2 * BLOCK_TOKENS]
    assert given_replica(_prompts(chains, output=34), seen, 4).tolist() == [0, 0, BLOCK_TOKENS]


def _timed(prompt: list[int], cached: list[int], ttft: list[float]) -> Timed:
    count = len(prompt)
    return Timed(
        np.array(prompt), np.array(cached), np.zeros((count, 0), np.int64),
        np.zeros(count, np.int32), np.array(ttft), np.array(ttft), np.zeros(2, np.int64),
        np.zeros(0, np.int64), np.zeros(count, np.int64),
    )  # fmt: skip


COUNTED = {PROMPT: 400.0, QUERIES: 0.0, HITS: 0.0, PREFILL_SECONDS: 8.0, TTFT_SECONDS: 9.0,
           TTFT_COUNT: 4.0}  # fmt: skip


def test_measured_and_modelled_stand_side_by_side() -> None:
    spread = [0.0, 10.0, 20.0, 30.0]
    measured = {
        "off": seen_of(spread, [1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], counters=COUNTED),
        "on": seen_of(spread, [0.5] * 4, [0, 0, 0, 1], cached=[0, 64, 64, 64]),
    }
    measured["on"].counters.update({**COUNTED, QUERIES: 400.0, HITS: 192.0})
    ours = {
        "off": _timed([100] * 4, [0] * 4, [1.5, 2.5, 3.5, 4.5]),
        "on": _timed([100] * 4, [0, 64, 64, 96], [0.25] * 4),
    }
    text = report(measured, ours, {"on": np.array([0, 64, 64, 96])})
    lines = text.splitlines()
    off, on = lines[1].split(), lines[2].split()
    assert off[0] == "off"
    assert off[5:8] == ["2.000", "/", "2.500"]  # p50: the second of four
    assert on[1:5] == ["0.480", "/", "0.560", "+8.0"]  # 192 and 224 of 400
    assert on[-3:] == ["0.75", "/", "1.00"]
    assert "off -> on, TTFT less: p50 1.500 s measured, 2.250 modelled" in text
    assert "on, given who served what: cached tokens equal for 3 of 4 requests" in text
    assert text.count("tokens equal the sums of the requests; prefill 8.0 s, TTFT mean 2.250") == 2
    assert missed(measured, ours) == ["on: hit ratio +8.0 points (bar 3)"]


def test_arms_in_another_order_miss_the_bar() -> None:
    spread = [0.0, 10.0]
    measured = {
        "off": seen_of(spread, [2.0, 2.0], [0, 1]),
        "on": seen_of(spread, [1.0, 1.0], [0, 1]),
    }
    ours = {
        "off": _timed([100] * 2, [0] * 2, [1.0, 1.0]),
        "on": _timed([100] * 2, [0] * 2, [2.0] * 2),
    }
    assert missed(measured, ours) == ["order by TTFT p50: off > on measured, on > off modelled"]


def test_the_model_serves_every_arm_of_the_run() -> None:
    prompts = _prompts([[0, 1, 2], [0, 1, 3], [0, 1, 4], [0, 1, 5]])
    machine = Machine(replicas=2, usable_blocks=64, step_tokens=2048, clients=2)
    clock = calibrated(seen_of([0.0, 1.0], [0.12, 0.12], [0, 1]), machine)
    found = modelled(prompts, machine, clock)
    blocks = {arm: served.cached_tokens.sum() // BLOCK_TOKENS for arm, served in found.items()}
    # By turns two replicas compute the two shared blocks, else one does, which all others are sent
    # to: 34 tokens to be computed beside 97 there cost less than 97 at the other.
    assert blocks == {"off": 0, "round-robin": 4, "cache-aware": 6}


def test_what_is_not_installed_is_said_with_its_remedy(tmp_path: Path) -> None:
    said = Engines(tmp_path).missing()
    assert said is not None
    assert "PREFIXSCOPE_ENGINE_DIR" in said
    assert str(tmp_path / "vllm") in said
