"""What the clock of a replay works on: requests, rules, queues, results, for compiled code."""

from typing import NamedTuple

import numpy as np

from replay.pools import NONE
from replay.traffic import Numbers, Small

NEVER = np.iinfo(np.int64).max


class Requests(NamedTuple):
    """One entry a request: tokens, microseconds, blocks of it that can be found, with
    those of its answer that a later prompt names (`kept`), with all of its answer (`filled`); where
    on the ring its key is, and where its slots are kept, of which one that fits no replica has
    none."""

    arrived: Numbers
    prompt: Numbers
    ceiling: Numbers
    stored: Numbers
    kept: Numbers
    filled: Numbers
    decode: Numbers
    firsts: Numbers
    draws: Numbers
    blocks: Small
    begins: Numbers
    held_begins: Numbers


class Rules(NamedTuple):
    """Times in microseconds, speed in microseconds a token. `batched`: tokens of prompts in one
    step, 0: one prompt after the other. `decode`: of a generated token."""

    block_tokens: int
    router: int
    slack: float
    load_weight: float
    counts_requests: bool
    takes_turns: bool
    prefill: float
    overhead: int
    batched: int
    decode: int
    most_running: int
    clients: int
    lifetime: int
    lag: int
    guesses: bool


class Queues(NamedTuple):
    """Of each replica: first and last that wait, how many run, how many prefills are under way,
    microseconds that prefills have held up decoding so far, its load, and tokens it
    would have to compute of the request that arrives. `following`: the next that waits."""

    first: Small
    last: Small
    following: Small
    running: Numbers
    prefilling: Numbers
    held_up: Numbers
    loads: Numbers
    uncached: Numbers
    ended: Numbers  # one number: requests that are over, on all replicas


class Results(NamedTuple):
    """What becomes of each request; `loaded`: by tier; `stage` 0 until its prefill is over; with
    how much it `waited` for of what its replica was held up; `evicted`: blocks that were taken for
    it and lost. `held`: its slots."""

    replica: Small
    cached: Numbers
    loaded: Numbers
    estimate: Numbers
    prefill: Numbers
    ready: Numbers
    stage: Small
    waited: Numbers
    evicted: Numbers
    held: Small
    changed: Small  # blocks that came or went in the step under way


def empty_queues(requests: int, replicas: int) -> Queues:
    return Queues(
        first=np.full(replicas, NONE, np.int32),
        last=np.full(replicas, NONE, np.int32),
        following=np.full(requests, NONE, np.int32),
        running=np.zeros(replicas, np.int64),
        prefilling=np.zeros(replicas, np.int64),
        held_up=np.zeros(replicas, np.int64),
        loads=np.zeros(replicas, np.int64),
        uncached=np.zeros(replicas, np.int64),
        ended=np.zeros(1, np.int64),
    )
