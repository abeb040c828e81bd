"""Events of real engines must come to what the engines themselves said.

Expected values are worked out here from the decoded events by counting hashes, one at a time,
and from the engine's pages and answers; nothing of it is shared with the implementation.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from exporter.blocks.chains import Chains
from exporter.blocks.order import Heard, StreamName
from exporter.blocks.tiers import Tiers
from exporter.blocks.tracker import Tracker
from exporter.blocks.wire import Decoder
from replay.hashes import chain_hashes, scope_id
from tests.log_path import CAPTURES
from tests.unit_blocks.event_streams import KEY, captured, requests_of

FOLDER = CAPTURES / "vllm-0.32.0"
BLOCK = 32
WITH_EVENTS = ["main", "evict", "restart", "dp2", "external", "otel"]
SERIAL = {
    "main": ("01", "02", "03", "04", "05"),
    "evict": ("01", "02", "04"),
}


CONFIG = re.compile(
    r'^vllm:cache_config_info\{.*?engine="(\d+)".*?num_gpu_blocks="(\d+)"', re.MULTILINE
)
USAGE = re.compile(r'^vllm:kv_cache_usage_perc\{engine="(\d+)".*?\} (\S+)$', re.MULTILINE)


class Page:
    """What one metrics page says of each rank."""

    def __init__(self, scraped_unix: float, text: str) -> None:
        self.scraped_unix = scraped_unix
        self.blocks = {rank: int(blocks) for rank, blocks in CONFIG.findall(text)}
        self.usage = {rank: float(value) for rank, value in USAGE.findall(text)}


def pages_of(scenario: str) -> Iterator[Page]:
    folder = FOLDER / scenario / "metrics"
    for line in (folder / "index.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["file"]:
            yield Page(entry["scraped_unix"], (folder / entry["file"]).read_text())


def decoded(scenario: str) -> list[dict[str, Any]]:
    path = FOLDER / scenario / "kv-events.decoded.jsonl"
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    return [json.loads(line) for line in path.read_text().splitlines()]


def counted(rows: list[dict[str, Any]], until: float) -> dict[int, Counter[int]]:
    """Copies of every hash by rank after the batches up to a moment, one event after the other.

    A number that goes back is another process; a clear is applied where it stands."""
    held: dict[int, Counter[int]] = defaultdict(Counter)
    last: dict[str, int] = {}
    for row in rows:
        ts, events, rank = row["batch"]
        if ts > until:
            continue
        if row["seq"] < last.get(row["endpoint"], -1):
            held[rank].clear()
        last[row["endpoint"]] = row["seq"]
        for event in events:
            if event["type"] == "AllBlocksCleared":
                held[rank].clear()
            step = 1 if event["type"] == "BlockStored" else -1
            for block_hash in event.get("block_hashes", ()):
                held[rank][block_hash] += step
    return held


def heard_until(scenario: str, until: float, chains: bool = False) -> Tracker:
    tracker = Tracker(KEY, chains=chains)
    decoder = Decoder(tokens=False)
    for batch in captured(scenario):
        if decoder.decode(batch.payload).ts <= until:
            heard = tracker.hear(batch.stream, batch.sequence, batch.payload, batch.heard)
            assert heard in (Heard.APPLIED, Heard.RESTARTED)
    return tracker


@pytest.mark.parametrize("scenario", WITH_EVENTS)
def test_at_every_page_the_resident_blocks_are_the_counted_ones_and_fit_the_engine(
    scenario: str,
) -> None:
    rows = decoded(scenario)
    seen = 0
    for page in pages_of(scenario):
        expected = {
            rank: sum(copies.values()) for rank, copies in counted(rows, page.scraped_unix).items()
        }
        snapshot = heard_until(scenario, page.scraped_unix).snapshot()
        found = {cache.replica: cache.resident_blocks for cache in snapshot.caches}
        ranks = len(expected) > 1
        assert found == {
            f"pod/{rank}" if ranks else "pod": blocks for rank, blocks in expected.items()
        }
        assert all(cache.uncertain is None for cache in snapshot.caches)
        for rank, blocks in expected.items():
            usable = page.blocks[str(rank)] - 1  # one is the engine's null block
            running = round(page.usage[str(rank)] * usable)
            assert 0 <= blocks <= usable
            assert running <= usable
            seen += blocks > 0
    assert seen >= 2


@pytest.mark.parametrize("scenario", WITH_EVENTS)
@pytest.mark.parametrize("chains", [False, True], ids=["without chains", "with chains"])
def test_totals_are_the_events_that_were_published(scenario: str, chains: bool) -> None:
    rows = decoded(scenario)
    events = [event for row in rows for event in row["batch"][1]]
    stored = sum(len(e["block_hashes"]) for e in events if e["type"] == "BlockStored")
    removed = sum(len(e["block_hashes"]) for e in events if e["type"] == "BlockRemoved")
    left = sum(sum(copies.values()) for copies in counted(rows, float("inf")).values())
    caches = heard_until(scenario, float("inf"), chains).snapshot().caches
    assert sum(cache.stored_blocks for cache in caches) == stored
    assert sum(cache.evicted_blocks for cache in caches) == removed
    assert sum(cache.resident_blocks for cache in caches) == left
    assert sum(cache.reset_blocks for cache in caches) == stored - removed - left
    assert sum(cache.demoted_blocks + cache.promoted_blocks for cache in caches) == 0


def test_evict_ends_with_70_of_71_usable_blocks() -> None:
    (cache,) = heard_until("evict", float("inf")).snapshot().caches
    assert (cache.stored_blocks, cache.evicted_blocks, cache.resident_blocks) == (779, 709, 70)
    assert cache.resident_tokens == 70 * 32
    *_, last = pages_of("evict")
    assert last.blocks["0"] - 1 == 71


def test_t20_usage_zero_is_not_an_empty_cache() -> None:
    """The engine's gauge says 0 when idle; events say what is there."""
    *_, last = pages_of("evict")
    assert last.usage == {"0": 0.0}
    (cache,) = heard_until("evict", last.scraped_unix).snapshot().caches
    assert cache.resident_blocks == 70


