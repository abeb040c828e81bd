"""Decoding KV-cache events and keeping the state they tell, against msgspec's typed decode.

The stream is vLLM's: map bodies, runs of new blocks with token ids, removals one block an event,
the end of a prompt first. It fills a cache of a million blocks and then turns it over by a
share. The baseline decodes every field into typed structs and drops them: the least anybody who
reads events does. Times are of the process (CPU), both sides over the same payloads in memory.
"""

import argparse
import gc
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from exporter.blocks.order import StreamName
from exporter.blocks.tracker import Tracker

RATIO_BAR = 3.0
RATE_BAR = 0.7e6
BYTES_BAR = 160
BLOCK_TOKENS = 16
_STARTED = 1_780_000_000.0


class StoredAll(msgspec.Struct, tag="BlockStored", gc=False):
    """Every field vLLM sends of stored blocks."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[Any] | None] | None
    group_idx: int | None
    kv_cache_spec_kind: str | None


class RemovedAll(msgspec.Struct, tag="BlockRemoved", gc=False):
    """Every field of removed ones."""

    block_hashes: list[int | bytes]
    medium: str | None
    group_idx: int | None


class BatchAll(msgspec.Struct, array_like=True, gc=False):
    """The batch around them."""

    ts: float
    events: list[StoredAll | RemovedAll]
    data_parallel_rank: int | None


class Stream:
    """Payloads of a generated engine, and how many block operations they hold."""

    def __init__(self, resident_blocks: int, churn_ratio: float, seed: int) -> None:
        self._random = random.Random(seed)
        self._capacity = resident_blocks
        self._total = int(resident_blocks * (1 + churn_ratio))
        self.operations = 0

    def payloads(self) -> Iterator[bytes]:
        prompts: list[list[int]] = []
        stored = resident = number = 0
        while stored < self._total:
            events: list[dict[str, Any]] = []
            for _ in range(4):
                run = [self._random.getrandbits(64) for _ in range(self._random.randint(1, 64))]
                while resident + len(run) > self._capacity:
                    victim = prompts.pop(0)
                    events += [_removed(block) for block in reversed(victim)]
                    resident -= len(victim)
                    self.operations += len(victim)
                parent = self._random.choice(prompts)[-1] if prompts and len(run) % 3 else None
                events.append(_stored(run, parent, self._random))
                prompts.append(run)
                stored += len(run)
                resident += len(run)
                self.operations += len(run)
            number += 1
            yield msgspec.msgpack.encode([_STARTED + number * 0.02, events, 0])


def _removed(block: int) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [block], "medium": "GPU", "group_idx": 0}


def _stored(run: list[int], parent: int | None, source: random.Random) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": run,
        "parent_block_hash": parent,
        "token_ids": source.choices(range(128_000), k=BLOCK_TOKENS * len(run)),
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(run),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def baseline_seconds(payloads: list[bytes]) -> float:
    """Typed decode of all fields, results dropped."""
    decoder = msgspec.msgpack.Decoder(BatchAll)
    began = time.process_time()
    for payload in payloads:
        decoder.decode(payload)
    return time.process_time() - began


def resident_bytes() -> int:
    """Memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def state_seconds(payloads: list[bytes], chains: bool) -> tuple[float, Tracker]:
    """Our decode, order, state and histograms, drained at the end."""
    tracker = Tracker("a key", chains=chains)
    stream = StreamName("bench", "replica", "model")
    heard = datetime.fromtimestamp(_STARTED, UTC)
    began = time.process_time()
    for number, payload in enumerate(payloads):
        tracker.hear(stream, number, payload, heard)
    tracker.snapshot()
    return time.process_time() - began, tracker


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000, help="resident blocks")
    parser.add_argument("--churn", type=float, default=0.3, help="share turned over")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    stream = Stream(options.blocks, options.churn, options.seed)
    payloads = list(stream.payloads())
    size = sum(map(len, payloads))
    print(
        f"{options.blocks:,} resident blocks, {stream.operations:,} operations in"
        f" {len(payloads):,} batches, {size / 1e6:,.0f} MB; Python {platform.python_version()},"
        f" msgspec {msgspec.__version__}"
    )
    baseline_seconds(payloads[:200])
    baseline = min(baseline_seconds(payloads) for _ in range(2))
    print(f"typed decode of all fields: {baseline:.2f} s CPU")
    fine = True
    for chains in (False, True):
        gc.collect()
        before = resident_bytes()
        seconds, tracker = state_seconds(payloads, chains)
        ratio, rate = seconds / baseline, stream.operations / seconds
        (cache,) = tracker.snapshot().caches
        memory = tracker.memory_bytes() / cache.resident_blocks
        grown = (resident_bytes() - before) / cache.resident_blocks
        began = time.process_time()
        tracker.drain(datetime.now(UTC))
        drain = time.process_time() - began
        print(
            f"{'with' if chains else 'without'} chains: {seconds:.2f} s, {ratio:.2f} x (bar"
            f" {RATIO_BAR}), {rate / 1e6:.2f} M operations/s (bar {RATE_BAR / 1e6}),"
            f" {memory:.0f} bytes of state a resident block, the process grew by {grown:.0f}"
            f" (bar {BYTES_BAR}); a drain {drain:.2f} s"
        )
        fine &= max(memory, grown) <= BYTES_BAR
        del tracker
        if not chains:
            fine &= ratio <= RATIO_BAR and rate >= RATE_BAR
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
