"""The demo's KV-cache events: what they tell is what the pools hold, and names agree with rows."""

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.blocks.chains import Chains
from exporter.blocks.order import Heard, StreamName
from exporter.blocks.tracker import Tracker
from prefixscope.demo.blocks import BlockNumbers, salt_of, salted, text_of
from prefixscope.demo.events import ChainNames, KvEvents, block_tokens, engine_hash
from prefixscope.demo.fleet import Call
from prefixscope.demo.publishing import TOPIC, EventPublisher
from prefixscope.demo.rows import log_line
from prefixscope.demo.scenario import BLOCK_TOKENS
from prefixscope.demo.traffic import Traffic
from replay.blocks import BlockPool, Lease
from replay.hashes import chain_hashes, content_hashes, hash_key_id, scope_id

KEY = "k" * 64
END = 1_795_000_000.0
STREAM = StreamName("demo", "replica-0")


class Told:
    """The blocks a listener would hold, and the parent each was told with."""

    def __init__(self) -> None:
        self.parents: dict[int, int | None] = {}

    def stored(self, blocks: Sequence[int], parent: int | None) -> None:
        for block in blocks:
            assert block not in self.parents
            self.parents[block] = parent
            parent = block

    def evicted(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            del self.parents[block]


# A request: which shared beginning, how much of it, how many blocks of its own.
requests = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 5), st.integers(0, 3)),
    max_size=40,
)


@given(requests)
def test_a_pool_tells_all_it_stores_and_loses(given_requests: list[tuple[int, ...]]) -> None:
    told = Told()
    pool, running, fresh = BlockPool(24, told), list[Lease](), 1000
    for head, shared, own, ending in given_requests:
        chain = [head * 10 + place for place in range(shared)] + list(range(fresh, fresh + own))
        fresh += own
        lease = pool.start(chain, prompt_blocks=len(chain), reusable=len(chain) - 1,
                           total_blocks=len(chain) + 1)  # fmt: skip
        if lease is not None:
            pool.end_prefill(lease)
            running.append(lease)
            for block, before in zip(chain, [None, *chain], strict=False):
                assert told.parents[block] == before
        while len(running) > ending:
            pool.end(running.pop(0))
        assert set(told.parents) == set(pool._references) | set(pool._idle)


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    """Twelve hours, of which the last two are told of."""
    made = Traffic(start=END - 12 * 3600, end=END, requests_per_second=0.1, seed=3)
    made.names = ChainNames(KEY)
    made.advance(END - 2 * 3600)
    made.tell_events(END - 2 * 3600)
    return made


@pytest.fixture(scope="module")
def named(traffic: Traffic) -> list[tuple[Call, dict[str, Any]]]:
    """Calls of the last two hours whose rows have hashes, and those rows."""
    rows = [(call, json.loads(log_line(call, traffic.names))) for call in traffic.advance(END)]
    return [(call, row) for call, row in rows if "block_hashes" in row]


def test_the_exporters_state_is_the_pools(
    traffic: Traffic, named: list[tuple[Call, dict[str, Any]]]
) -> None:
    tracker, moment = Tracker(KEY), datetime.fromtimestamp(END, UTC)
    for replica in traffic.replicas:
        stream = StreamName("demo", replica.name)
        replica.events.flush()
        for sequence, payload in replica.events.batches:
            assert tracker.hear(stream, sequence, payload, moment) is Heard.APPLIED
    caches = {cache.replica: cache for cache in tracker.snapshot().caches}
    for replica in traffic.replicas:
        known = {*replica.pool._references, *replica.pool._idle}
        assert caches[replica.name].resident_blocks == len(known) > 100
        assert caches[replica.name].uncertain is None
    assert sum(cache.evicted_blocks for cache in caches.values()) > 1000
    assert len(named) > 300
    assert {row["hash_key_id"] for _, row in named} == {hash_key_id(KEY)}
    for _, row in named:
        blocks = row["prompt_tokens"] // BLOCK_TOKENS
        assert len(row["block_hashes"]) == blocks * BLOCK_TOKENS // 16
    # Prefixes are named by the same chain as the rows that used them.
    used = {hash_ for _, row in named for hash_ in row["block_hashes"]}
    prefixes = tracker.drain(moment).prefixes
    assert prefixes is not None
    assert {prefix.prefix for prefix in prefixes} & used


def test_events_and_rows_name_blocks_alike_in_every_scope(
    traffic: Traffic, named: list[tuple[Call, dict[str, Any]]]
) -> None:
    chains, heard = Chains(KEY), dict[int, int]()
    for replica in traffic.replicas:
        replica.events.flush()
        for _, payload in replica.events.batches:
            for event in msgspec.msgpack.decode(payload)[1]:
                if event["type"] == "BlockStored":
                    parent = event["parent_block_hash"]
                    before = None if parent is None else heard[parent]
                    told = chains.names(SimpleNamespace(**event), before)
                    heard.update(zip(event["block_hashes"], told, strict=True))
    scopes: Counter[str] = Counter()
    for call, row in named:
        for block, name in zip(call.chain, row["block_hashes"][3::4], strict=True):
            assert heard.get(engine_hash(block), name) == name
            scopes[row.get("scope", "")] += engine_hash(block) in heard
    assert len(scopes) == 3
    assert min(scopes.values()) > 100