def test_the_reset_of_main_is_a_reset_at_the_recorded_moment_and_no_eviction() -> None:
    facts = json.loads((FOLDER / "main" / "facts.json").read_text())
    moment = facts["reset_prefix_cache"]["unix"]
    rows = decoded("main")
    (place,) = [
        number
        for number, row in enumerate(rows)
        if any(event["type"] == "AllBlocksCleared" for event in row["batch"][1])
    ]
    before = sum(counted(rows[:place], float("inf"))[0].values())
    drained = heard_until("main", float("inf")).drain(datetime.fromtimestamp(moment, UTC))
    (reset,) = drained.resets
    assert (reset.reason, reset.tier, reset.blocks) == ("clear", "device", before)
    # Published with the batch after it, so it lies between the two: it counts from the first on.
    assert reset.ts.timestamp() == pytest.approx(rows[place - 1]["batch"][0], abs=1e-5)
    assert rows[place - 1]["batch"][0] < moment < rows[place]["batch"][0]
    assert sum(row.evicted_blocks for row in drained.minutes) == 0
    assert sum(row.reset_blocks for row in drained.minutes) == before


def test_t26_the_restart_of_a_real_engine_is_a_restart() -> None:
    rows = decoded("restart")
    restart = next(n for n in range(1, len(rows)) if rows[n]["seq"] < rows[n - 1]["seq"])
    before = sum(counted(rows[:restart], float("inf"))[0].values())
    drained = heard_until("restart", float("inf")).drain(datetime.now(UTC))
    (reset,) = drained.resets
    assert (reset.reason, reset.blocks) == ("restart", before)
    (stream,) = drained.streams
    assert (stream.restarts, stream.missed_batches, stream.uncertain) == (1, 0, None)
    assert sum(row.evicted_blocks for row in drained.minutes) == 0


