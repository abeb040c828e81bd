"""A fleet with a clock as plainly as can be: pools of `replay.blocks` and a list of events."""

import heapq
from collections import deque
from dataclasses import dataclass

from replay.blocks import BlockPool, Lease
from tests.unit_what_if.fleets import Requests

PREFILL, DECODE = "prefill", "decode"


@dataclass
class Outcome:
    """Of one request; None: never served."""

    cached_tokens: int | None = None
    ttft: int | None = None


class PlainFleet:
    """Round robin over replicas that prefill one prompt at a time, or as many of those in front as
    have no more than `batched` tokens to be computed. Times are whole numbers."""

    def __init__(
        self, replicas: int, capacity: int, block: int, per_token: int, decode: int, batched: int
    ) -> None:
        self.block, self.per_token, self.decode = block, per_token, decode
        self.batched = batched
        self.pools = [BlockPool(capacity) for _ in range(replicas)]
        self.waiting: list[deque[int]] = [deque() for _ in range(replicas)]
        self.prefilling: list[set[int]] = [set() for _ in range(replicas)]
        # Microseconds that prefills have held up decoding on each, and those each request knows of.
        self.held_up = [0] * replicas
        self.waited: dict[int, int] = {}
        self.leases: dict[int, Lease] = {}
        self.events: list[tuple[int, int, str, int]] = []
        self.planned = 0

    def run(self, requests: Requests, arrivals: list[int], outputs: list[int]) -> list[Outcome]:
        self.requests, self.arrivals, self.outputs = requests, arrivals, outputs
        self.outcomes = [Outcome() for _ in requests]
        for number, arrival in enumerate(arrivals):
            self.advance(arrival)
            replica = number % len(self.pools)
            if self.needed(number) <= self.pools[replica].capacity_blocks:
                self.waiting[replica].append(number)
                self.start(replica, arrival)
        self.advance(10**18)
        return self.outcomes

    def needed(self, number: int) -> int:
        return -(-(self.requests[number][0] + self.outputs[number]) // self.block)

    def advance(self, until: int) -> None:
        while self.events and self.events[0][0] <= until:
            now, _, kind, number = heapq.heappop(self.events)
            replica = number % len(self.pools)
            pool, lease = self.pools[replica], self.leases[number]
            if kind == PREFILL:
                pool.end_prefill(lease)
                self.waited[number] = self.held_up[replica]
                self.prefilling[replica].remove(number)
                self.outcomes[number].ttft = now - self.arrivals[number]
                length = max(self.outputs[number] - 1, 0) * self.decode
                self.plan(now + length, DECODE, number)
            elif self.outputs[number] > 1 and self.waited[number] < self.held_up[replica]:
                self.plan(now + self.held_up[replica] - self.waited[number], DECODE, number)
                self.waited[number] = self.held_up[replica]
                continue
            else:
                pool.end(lease)
            assert pool.resident_blocks <= pool.capacity_blocks
            self.start(replica, now)

    def start(self, replica: int, now: int) -> None:
        if self.prefilling[replica]:
            return
        batch: list[int] = []
        computed = 0
        while self.waiting[replica]:
            number = self.waiting[replica][0]
            pool, chain = self.pools[replica], self.chain(number)
            tokens, most = self.requests[number][0], (self.requests[number][0] - 1) // self.block
            own = tokens - pool.look_up(chain[:most]) * self.block
            if batch and computed + own > self.batched:
                break
            lease = pool.start(
                chain,
                prompt_blocks=tokens // self.block,
                reusable=most,
                total_blocks=self.needed(number),
            )
            if lease is None:
                break
            self.waiting[replica].popleft()
            self.leases[number] = lease
            self.outcomes[number].cached_tokens = tokens - own
            if self.batched:
                pool.end_prefill(lease)
            batch.append(number)
            computed += own
        self.prefilling[replica] = set(batch)
        if batch:
            steps = -(-computed // self.batched) if self.batched else 1
            stall = computed * self.per_token - steps * self.decode
            self.held_up[replica] += max(stall, 0)
        for number in batch:
            self.plan(now + computed * self.per_token, PREFILL, number)

    def chain(self, number: int) -> list[int]:
        """Whole blocks of prompt and answer; of the last token there is no KV, and no other prompt
        has the blocks of an answer."""
        tokens, chain = self.requests[number]
        whole = tokens // self.block
        filled = (tokens + max(self.outputs[number] - 1, 0)) // self.block
        return chain[:whole] + [-1 - number * 1000 - place for place in range(whole, filled)]

    def plan(self, time: int, kind: str, number: int) -> None:
        self.planned += 1
        heapq.heappush(self.events, (time, self.planned, kind, number))
