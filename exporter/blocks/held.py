"""What a cache held and when, by names of our own."""

from dataclasses import dataclass

from exporter.blocks.ages import Seconds
from replay.hash_table import Keys


@dataclass(frozen=True)
class HeldCache:
    """One tier of a replica. `names` were made with the key `key_id`, one for each block of
    `block_tokens`; each was here from `since` until `until` (infinity: still)."""

    replica: str
    block_tokens: int
    key_id: str
    names: Keys
    since: Seconds
    until: Seconds
