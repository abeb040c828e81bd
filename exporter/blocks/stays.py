"""From KV-cache events to what each replica held and when, named as request rows name blocks.

What the live tracker forgets once it is counted, this keeps: recorded events are compared with
requests block by block. Token ids and salts become names on the way, and go no further.
"""

from array import array
from collections.abc import Sequence

from exporter.blocks.chains import NO_NAME, Chains
from exporter.blocks.wire import REMOVED, STORED, Batch, tier_of, unsigned, unsigned_hash
from exporter.records import TIERS
from replay.residency import ResidencyBook
from replay.traffic import Moments, Stays


class StayReader:
    """Takes the batches of all replicas, those of one in order; `tokens` of events are needed.

    `key` as the request rows were named with.
    """

    def __init__(self, key: str) -> None:
        self._chains = Chains(key)
        self._book = ResidencyBook()
        # Replica → tokens a block, as its last event that told.
        self.block_tokens: dict[int, int] = {}

    def take(self, replica: int, batch: Batch) -> None:
        """The next batch of a replica."""
        for event in batch.events:
            kind = type(event)
            if kind not in STORED and kind not in REMOVED:
                self._book.reset(replica)
                continue
            tier = tier_of(event.medium) or str(event.medium)
            hashes = unsigned(event.block_hashes)
            blocks = [(tier, block) for block in hashes]
            if kind in REMOVED:
                self._book.remove(replica, batch.ts, blocks)
            else:
                if event.block_size:
                    self.block_tokens[replica] = event.block_size
                self._book.store(replica, batch.ts, blocks, self._names(replica, event, hashes))
        self._book.end_batch(replica, batch.ts)

    def restart(self, replica: int) -> None:
        """The replica's process is another one: what it held is lost."""
        self._book.reset(replica)

    def told(self) -> tuple[Stays, Moments]:
        """What was held from when until when, and every reset."""
        return self._book.told()

    def _names(self, replica: int, event: object, hashes: "array[int]") -> Sequence[int]:
        """Names of blocks that come: worked out from their tokens, else known of another tier."""
        if not getattr(event, "token_ids", None):
            return [self._known(replica, block) for block in hashes]
        before = getattr(event, "parent_block_hash", None)
        parent = None if before is None else self._known(replica, unsigned_hash(before))
        return self._chains.names(event, parent)

    def _known(self, replica: int, block: int) -> int:
        """The name of a block in any tier; NO_NAME of one that is not there."""
        names = (self._book.name_of(replica, (tier, block)) for tier in TIERS)
        return next((name for name in names if name != NO_NAME), NO_NAME)
