"""Gives blocks their names as they come: where a chain stands is looked up, not worked out anew.

Looks in all tiers of a replica, for a block that is offloaded comes with nothing but its hash.
"""

from array import array
from collections.abc import Sequence
from typing import Any

from exporter.blocks.chains import NO_NAME, Chains
from exporter.blocks.residency import Residency
from exporter.blocks.wire import unsigned_hash

# Our name of a block, and its 1-based place in its prompt (0 = not known).
Known = tuple[int, int]
_UNKNOWN: Known = (NO_NAME, 0)


class Naming:
    """Hands stored blocks to a cache with their names; remembers those that wait there."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        self._waiting: dict[int, Known] = {}

    def applied(self) -> None:
        """Nothing waits any more: the caches know."""
        self._waiting.clear()

    def store(
        self,
        event: Any,  # noqa: ANN401 - any of the classes of stored events
        ts: float,
        parent: int | None,
        cache: Residency,
        others: Sequence[Residency],
    ) -> None:
        """Put a BlockStored to what waits in `cache`; `others`: the replica's other tiers."""
        caches = (cache, *others)
        if event.block_size < 1 or not event.token_ids:
            self._store_placeholder(event.block_hashes, ts, caches)
            return
        known = None if parent is None else self._known(parent, caches)
        names = self._chains.names(event, None if known is None else known[0])
        depth = 1 if known is None else known[1] and known[1] + 1
        cache.pending.store(event.block_hashes, ts, parent, names=names, depth=depth)
        for offset, block_hash in enumerate(event.block_hashes):
            self._waiting[unsigned_hash(block_hash)] = names[offset], depth and depth + offset

    def _store_placeholder(
        self, hashes: Sequence[int | bytes], ts: float, caches: Sequence[Residency]
    ) -> None:
        """Blocks told by their hashes alone. Those that follow each other in their prompt are
        taken for a chain."""
        known = [self._known(unsigned_hash(each), caches) for each in hashes]
        start = 0
        for end in range(1, len(hashes) + 1):
            if end < len(hashes) and 0 < known[end][1] == known[end - 1][1] + 1:
                continue
            names = array("Q", [name for name, _ in known[start:end]])
            depth = known[start][1]
            caches[0].pending.store(hashes[start:end], ts, None, names=names, depth=depth)
            start = end

    def _known(self, block_hash: int, caches: Sequence[Residency]) -> Known:
        """What the first cache that has the block says of it."""
        if block_hash in self._waiting:
            return self._waiting[block_hash]
        found = (cache.name_and_depth(block_hash) for cache in caches)
        return next((each for each in found if each is not None), _UNKNOWN)
