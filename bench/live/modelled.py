"""The same requests through the model, told of the live run only the arm without caching."""

from dataclasses import dataclass, replace

import numpy as np

from bench.live.measured import Measured
from bench.live.trace import BLOCK_TOKENS
from replay.clock import Clock
from replay.lru import modelled_cached_tokens
from replay.prompts import Prompts
from replay.routers import Router
from replay.rules import RULES
from replay.timed import Fleet, Timed, serve_timed
from replay.traffic import Chains, Numbers, Traffic

FULL = RULES["full"].of_blocks(BLOCK_TOKENS)
# The real router goes by the longest match, and at load only where too little matches.
CACHE_FIRST = Router(name="round-robin", load_weight=0.1)
# Whether replicas cache, and which of our routers stands for the real one.
ARMS = {"off": (False, "round-robin"), "round-robin": (True, "round-robin"),
        "cache-aware": (True, "scored")}  # fmt: skip
_FEWEST_ALONE = 10


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What both have in common. `usable_blocks`: of each replica. `clients` None: by the clock."""

    replicas: int
    usable_blocks: int
    clients: int | None


def calibrated(off: Measured) -> Clock:
    """From the arm without caching: a line through what requests waited for their first token that
    had a replica to themselves (of all, where few had) by prompt tokens. Its slope is the speed of
    prefill, and what it leaves without any is the overhead of each."""
    alone = off.alone()
    if int(alone.sum()) < _FEWEST_ALONE:
        alone = np.ones(len(alone), np.bool_)
    slope, overhead = np.polyfit(off.prompt_tokens[alone], off.ttft_seconds[alone], 1)
    return Clock(
        prefill_tokens_per_second=1 / float(slope),
        prefill_overhead_seconds=max(float(overhead), 0.0),
        decode_seconds_per_token=float(np.median(off.step_seconds)),
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


def given_replica(prompts: Prompts, arm: Measured, usable_blocks: int) -> Numbers:
    """Cached tokens of each request if each replica is a cache by itself, asked in the order of
    sending: which replica served it is all that is taken from the run."""
    traffic = Traffic(
        prompt_tokens=prompts.prompt_tokens,
        cached_tokens=np.full(len(prompts), -1, np.int64),
        chains=Chains(prompts.blocks.astype(np.uint64), prompts.starts, BLOCK_TOKENS),
        looked_up=arm.sent_seconds,
        replica=arm.replica,
        output_tokens=prompts.output_tokens,
    )
    return modelled_cached_tokens(traffic, FULL, usable_blocks)
