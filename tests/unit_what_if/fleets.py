"""Small traffic to replay, and fleets that are simulated as plainly as can be."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from replay.clock import Clock
from replay.prompts import Prompts
from replay.routers import Router
from replay.timed import Fleet, Timed
from replay.traffic import starts_of

Requests = list[tuple[int, list[int]]]  # prompt tokens, numbers of its blocks
# One token a millisecond: times by hand are in thousandths of a second.
CLOCK = Clock(prefill_tokens_per_second=1000.0)


def prompts_of(requests: Requests, block_tokens: int, gap_seconds: float = 1.0) -> Prompts:
    """One request each so many seconds."""
    count = len(requests)
    return Prompts(
        arrived=np.arange(count) * gap_seconds,
        prompt_tokens=np.array([tokens for tokens, _ in requests], np.int64),
        output_tokens=np.zeros(count, np.int64),
        blocks=np.array([block for _, chain in requests for block in chain], np.int32),
        starts=starts_of([len(chain) for _, chain in requests]),
        block_tokens=block_tokens,
    )


def fleet(
    router: str = "round-robin", replicas: int = 1, capacity: int = 1000, **more: object
) -> Fleet:
    settings_of = {"clock": CLOCK, "router": Router(name=router)} | more
    return Fleet(replicas=replicas, capacity_blocks=capacity, **settings_of)  # type: ignore[arg-type]


def at(
    requests: Requests, seconds: list[float], outputs: list[int] | None = None, block: int = 4
) -> Prompts:
    prompts = prompts_of(requests, block)
    answers = np.array(outputs or [0] * len(requests), np.int64)
    return replace(prompts, arrived=np.array(seconds), output_tokens=answers)


def cached(timed: Timed) -> list[int]:
    return [int(tokens) for tokens in timed.cached_tokens]


def ttft(timed: Timed) -> list[float]:
    return [round(float(seconds), 6) for seconds in timed.ttft_seconds]


@st.composite
def conversations(draw: st.DrawFn) -> Requests:
    """Prompts of whole blocks of 4 tokens: each takes some blocks of an earlier one and adds."""
    requests: Requests = []
    fresh = 0
    for _ in range(draw(st.integers(1, 30))):
        old: list[int] = []
        if requests and draw(st.booleans()):
            old = requests[draw(st.integers(0, len(requests) - 1))][1]
            old = old[: draw(st.integers(0, len(old)))]
        new = draw(st.integers(0 if old else 1, 4))
        chain = old + list(range(fresh, fresh + new))
        fresh += new
        requests.append((len(chain) * 4, chain))
    return requests


class PlainCache:
    """Blocks in the order of their use."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.kept: OrderedDict[int, None] = OrderedDict()

    def found(self, chain: list[int]) -> int:
        """How many leading blocks are there."""
        count = 0
        while count < len(chain) and chain[count] in self.kept:
            count += 1
        return count

    def keep(self, chain: list[int]) -> None:
        """Touch the whole prompt, its tail first."""
        for block in reversed(chain):
            self.kept[block] = None
            self.kept.move_to_end(block)
            if len(self.kept) > self.capacity:
                self.kept.popitem(last=False)
