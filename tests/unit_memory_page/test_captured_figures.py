"""Questions over captured events of a real vLLM, against a brute-force set of blocks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.events.recorded import ingest_events
from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from queries import registry

CAPTURES = Path(__file__).parents[3] / "shared" / "captures" / "vllm-0.32.0"
BLOCK_TOKENS = 32

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="the captures are not on this machine"
)


class Blocks:
    """Every block by itself: which hashes are there, which were and are wanted again."""

    def __init__(self, events: Iterator[dict[str, Any]]) -> None:
        self.resident: dict[int, int] = {}
        self.lost: set[int] = set()
        self.stored = self.removed = self.wanted_again = self.cleared = 0
        kinds = {"BlockStored": self._store, "BlockRemoved": self._remove,
                 "AllBlocksCleared": self._clear}  # fmt: skip
        for event in events:
            kinds[event["type"]](event)

    def _store(self, event: dict[str, Any]) -> None:
        for block in event["block_hashes"]:
            self.stored += 1
            self.wanted_again += block in self.lost
            self.lost.discard(block)
            self.resident[block] = self.resident.get(block, 0) + 1

    def _remove(self, event: dict[str, Any]) -> None:
        for block in event["block_hashes"]:
            self.removed += 1
            self.resident[block] -= 1
            if not self.resident[block]:
                del self.resident[block]
                self.lost.add(block)

    def _clear(self, _: dict[str, Any]) -> None:
        self.cleared += sum(self.resident.values())
        self.resident.clear()


def brute_force(folder: Path) -> Blocks:
    lines = (folder / "kv-events.decoded.jsonl").read_text().splitlines()
    batches = (json.loads(line)["batch"] for line in lines)
    return Blocks(event for batch in batches for event in batch[1])


@pytest.fixture
def loaded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Store, Blocks]]:
    folder = CAPTURES / request.param
    store = Store.open(tmp_path / "store")
    ingest_pages(store, [folder / "metrics" / "index.jsonl"])
    with (folder / "kv-events.raw.jsonl").open("rb") as stream:
        ingest_events(store, stream, source="kv", replica=folder.name)
    yield store, brute_force(folder)
    store.close()


def ask(store: Store, name: str, **params: object) -> list[dict[str, Any]]:
    return registry.rows(registry.run(store.cursor(), name, params))


@pytest.mark.parametrize("loaded", ["evict"], indirect=True)
def test_t20_evictions_and_split_of_a_full_cache(loaded: tuple[Store, Blocks]) -> None:
    store, blocks = loaded
    (row,) = ask(store, "evictions")
    told = (row["stored_blocks"], row["evicted_blocks"], row["reset_blocks"])
    assert told == (blocks.stored, blocks.removed, 0) == (779, 709, 0)
    (split,) = ask(store, "memory_split")
    # Nothing runs at the last page, so all that is resident is cached.
    assert split["running_tokens"] == 0
    assert split["cached_tokens"] == len(blocks.resident) * BLOCK_TOKENS == 70 * BLOCK_TOKENS
    assert split["free_tokens"] == split["capacity_tokens"] - 70 * BLOCK_TOKENS
    ages = {row["kind"]: row for row in ask(store, "block_ages") if row["basis"] == "events"}
    assert ages["lifetime"]["sampled"] == 709
    assert ages["evicted_reuse_gap"]["sampled"] == blocks.wanted_again
    # The engine's own sample of the same losses stands beside it and agrees on the size.
    (own,) = (r for r in ask(store, "block_ages")
              if (r["kind"], r["basis"]) == ("lifetime", "engine sample"))  # fmt: skip
    assert own["mean_seconds"] == pytest.approx(ages["lifetime"]["mean_seconds"], rel=0.1)
    over_time = ask(store, "evictions_over_time", step_seconds=60)
    assert sum(row["evicted_blocks"] for row in over_time) == 709
    held = ask(store, "resident_contents")
    assert sum(row["tokens"] for row in held) == 70 * BLOCK_TOKENS
    assert sum(row["share_ratio"] for row in held) == pytest.approx(1)


@pytest.mark.parametrize("loaded", ["main"], indirect=True)
def test_t27_a_clear_is_a_reset_and_no_eviction(loaded: tuple[Store, Blocks]) -> None:
    store, blocks = loaded
    (row,) = ask(store, "evictions")
    assert (row["stored_blocks"], row["evicted_blocks"]) == (blocks.stored, 0)
    assert row["reset_blocks"] == blocks.cleared > 0
    (reset,) = ask(store, "block_resets")
    assert (reset["reason"], reset["blocks"], reset["basis"]) == ("clear", blocks.cleared, "events")
    assert row["stored_blocks"] - row["reset_blocks"] == len(blocks.resident)
    # The last page says that nothing runs: what was stored after the clear is cached.
    (split,) = ask(store, "memory_split")
    assert split["cached_tokens"] == sum(blocks.resident.values()) * BLOCK_TOKENS
