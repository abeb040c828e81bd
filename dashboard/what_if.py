"""What if: what the store says of speed and memory, which an experiment begins with."""

from dataclasses import dataclass

import numpy as np

from dashboard.figures.rows import Row, Rows, number
from replay.hashes import HASH_GRAIN_TOKENS

_DEFAULT_SPEED, _DEFAULT_TOKENS = 20_000.0, 1_000_000
# What a page may ask of the exporter's memory at once, as `attribute` does.
MOST_HASHES = 10_000_000
# A table with an entry for each block and replica stands in memory.
MOST_REPLICAS = 64


@dataclass(frozen=True)
class Measured:
    """What an experiment begins with, and in words where each figure is from."""

    replicas: int
    capacity_tokens: int
    block_tokens: int
    prefill_tokens_per_second: float
    sources: tuple[str, ...]


def measured(replicas: Rows, memory: Rows, speeds: Rows) -> Measured:
    """From what engines and requests told; assumptions, named as such, where they told nothing."""
    serving = len([row for row in replicas if row.get("role") != "decode"])
    rooms = [number(row, "capacity_tokens") for row in memory]
    known_rooms = [room for room in rooms if room]
    blocks = [_block_tokens(row) for row in memory]
    known_blocks = [size for size in blocks if size]
    rates = [number(row, "tokens_per_second") for row in speeds]
    known_rates = [rate for rate in rates if rate]
    return Measured(
        min(max(serving, 1), MOST_REPLICAS),
        max(int(np.median(known_rooms)), 1) if known_rooms else _DEFAULT_TOKENS,
        max(set(known_blocks), key=known_blocks.count) if known_blocks else HASH_GRAIN_TOKENS,
        max(float(np.median(known_rates)), 1.0) if known_rates else _DEFAULT_SPEED,
        (
            f"{serving} replicas were heard" if serving else "no replica was heard: one is assumed",
            "memory as the engines tell (median)" if known_rooms else "memory is assumed",
            "block as the engines tell" if known_blocks else "block is assumed",
            "prefill speed estimated from first tokens (median)"
            if known_rates
            else "prefill speed is assumed",
        ),
    )


def _block_tokens(memory: Row) -> int | None:
    """Tokens a block of a replica, from what its memory holds in both."""
    tokens, blocks = number(memory, "capacity_tokens"), number(memory, "capacity_blocks")
    return round(tokens / blocks) if tokens and blocks else None
