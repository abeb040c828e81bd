"""Real runs of one vLLM against the clock, request by request.

What it is told of them: when each was sent, how long prompts and answers were, and when all was
forgotten; never how much was cached.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from replay.clock import Clock
from replay.prompts import Prompts
from replay.routers import Router
from replay.rules import RULES
from replay.timed import Fleet, serve_timed
from replay.traffic import Moments, Numbers
from tests.unit_causes.captured import BLOCK_TOKENS, cached_of, is_serial, rows_of
from tests.unit_what_if.captured_prompts import prompts_of_rows

FULL = RULES["full"].of_blocks(BLOCK_TOKENS)
# What was left of this prompt hangs on how far two long answers had grown when one of them was
# preempted; the clock reserves memory for answers instead.
HANGS_ON_ANSWERS = 32

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """`usable_blocks`: one block of vLLM's is never used. `reset_before`: the request before which
    all was forgotten (by a call, or a restart)."""

    name: str
    usable_blocks: int
    serial_requests: int
    reset_before: int | None = None

    def rows(self) -> list[Row]:
        """In the order in which they were sent."""
        return sorted(rows_of(f"vllm-0.32.0/{self.name}"), key=lambda row: float(row["sent_unix"]))


RUNS = (Run("main", 511, 43, 53), Run("evict", 71, 30), Run("restart", 511, 30, 24))


def calibrated(rows: list[Row]) -> Clock:
    """As if nothing had been cached: the median time to the first token is that of a whole prompt;
    and the time behind it that of the rest of the answer."""
    first = np.median([row["ttft_s"] for row in rows if row["ttft_s"]])
    answered = [row for row in rows if row["ttft_s"]]
    behind = sum(row["total_s"] - row["ttft_s"] for row in answered)
    tokens = sum(row["usage"]["completion_tokens"] - 1 for row in answered)
    prompt = np.median([row["usage"]["prompt_tokens"] for row in rows])
    return Clock(prefill_tokens_per_second=float(prompt / first),
                 decode_seconds_per_token=behind / tokens)  # fmt: skip


def predicted(run: Run, prompts: Prompts, clock: Clock) -> Numbers:
    resets = Moments()
    if run.reset_before is not None:
        ahead, behind = prompts.arrived[run.reset_before - 1 : run.reset_before + 1]
        resets = Moments.of([(0, float(ahead + 0.99 * (behind - ahead)))])
    fleet = Fleet(replicas=1, capacity_blocks=run.usable_blocks, clock=clock,
                  router=Router(name="round-robin"), resets=resets)  # fmt: skip
    return serve_timed(prompts, FULL, fleet).cached_tokens


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_clock_predicts_what_was_cached(run: Run) -> None:
    """Every request that ran alone but one, and every one of those that did not."""
    rows = run.rows()
    serial = np.array(is_serial(rows))
    assert serial.sum() == run.serial_requests
    found = predicted(run, prompts_of_rows(rows), calibrated(rows))
    observed = np.array([cached_of(row) for row in rows])
    wrong = np.flatnonzero(found != observed).tolist()
    assert wrong == ([HANGS_ON_ANSWERS] if run.name == "evict" else [])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_speeds_need_not_be_known_well(run: Run, factor: float) -> None:
    """Half or twice as fast, at least 99 % of the tokens are right still, under concurrency too."""
    rows = run.rows()
    beside = ~np.array(is_serial(rows))
    clock = calibrated(rows)
    clock = replace(clock, prefill_tokens_per_second=factor * clock.prefill_tokens_per_second)
    found = predicted(run, prompts_of_rows(rows), clock)
    observed = np.array([cached_of(row) for row in rows])
    tokens = np.array([row["usage"]["prompt_tokens"] for row in rows])
    wrong = np.abs(found - observed)
    assert wrong.sum() <= 0.01 * tokens.sum()
    assert wrong[beside].sum() <= 0.01 * tokens[beside].sum()


def test_what_the_clock_gets_wrong_hangs_on_answers() -> None:
    """Without their answers, what it says of that request and of no other one changes."""
    run = RUNS[1]
    rows = run.rows()
    prompts, clock = prompts_of_rows(rows), calibrated(rows)
    short = replace(prompts, output_tokens=np.zeros(len(rows), np.int64))
    changed = predicted(run, prompts, clock) != predicted(run, short, clock)
    assert np.flatnonzero(changed).tolist() == [HANGS_ON_ANSWERS]
