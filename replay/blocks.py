"""One replica's prefix cache, block by block, as engines with whole-block reuse keep it.

Engines reuse KV in whole blocks that are named by a chain hash: the hash of a block's tokens and
of everything before them (`hashes.py`). This module follows such a pool exactly, so that cached
tokens can be worked out instead of guessed. It knows neither time nor files; the caller says in
which order requests start, finish their prefill and end.

The rules, in one place:

- A look-up counts leading blocks and stops at the first one that is missing. The last prompt
  token is always computed, so at most ⌊(P − 1) / B⌋ blocks are reused.
- Blocks become reusable when their prefill has ended, generated ones when the request ends.
- Running requests always win memory over cached blocks. A cached block is lost only when its
  memory is needed, the least recently released first; a request releases its tail first, so that
  the shared head of a chain outlives its ends.
- Two running requests that compute the same block hold it twice; the second copy is freed at its
  end instead of being kept.
- A request reserves the blocks of its prompt and its output when it starts (engines grow into
  the output and may have to preempt; here a request waits instead).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from replay.counted import counted


def reusable_blocks(prompt_tokens: int, block_tokens: int) -> int:
    """Count the blocks of a prompt that could be reused at best: ⌊(P − 1) / B⌋, 0 if empty."""
    return max(prompt_tokens - 1, 0) // block_tokens


class Listener(Protocol):
    """Is told what a pool stores and loses, as an engine's KV-cache events are."""

    def stored(self, blocks: Sequence[int], parent: int | None) -> None:
        """Blocks in a row became reusable; `parent` is the one before, None at the start."""

    def evicted(self, blocks: Sequence[int]) -> None:
        """Cached blocks were lost to make room."""


@dataclass(slots=True)
class Lease:
    """The blocks one running request holds. Made by `BlockPool.start` only.

    `chain` names the whole blocks of prompt and output in order, `prompt_blocks` says how many
    of them the prefill fills, `hit_blocks` how many were reused.
    """

    chain: Sequence[int]
    prompt_blocks: int
    hit_blocks: int
    total_blocks: int
    held: list[int] = field(default_factory=list)
    published_blocks: int = 0


class BlockPool:
    """The blocks of one replica: held by running requests, cached, or free. All counts in blocks.

    `running_blocks` + `cached_blocks` never exceeds `capacity_blocks`.
    """

    def __init__(self, capacity_blocks: int, listener: Listener | None = None) -> None:
        if capacity_blocks < 1:
            raise ValueError(f"capacity_blocks must be at least 1, got {capacity_blocks}")
        self.capacity_blocks = capacity_blocks
        self.running_blocks = 0
        self.evicted_blocks = 0
        self._listener = listener
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def cached_blocks(self) -> int:
        """Reusable blocks that no running request holds."""
        return len(self._idle)

    @property
    def resident_blocks(self) -> int:
        """Blocks in use: running and cached."""
        return self.running_blocks + len(self._idle)

    def look_up(self, chain: Iterable[int]) -> int:
        """Count the leading blocks of `chain` that could be reused now. Changes nothing."""
        references, idle = self._references, self._idle
        count = 0
        for block in chain:
            if block not in references and block not in idle:
                break
            count += 1
        return count

    def start(
        self,
        chain: Sequence[int],
        *,
        prompt_blocks: int,
        reusable: int,
        total_blocks: int,
    ) -> Lease | None:
        """Reserve memory for one request, reusing what is cached. None = it must wait.

        `chain`: whole blocks of prompt and expected output, all different; `prompt_blocks`: how
        many of them the prompt fills; `reusable`: the most that may be reused (see
        `reusable_blocks`); `total_blocks`: memory to reserve, the last, partial block included.
        Raises ValueError for a request that would not fit into an empty pool.
        """
        if total_blocks > self.capacity_blocks:
            raise ValueError(
                f"a request of {counted(total_blocks, 'block')} never fits into "
                f"{self.capacity_blocks}"
            )
        hit_blocks = self.look_up(chain[: min(reusable, prompt_blocks)])
        hits = list(chain[:hit_blocks])
        idle_hits = sum(map(self._idle.__contains__, hits))
        fresh = total_blocks - hit_blocks
        if self.running_blocks + idle_hits + fresh > self.capacity_blocks:
            return None
        self._hold(hits)
        self.running_blocks += idle_hits + fresh
        self._evict_overflow()
        return Lease(chain, prompt_blocks, hit_blocks, total_blocks, hits, hit_blocks)

    def end_prefill(self, lease: Lease) -> None:
        """Make the blocks of the prompt reusable."""
        self._publish(lease, lease.prompt_blocks)

    def end(self, lease: Lease) -> None:
        """Make generated blocks reusable too and give all blocks back, tail first."""
        self._publish(lease, len(lease.chain))
        references, idle = self._references, self._idle
        shared = 0
        for block in reversed(lease.held):
            count = references.pop(block)
            if count == 1:
                idle[block] = None
            else:
                references[block] = count - 1
                shared += 1
        self.running_blocks -= lease.total_blocks - shared
        lease.held = []
        lease.total_blocks = 0

    def clear(self) -> None:
        """Forget every cached block, as a restart does. Only while nothing runs."""
        if self.running_blocks:
            held = counted(self.running_blocks, "block is", "blocks are")
            raise ValueError(f"{held} held by running requests")
        self._idle.clear()

    def _hold(self, hits: list[int]) -> None:
        references, idle = self._references, self._idle
        for block in hits:
            if block in references:
                references[block] += 1
            else:
                del idle[block]
                references[block] = 1

    def _publish(self, lease: Lease, until: int) -> None:
        references, idle = self._references, self._idle
        due = lease.chain[lease.published_blocks : until]
        fresh = [block for block in due if block not in references and block not in idle]
        references.update(dict.fromkeys(fresh, 1))
        lease.held += fresh
        if self._listener is not None and fresh:
            _tell_stored(self._listener, lease, set(fresh), until)
        lease.published_blocks = max(lease.published_blocks, until)

    def _evict_overflow(self) -> None:
        overflow = self.running_blocks + len(self._idle) - self.capacity_blocks
        lost = [self._idle.popitem(last=False)[0] for _ in range(overflow)]
        if self._listener is not None and lost:
            self._listener.evicted(lost)
        self.evicted_blocks += max(overflow, 0)


def _tell_stored(listener: Listener, lease: Lease, fresh: set[int], until: int) -> None:
    """Tell of fresh blocks run by run: between them may stand blocks others have stored."""
    run: list[int] = []
    for place in range(lease.published_blocks, min(until, len(lease.chain)) + 1):
        block = lease.chain[place] if place < min(until, len(lease.chain)) else None
        if block in fresh:
            run.append(lease.chain[place])
        elif run:
            first = place - len(run)
            listener.stored(run, lease.chain[first - 1] if first else None)
            run = []
