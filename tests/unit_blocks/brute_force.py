"""The caches of a small engine, and what its events mean, worked out one block at a time.

Nothing here is shared with the implementation: sets and dictionaries, every ancestor touched at
every use, ages kept as they are.
"""

import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from tests.unit_blocks.event_streams import Event, removed, stored

BLOCK = 16


def bucket(age: float) -> int:
    return math.floor(math.log(max(age, 0.001)) / math.log(1.08))


def hashes_of(blocks: Sequence[int]) -> list[int]:
    """Chain hashes of a prompt whose blocks have these contents."""
    chain: list[int] = []
    before = b""
    for content in blocks:
        before = sha256(before + content.to_bytes(4, "big")).digest()
        chain.append(int.from_bytes(before[-8:], "big"))
    return chain


def tokens_of(blocks: Sequence[int]) -> list[int]:
    return [content * 100 + place for content in blocks for place in range(BLOCK)]


class Engine:
    """A prefix cache as vLLM keeps it, one request after the other: the least recently used
    block goes first, of one prompt the last one first."""

    def __init__(self, capacity_blocks: int) -> None:
        self.capacity_blocks = capacity_blocks
        self.idle: OrderedDict[int, None] = OrderedDict()

    def serve(self, blocks: Sequence[int]) -> tuple[int, list[Event]]:
        """Blocks reused, and the events of one request."""
        chain = hashes_of(blocks[: self.capacity_blocks])
        hits = 0
        while hits < len(chain) and chain[hits] in self.idle:
            hits += 1
        for block in chain[:hits]:
            del self.idle[block]
        events: list[Event] = []
        while len(self.idle) + len(chain) > self.capacity_blocks:
            events.append(removed([self.idle.popitem(last=False)[0]]))
        # What lies behind a block that was lost may still be there under the same hash.
        again = [block for block in chain[hits:] if block in self.idle]
        for block in again:
            del self.idle[block]
            events.append(removed([block]))
        if chain[hits:]:
            parent = chain[hits - 1] if hits else None
            tokens = tokens_of(blocks[hits : len(chain)])
            events.append(stored(chain[hits:], parent, tokens=tokens))
        self.idle.update(dict.fromkeys(reversed(chain)))
        return hits, events

    def clear(self) -> None:
        self.idle.clear()


@dataclass
class _Block:
    stored: float
    touched: float
    parent: int | None
    copies: int = 1
    children: int = 0
    reused: bool = False


@dataclass
class Model:
    """What events in order mean for one tier."""

    blocks: dict[int, _Block] = field(default_factory=dict)
    stored: int = 0
    evicted: int = 0
    reset: int = 0
    unknown: int = 0
    lifetime: Counter[int] = field(default_factory=Counter)
    idle: Counter[int] = field(default_factory=Counter)
    wanted_again: Counter[int] = field(default_factory=Counter)
    reused: int = 0
    lost_at: dict[int, float] = field(default_factory=dict)

    @property
    def resident(self) -> int:
        return sum(block.copies for block in self.blocks.values())

    def apply(self, events: Sequence[Event], ts: float) -> None:
        for event in events:
            if event["type"] == "BlockStored":
                self._store(event, ts)
            elif event["type"] == "BlockRemoved":
                for block_hash in event["block_hashes"]:
                    self._remove(block_hash, ts)
            else:
                self.clear()

    def clear(self) -> None:
        self.reset += self.resident
        self.blocks.clear()
        self.lost_at.clear()

    def _store(self, event: Event, ts: float) -> None:
        parent = event["parent_block_hash"]
        if parent in self.blocks:
            self._touch(parent, ts)
            if self.blocks[parent].children:
                self._reuse(parent)
        for block_hash in event["block_hashes"]:
            self._add(block_hash, parent, ts)
            parent = block_hash

    def _add(self, block_hash: int, parent: int | None, ts: float) -> None:
        self.stored += 1
        if block_hash in self.lost_at:
            self.wanted_again[bucket(ts - self.lost_at.pop(block_hash))] += 1
        if block_hash in self.blocks:
            self.blocks[block_hash].copies += 1
            self._touch(block_hash, ts)
        else:
            known = parent if parent in self.blocks else None
            self.blocks[block_hash] = _Block(ts, ts, known)
        if parent in self.blocks:
            self.blocks[parent].children += 1

    def _ancestors(self, block_hash: int | None) -> list[_Block]:
        """The block and all before it; events in any order may make a ring of them."""
        found: dict[int, _Block] = {}
        while block_hash in self.blocks and block_hash not in found:
            found[block_hash] = self.blocks[block_hash]
            block_hash = found[block_hash].parent
        return list(found.values())

    def _touch(self, block_hash: int, ts: float) -> None:
        for block in self._ancestors(block_hash):
            block.touched = max(block.touched, ts)

    def _reuse(self, block_hash: int) -> None:
        for block in self._ancestors(block_hash):
            block.reused = True

    def _remove(self, block_hash: int, ts: float) -> None:
        block = self.blocks.get(block_hash)
        if block is None:
            self.unknown += 1
            return
        self.evicted += 1
        block.copies -= 1
        if block.copies == 0:
            self.lifetime[bucket(ts - block.stored)] += 1
            self.idle[bucket(ts - block.touched)] += 1
            self.reused += block.reused
            self.lost_at[block_hash] = ts
            del self.blocks[block_hash]
