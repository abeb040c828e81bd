"""Event batches written out by hand, as vLLM from 0.24 on sends them: maps in an array."""

from collections import Counter
from collections.abc import Sequence

import msgspec

SIZE = 16
CANARY_TOKEN = 777_000
CANARY_SALT = "salt-of-the-canary"


def stored(
    *hashes: int, parent: int | None = None, first_token: int = 1, medium: str = "GPU",
    salt: str | None = None,
) -> dict[str, object]:  # fmt: skip
    """Blocks stored one behind the other; tokens count up from `first_token`."""
    tokens = list(range(first_token, first_token + SIZE * len(hashes)))
    return {
        "type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent,
        "token_ids": tokens, "block_size": SIZE, "lora_id": None, "medium": medium,
        "extra_keys": [[salt] if salt and not number else None for number, _ in enumerate(hashes)],
    }  # fmt: skip


def removed(*hashes: int, medium: str = "GPU") -> dict[str, object]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": medium}


CLEARED: dict[str, object] = {"type": "AllBlocksCleared"}


def batch(unix: float, *events: dict[str, object], rank: int = 0) -> bytes:
    """One message's payload."""
    return msgspec.msgpack.encode([unix, list(events), rank])


def resident(events: Sequence[dict[str, object]]) -> Counter[object]:
    """What is held after these events, and how often: some engines store a block twice."""
    held: Counter[object] = Counter()
    for event in events:
        hashes = event.get("block_hashes")
        told = Counter(hashes if isinstance(hashes, list) else ())
        if event["type"] == "BlockStored":
            held += told
        elif event["type"] == "BlockRemoved":
            held -= told
        else:
            held.clear()
    return held