def test_hashes_are_those_of_the_tokens_and_the_scope(
    named: list[tuple[Call, dict[str, Any]]],
) -> None:
    scopes = {None: "", **{t: scope_id(KEY, f"salt of {t}") or "" for t in ("cedar", "dogwood")}}
    for call, row in named[::3]:
        tokens = [token for block in call.chain for token in block_tokens(block)]
        scope = scopes.get(call.tenant, "")
        assert row.get("scope", "") == scope
        assert row["content_hashes"] == content_hashes(tokens, 16, KEY)
        assert row["block_hashes"] == chain_hashes(tokens, 16, scope, KEY)


def test_blocks_are_shared_just_where_their_chains_are(
    named: list[tuple[Call, dict[str, Any]]],
) -> None:
    # So that what the pool serves is what the rows' own hashes say can be served.
    pairs = {
        pair
        for call, row in named
        for pair in zip(call.chain, row["block_hashes"][3::4], strict=True)
    }
    assert len(pairs) == len({block for block, _ in pairs}) == len({name for _, name in pairs})


def test_salted_tenants_ask_what_all_ask_and_share_it_with_nobody(
    named: list[tuple[Call, dict[str, Any]]],
) -> None:
    heads: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    names: dict[str, set[int]] = defaultdict(set)
    for _, row in named:
        if row["template"] == "assistant":  # 900 tokens of system text are 14 blocks
            own = row["tenant"] if "scope" in row else ""
            heads[own].add(tuple(row["content_hashes"][: 14 * 4]))
            names[own].update(row["block_hashes"])
    assert set(heads) == {"", "cedar", "dogwood"}
    assert len(set.union(*heads.values())) == 1
    assert not names["cedar"] & names["dogwood"]
    assert not names[""] & (names["cedar"] | names["dogwood"])


def test_blocks_say_their_text_and_their_salt() -> None:
    numbers = BlockNumbers()
    first = [*numbers.of_own_text(3)]
    again = numbers.of_same_text(first)
    other = [*numbers.of_own_text(2)]
    assert len({*first, *again, *other}) == 8
    assert [text_of(block) for block in again] == [text_of(block) for block in first]
    assert len({text_of(block) for block in (*first, *other)}) == 5
    kept = salted(again, 2)
    assert [salt_of(block) for block in kept] == [2, 0, 0]
    assert [text_of(block) for block in kept] == [text_of(block) for block in first]
    assert len({*kept, *again}) == 4
    assert salted([], 1) == []


@settings(max_examples=30)
@given(st.integers(0, 2**62))
def test_a_block_is_always_the_same_tokens(block: int) -> None:
    assert len(block_tokens(block)) == BLOCK_TOKENS
    assert block_tokens(block) == block_tokens(block) != block_tokens(block + 1)
    assert engine_hash(block) != engine_hash(block + 1)


def test_a_stream_begins_with_what_is_resident_in_order() -> None:
    events = KvEvents()
    events.stored([1, 2, 3], None)
    events.stored([9], 2)
    events.evicted([3])
    events.begin(100.0)
    events.moment = 101.0
    events.stored([4, 5], 9)
    events.flush()
    first, second = (msgspec.msgpack.decode(payload) for _, payload in events.batches)
    assert [number for number, _ in events.batches] == [0, 1]
    assert (first[0], second[0]) == (100.0, 101.0)
    told = [(e["block_hashes"], e["parent_block_hash"]) for e in [*first[1], *second[1]]]
    one, two, nine = map(engine_hash, (1, 2, 9))
    assert told == [
        ([one], None), ([two], one), ([nine], two),
        ([engine_hash(4), engine_hash(5)], nine),
    ]  # fmt: skip


def test_a_restarted_process_counts_from_0_with_an_empty_cache() -> None:
    events = KvEvents()
    events.begin(1.0)
    events.stored([1], None)
    events.flush()
    events.restart()
    events.moment = 2.0
    events.stored([2], None)
    events.flush()
    assert [number for number, _ in events.batches] == [0]


@pytest.fixture
def sockets() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pair = context.socket(zmq.SUB), context.socket(zmq.DEALER)
    for socket in pair:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVTIMEO, 30_000)
    yield pair
    for socket in pair:
        socket.close()
    context.term()


def test_events_are_heard_and_replayed(
    sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes]],
) -> None:
    kept = [(number, b"batch %d" % number) for number in range(5)]
    publisher = EventPublisher(["a"], lambda _, first: [b for b in kept if b[0] >= first])
    try:
        live, replay = sockets
        at = publisher.endpoints["a"]
        live.set(zmq.SUBSCRIBE, b"")
        live.connect(at.live)
        replay.connect(at.replay)
        told: list[list[bytes]] = []
        while len(told) != 3:  # asked until all five are published
            replay.send_multipart([b"", struct.pack(">Q", 2)])
            told = list(iter(replay.recv_multipart, [b"", b"", struct.pack(">q", -1), b""]))
        expected = [[b"", TOPIC, struct.pack(">Q", n), b"batch %d" % n] for n in (2, 3, 4)]
        assert told == expected
        # The subscription takes a moment; what is published after it is heard, in order.
        number = len(kept)
        while not live.poll(50):
            kept.append((number, b"batch %d" % number))
            number += 1
            replay.poll(500)
        topic, sequence, payload = live.recv_multipart()
        assert topic == TOPIC
        assert payload == b"batch %d" % int.from_bytes(sequence, "big")
    finally:
        publisher.close()
