"""Cached tokens of a live arm by the rules of the cache alone: each replica is a pool of blocks
that is asked in the order in which it really served.

Taken from the run: which replica served a request, when the engine scheduled it and when it ended.
How much was found is worked out from the prompts' own blocks.
"""

from dataclasses import dataclass, field

import numpy as np

from bench.live.measured import Measured
from replay.blocks import BlockPool, Lease, reusable_blocks
from replay.prompts import Prompts
from replay.traffic import Numbers

_END, _START = 0, 1


@dataclass
class _Replayed:
    """`fresh`: the next name for a block of generated tokens, whose content no trace has."""

    prompts: Prompts
    cached_tokens: Numbers
    leases: dict[int, Lease] = field(default_factory=dict)
    fresh: int = -1

    def start(self, pool: BlockPool, number: int) -> None:
        """Look up, and hold the memory of prompt and answer. Engines name a block as soon as it is
        scheduled: a request that waits beside it finds it."""
        prompts, size = self.prompts, self.prompts.block_tokens
        prompt = int(prompts.prompt_tokens[number])
        written = prompt + int(prompts.output_tokens[number]) - 1  # the last token has no KV
        whole = prompt // size
        begin = int(prompts.starts[number])
        generated = range(self.fresh, self.fresh - (written // size - whole), -1)
        self.fresh -= len(generated)
        lease = pool.start(
            [*prompts.blocks[begin : begin + whole].tolist(), *generated],
            prompt_blocks=whole,
            reusable=reusable_blocks(prompt, size),
            total_blocks=-(-written // size),
        )
        if lease is None:
            return  # the engine grew into memory that is reserved here; its blocks are then unknown
        pool.end_prefill(lease)
        self.leases[number] = lease
        self.cached_tokens[number] = lease.hit_blocks * size

    def end(self, pool: BlockPool, number: int) -> None:
        if number in self.leases:
            pool.end(self.leases[number])


def given_replica(prompts: Prompts, arm: Measured, usable_blocks: int) -> Numbers:
    """Cached tokens of each request in the order of the trace."""
    replayed = _Replayed(prompts, np.zeros(len(prompts), np.int64))
    pools = {replica: BlockPool(usable_blocks) for replica in np.unique(arm.replica).tolist()}
    for _, kind, _, number in sorted(_happened(arm)):
        happens = replayed.start if kind == _START else replayed.end
        happens(pools[int(arm.replica[number])], number)
    return replayed.cached_tokens


def _happened(arm: Measured) -> list[tuple[float, int, int, int]]:
    """When, what, place in the order of sending, which request. A replica schedules in the order of
    sending, which clocks that differ by milliseconds would upset."""
    order = np.argsort(arm.sent_seconds, kind="stable")
    scheduled = arm.ready_seconds - arm.prefill_seconds
    ended = arm.ended_seconds
    latest: dict[int, float] = {}
    happened = []
    for place, number in enumerate(order.tolist()):
        replica = int(arm.replica[number])
        latest[replica] = max(float(scheduled[number]), latest.get(replica, 0.0))
        happened.append((latest[replica], _START, place, number))
        happened.append((float(ended[number]), _END, place, number))
    return happened
