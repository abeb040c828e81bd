"""One replica of the demo's fleet: a queue, one prefill at a time, and a block pool.

Times are Unix seconds. What a request costs follows from what the pool reuses: cached tokens come
out of `replay.blocks`, the time to the first token out of the tokens that had to be computed.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Literal

from prefixscope.demo.events import KvEvents
from prefixscope.demo.prompts import Session
from prefixscope.demo.scenario import (
    BLOCK_TOKENS,
    DECODE_SLOWDOWN,
    DECODE_TOKENS_PER_SECOND,
    REPLICA_BLOCKS,
    Template,
)
from replay.blocks import BlockPool, Lease, reusable_blocks

# Upper bounds of the engine's own time-to-first-token histogram, in seconds; +Inf comes after.
TTFT_BOUNDS_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
PREFILL_START_SECONDS = 0.03  # what a prefill costs before its first token is computed


@dataclass(slots=True)
class Call:
    """One attempt of one request, from its arrival at the gateway to its end.

    A call that failed at the gateway has `replica` None and no token counts.
    """

    number: int
    attempt: int
    arrived: float
    name: str
    turn: int
    template: Template
    version: str
    tenant: str
    session: Session
    replica: str | None = None
    status: Literal["ok", "error", "cancelled"] = "ok"
    chain: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    prefill_noise: float = 1.0
    gateway_seconds: float = 0.0
    cached_tokens: int = 0
    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    ended: float = 0.0

    @property
    def ttft_seconds(self) -> float:
        """Seconds from the gateway's receipt to the first token, as the gateway sees it."""
        return self.gateway_seconds + self.queue_seconds + self.prefill_seconds


@dataclass(slots=True)
class Counters:
    """What a replica's metric page has counted since its process started.

    Everything rises when a request has ended, the moment its log row exists, so that page and
    log agree at every scrape.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finished_requests: int = 0
    cancelled_requests: int = 0
    ttft_seconds: float = 0.0
    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    ttft_counts: list[int] = field(default_factory=lambda: [0] * (len(TTFT_BOUNDS_SECONDS) + 1))

    def add(self, call: Call) -> None:
        """Count one ended request."""
        self.prompt_tokens += call.prompt_tokens
        self.cached_tokens += call.cached_tokens
        self.output_tokens += call.output_tokens
        self.finished_requests += 1
        self.cancelled_requests += call.status == "cancelled"
        ttft_seconds = call.queue_seconds + call.prefill_seconds
        self.ttft_seconds += ttft_seconds
        self.queue_seconds += call.queue_seconds
        self.prefill_seconds += call.prefill_seconds
        self.ttft_counts[bisect_left(TTFT_BOUNDS_SECONDS, ttft_seconds)] += 1


class Replica:
    """One engine process. Drive it with `submit` and `advance`, in the order of time."""

    def __init__(self, name: str, prefill_tokens_per_second: float, started: float) -> None:
        self.name = name
        self.started = self.up_from = started
        self.accepting = True
        self.events = KvEvents()
        self.pool = BlockPool(REPLICA_BLOCKS, self.events)
        self.counters = Counters()
        self.waiting: deque[Call] = deque()
        self._prefill_tokens_per_second = prefill_tokens_per_second
        self._running: list[tuple[float, int, Lease]] = []
        self._order = count()
        self._prefilling: Lease | None = None
        self._ready = started

    @property
    def running_requests(self) -> int:
        """Requests that hold memory now."""
        return len(self._running)

    def submit(self, call: Call) -> None:
        """Queue a call; it starts in a later `advance`."""
        call.replica = self.name
        self.waiting.append(call)

    def advance(self, now: float) -> list[Call]:
        """Let time pass until `now`; returns the calls that started, with their end worked out."""
        started: list[Call] = []
        while self.waiting and (start := self.next_start()) <= now:
            self.release(start)
            call = self.waiting[0]
            self.events.moment = start
            lease = self._admit(call)
            if lease is None:
                self._ready = self._running[0][0]  # memory comes back when a request ends
                continue
            self.waiting.popleft()
            self._prefill(call, lease, start)
            started.append(call)
        self.release(now)
        return started

    def next_start(self) -> float:
        """Return the earliest moment at which the head of the queue may start."""
        return max(self.waiting[0].arrived, self._ready)

    def restart(self, now: float, *, boot_seconds: float, capacity_blocks: int) -> None:
        """Start the process anew: empty cache, counters at 0. Only while nothing runs."""
        if self._running or self.waiting:
            raise ValueError(f"{self.name} still has requests; drain it first")
        self.events.restart()
        self.pool = BlockPool(capacity_blocks, self.events)
        self.counters = Counters()
        self.started = now
        self.up_from = self._ready = now + boot_seconds
        self._prefilling = None

    def _admit(self, call: Call) -> Lease | None:
        if self._prefilling:
            self.pool.end_prefill(self._prefilling)
            self._prefilling = None
        return self.pool.start(
            call.chain,
            prompt_blocks=call.prompt_tokens // BLOCK_TOKENS,
            reusable=reusable_blocks(call.prompt_tokens, BLOCK_TOKENS),
            total_blocks=-(-(call.prompt_tokens + call.output_tokens) // BLOCK_TOKENS),
        )

    def _prefill(self, call: Call, lease: Lease, start: float) -> None:
        call.cached_tokens = lease.hit_blocks * BLOCK_TOKENS
        computed_tokens = call.prompt_tokens - call.cached_tokens
        seconds = computed_tokens / self._prefill_tokens_per_second * call.prefill_noise
        call.queue_seconds = round(start - call.arrived, 6)
        call.prefill_seconds = round(PREFILL_START_SECONDS + seconds, 6)
        slowdown = 1 + DECODE_SLOWDOWN * len(self._running)
        decode_seconds = call.output_tokens / DECODE_TOKENS_PER_SECOND * slowdown
        first_token = start + call.prefill_seconds
        call.ended = round(first_token + decode_seconds + call.gateway_seconds, 6)
        prompt_blocks = call.prompt_tokens // BLOCK_TOKENS
        call.chain = call.chain[:prompt_blocks] if self.events.began else []
        self._ready = first_token
        self._prefilling = lease
        heappush(self._running, (call.ended, next(self._order), lease))

    def release(self, now: float) -> None:
        """Give back the memory of every request that has ended by `now`."""
        while self._running and self._running[0][0] <= now:
            self.events.moment, _, lease = heappop(self._running)
            self.pool.end(lease)