def _block_keys(token_ids: list[int], salt: str | None) -> list[tuple[Any, ...]]:
    """Names of whole blocks for a plain set: everything before them, written out."""
    whole = len(token_ids) // BLOCK * BLOCK
    return [(salt, *token_ids[:end]) for end in range(BLOCK, whole + 1, BLOCK)]


class PlainIndex:
    """Which prefixes are resident, as a dictionary from engine hash to all tokens before it."""

    def __init__(self) -> None:
        self.prefixes: dict[int, tuple[Any, ...]] = {}
        self.copies: Counter[tuple[Any, ...]] = Counter()

    def apply(self, event: dict[str, Any]) -> None:
        if event["type"] == "AllBlocksCleared":
            self.prefixes.clear()
            self.copies.clear()
        elif event["type"] == "BlockRemoved":
            for block_hash in event["block_hashes"]:
                self.copies[self.prefixes[block_hash]] -= 1
        else:
            prefix = self.prefixes.get(event["parent_block_hash"])
            if prefix is None:
                prefix = ((event["extra_keys"][0] or [None])[0],)
            for number, block_hash in enumerate(event["block_hashes"]):
                prefix += tuple(event["token_ids"][number * BLOCK : (number + 1) * BLOCK])
                self.prefixes[block_hash] = prefix
                self.copies[prefix] += 1

    def cached_tokens(self, token_ids: list[int], salt: str | None) -> int:
        hits = 0
        for key in _block_keys(token_ids[:-1], salt):
            if not self.copies[key]:
                break
            hits += 1
        return hits * BLOCK


def _names_held(tiers: Tiers) -> set[int]:
    tiers.flush()
    return {name for _, cache in tiers.caches() for name in cache.holding()[0].tolist()}


@pytest.mark.parametrize(("scenario", "count"), [("main", 41), ("evict", 30)])
def test_events_alone_predict_the_cached_tokens_of_every_sequential_request(
    scenario: str, count: int
) -> None:
    requests = [
        request
        for request in requests_of(scenario)
        if request["phase"].startswith(SERIAL[scenario])
    ]
    assert len(requests) == count
    rows, decoder = decoded(scenario), Decoder(tokens=True)
    batches = [(decoder.decode(batch.payload), batch.heard) for batch in captured(scenario)]
    plain, tiers, applied = PlainIndex(), Tiers(Chains(KEY)), 0
    for request in requests:
        while applied < len(rows) and rows[applied]["batch"][0] < request["sent_unix"]:
            for event in rows[applied]["batch"][1]:
                plain.apply(event)
            tiers.apply(*batches[applied])
            applied += 1
        token_ids, salt = request["prompt_token_ids"], request["cache_salt"]
        held, hits = _names_held(tiers), 0
        chain = chain_hashes(token_ids[:-1], 16, scope_id(KEY, salt) or "", KEY)
        for name in chain[1::2]:
            if name not in held:
                break
            hits += 1
        reported = request["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert plain.cached_tokens(token_ids, salt) == reported
        assert hits * BLOCK == reported


def test_a_rank_given_by_the_transport_is_in_the_name_from_the_first_batch_on() -> None:
    tracker = Tracker(KEY, chains=False)
    for batch in captured("dp2"):
        rank = int(batch.stream.source[-1]) - 7  # ports 18557 and 18558
        stream = StreamName("events", "pod", "tiny", rank)
        tracker.hear(stream, batch.sequence, batch.payload, batch.heard)
    rows = decoded("dp2")
    expected = {
        f"pod/{rank}": sum(copies.values()) for rank, copies in counted(rows, float("inf")).items()
    }
    assert expected == {"pod/0": 314, "pod/1": 265}
    drained = tracker.drain(datetime.now(UTC))
    found: Counter[str] = Counter()
    for row in drained.minutes:
        found[row.replica] += row.stored_blocks
    assert found == expected
    assert {stream.replica for stream in drained.streams} == set(expected)
