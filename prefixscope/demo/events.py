"""KV-cache events of the demo's replicas, as a vLLM publishes them.

They are what the block pool of `replay.blocks` tells while the traffic goes through it. A stream
begins some time before the demo's history ends; its first batch says what is resident then.
"""

import hashlib
import struct
from array import array
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from prefixscope.demo.blocks import salt_of, text_of
from prefixscope.demo.scenario import BLOCK_TOKENS, salt_number, salt_text
from replay.hashes import (
    HASH_GRAIN_TOKENS,
    content_hashes,
    extend_chain,
    hash_key_id,
    root_hash,
    scope_id,
)

SPAN_SECONDS = 2 * 3_600.0
# As many batches as vLLM keeps for a replay.
KEPT_BATCHES = 10_000
# Of so many texts names are kept, as prompts begin alike and turns repeat the ones before.
_KEPT_TEXTS = 10_000
_encode = msgspec.msgpack.Encoder().encode


def block_tokens(block: int) -> list[int]:
    """The token ids of a block of the demo: always the same of one text, and nobody's text."""
    packed = struct.pack("<q", text_of(block))
    return array("H", hashlib.shake_128(packed).digest(2 * BLOCK_TOKENS)).tolist()


def engine_hash(block: int) -> int:
    """What the engine calls a block."""
    digest = hashlib.blake2b(struct.pack("<q", block), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class ChainNames:
    """Names prompts as the tap does: keyed hashes of 16 tokens each."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.key_id = hash_key_id(key)
        self._of_text = lru_cache(_KEPT_TEXTS)(self._contents)

    def scope(self, tenant: str) -> str | None:
        """Name the trust boundary of a tenant's requests; None for a tenant without a salt."""
        return self._scope(salt_number(tenant))

    def of(self, blocks: Sequence[int]) -> tuple[list[int], list[int]]:
        """Chain and contents of a prompt that begins with these blocks."""
        contents = [each for block in blocks for each in self._of_text(text_of(block))]
        scope = self._scope(salt_of(blocks[0])) if blocks else None
        return extend_chain(root_hash(scope or "", self._key), contents, self._key), contents

    def _scope(self, salt: int) -> str | None:
        return scope_id(self._key, salt_text(salt))

    def _contents(self, text: int) -> list[int]:
        return content_hashes(block_tokens(text), HASH_GRAIN_TOKENS, self._key)


class KvEvents:
    """The event stream of one replica: a listener to its pool. Set `moment` before the pool works.

    Until `begin` only the blocks' parents are remembered, so that history costs little.
    """

    def __init__(self) -> None:
        self.moment = 0.0
        self.began = False
        self.batches: deque[tuple[int, bytes]] = deque(maxlen=KEPT_BATCHES)
        self._parents: dict[int, int | None] = {}
        self._events: list[dict[str, object]] = []
        self._events_moment = 0.0
        self._next = 0

    def begin(self, moment: float) -> None:
        """Start the stream with what is resident."""
        self.began, self.moment = True, moment
        for block in self._in_order():
            self._event(_stored([block], self._parents[block]))

    def restart(self) -> None:
        """The process starts anew: an empty cache, numbers from 0."""
        self._parents.clear()
        self._events.clear()
        self.batches.clear()
        self._next = 0

    def stored(self, blocks: Sequence[int], parent: int | None) -> None:
        """Blocks in a row became reusable."""
        before = parent
        for block in blocks:
            self._parents[block] = before
            before = block
        if self.began:
            self._event(_stored(blocks, parent))

    def evicted(self, blocks: Sequence[int]) -> None:
        """Blocks were lost to make room."""
        for block in blocks:
            del self._parents[block]
        if self.began:
            hashes = [engine_hash(block) for block in blocks]
            self._event({"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"})

    def flush(self) -> None:
        """End the batch under way, so that it can be published."""
        if self._events:
            packed = _encode([self._events_moment, self._events, 0])
            self.batches.append((self._next, packed))
            self._next += 1
            self._events = []

    def _event(self, event: dict[str, object]) -> None:
        """One batch holds the events of one moment."""
        if self.moment != self._events_moment:
            self.flush()
            self._events_moment = self.moment
        self._events.append(event)

    def _in_order(self) -> list[int]:
        """Resident blocks, each after the one before it."""
        ordered: dict[int, None] = {}
        for block in self._parents:
            line = []
            at: int | None = block
            while at is not None and at in self._parents and at not in ordered:
                line.append(at)
                at = self._parents[at]
            ordered.update(dict.fromkeys(reversed(line)))
        return list(ordered)


def _stored(blocks: Sequence[int], parent: int | None) -> dict[str, object]:
    # The salt stands with the first block of a prompt: all others are named behind it.
    salt = salt_text(salt_of(blocks[0])) if parent is None else None
    return {
        "type": "BlockStored",
        "block_hashes": [engine_hash(block) for block in blocks],
        "parent_block_hash": None if parent is None else engine_hash(parent),
        "token_ids": [token for block in blocks for token in block_tokens(block)],
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": None if salt is None else [[salt], *[None] * (len(blocks) - 1)],
    }
