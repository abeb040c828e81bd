"""The same requests through the model, told of the live run only the arm without caching."""

from dataclasses import dataclass, replace

import numpy as np

from bench.live.measured import Measured
from bench.live.trace import BLOCK_TOKENS
from replay.clock import Clock
from replay.prompts import Prompts
from replay.routers import Router
from replay.rules import RULES
from replay.timed import Fleet, Timed, serve_timed

FULL = RULES["full"].of_blocks(BLOCK_TOKENS)
# The real router goes by the longest match, and by requests under way only where too little
# matches: one of them weighs no more than a token. Of replicas that are alike it takes the first.
CACHE_FIRST = Router(name="round-robin", load_weight=1.0, counts_requests=True, takes_turns=False)
# Whether replicas cache, and which of our routers stands for the real one.
ARMS = {"off": (False, "round-robin"), "round-robin": (True, "round-robin"),
        "cache-aware": (True, "scored")}  # fmt: skip
_FEWEST_ALONE = 10


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What both have in common. `usable_blocks`: of each replica. `step_tokens`: of prompts, that
    one step computes at most. `clients` None: by the clock."""

    replicas: int
    usable_blocks: int
    step_tokens: int
    clients: int | None


def calibrated(off: Measured, machine: Machine) -> Clock:
    """From the arm without caching alone. A generated token costs the median of the time between
    them, and that is what a step of the engine costs whatever it computes: a prefill takes at least
    that. The rest of its time to first token is its tokens', of the median request that had its
    replica to itself (of all, where few had). The router remembers what it sent where."""
    alone = off.alone()
    if int(alone.sum()) < _FEWEST_ALONE:
        alone = np.ones(len(alone), np.bool_)
    step = float(np.median(off.step_seconds))
    beyond = np.maximum(off.ttft_seconds[alone] - step, step)
    return Clock(
        prefill_tokens_per_second=float(np.median(off.prompt_tokens[alone] / beyond)),
        prefill_overhead_seconds=step,
        batched_tokens=machine.step_tokens,
        decode_seconds_per_token=step,
        summary_lag_seconds=None,
    )


def modelled(prompts: Prompts, machine: Machine, clock: Clock) -> dict[str, Timed]:
    """Every arm, routed and timed by the model."""
    fleet = Fleet(
        replicas=machine.replicas,
        capacity_blocks=machine.usable_blocks,
        clock=clock,
        router=CACHE_FIRST,
        clients=machine.clients,
    )
    return {
        arm: serve_timed(
            prompts, FULL, replace(fleet, caches=caches, router=replace(CACHE_FIRST, name=router))
        )
        for arm, (caches, router) in ARMS.items()
    }
