"""Copies over the fleet, the prefixes that hold most, and what requests tell of them."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.blocks import contents
from exporter.blocks.order import StreamName
from exporter.blocks.rows import BlockCopies, Drained, ResidentPrefix, UsedPrefix
from exporter.blocks.tracker import Tracker
from replay.hashes import chain_hashes, hash_key_id, scope_id
from tests.unit_blocks.brute_force import bucket, hashes_of, tokens_of
from tests.unit_blocks.event_streams import KEY, Event, Listener, moment, payload, removed, stored

KEY_ID = hash_key_id(KEY)


def prompt(blocks: Sequence[int], known: int = 0) -> Event:
    """The event of a prompt of which the first `known` blocks were there already."""
    chain = hashes_of(blocks)
    parent = chain[known - 1] if known else None
    return stored(chain[known:], parent, tokens=tokens_of(blocks[known:]))


def name_of(blocks: Sequence[int]) -> int:
    return chain_hashes(tokens_of(blocks), 16, "", KEY)[-1]


def used(
    blocks: Sequence[int], ts: datetime, replica: str | None = "pod", **more: object
) -> UsedPrefix:
    row = UsedPrefix(
        ts=ts,
        replica=replica,
        model="tiny",
        block_hashes=chain_hashes(tokens_of(blocks), 16, "", KEY),
        hash_scope="global",
        hash_key_id=KEY_ID,
        cached_tokens=None,
        template=None,
        tenant=None,
    )
    return row._replace(**more)


def drained(listener: Listener, seconds: float = 60.0) -> Drained:
    return listener.tracker.drain(moment(seconds))


def by_prefix(rows: Sequence[ResidentPrefix] | None) -> dict[int, ResidentPrefix]:
    assert rows is not None
    return {row.prefix: row for row in rows}


# ------------------------------------------------------------------ prefixes


def test_a_shared_prefix_stands_for_what_continues_it() -> None:
    """System prompt of three blocks; two conversations go on from it; a third is alone."""
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2, 3, 10, 11]))
    listener.hear(prompt([1, 2, 3, 20], known=3), seconds=1)
    listener.hear(prompt([7, 8]), seconds=2)
    rows = by_prefix(drained(listener).prefixes)
    assert set(rows) == {name_of([1, 2, 3]), name_of([7, 8])}
    shared = rows[name_of([1, 2, 3])]
    assert (shared.prefix_tokens, shared.blocks, shared.tokens, shared.replicas) == (48, 6, 96, 1)
    assert shared.last_used == moment(1)
    alone = rows[name_of([7, 8])]
    assert (alone.prefix_tokens, alone.blocks) == (32, 2)
    assert shared.hash_key_id == KEY_ID


def test_a_prefix_within_a_prefix_has_a_row_of_its_own() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2, 30, 31]))
    listener.hear(prompt([1, 2, 30, 32], known=3), seconds=1)
    listener.hear(prompt([1, 2, 40], known=2), seconds=2)
    rows = by_prefix(drained(listener).prefixes)
    blocks = {name: row.blocks for name, row in rows.items()}
    assert blocks == {name_of([1, 2, 30]): 3, name_of([1, 2]): 3}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.lists(st.integers(0, 2), min_size=1, max_size=6)),
        min_size=1,
        max_size=25,
    )
)
def test_no_block_is_in_two_prefixes_and_none_is_left_out(
    prompts: list[tuple[int, list[int]]],
) -> None:
    """Against prompts written out: the sum over prefixes is every named block, each once."""
    tracker = Tracker(KEY)
    held: list[set[tuple[int, ...]]] = [set(), set()]
    sequences = [0, 0]
    for replica, blocks in prompts:
        known = 0
        while known < len(blocks) and tuple(blocks[: known + 1]) in held[replica]:
            known += 1
        if known == len(blocks):
            continue
        held[replica] |= {tuple(blocks[:end]) for end in range(known + 1, len(blocks) + 1)}
        stream = StreamName("events", f"pod-{replica}", "tiny")
        tracker.hear(stream, sequences[replica], payload([prompt(blocks, known)]), moment(0))
        sequences[replica] += 1
    result = tracker.drain(moment(1))
    rows = by_prefix(result.prefixes)
    every = [prefix for each in held for prefix in each]
    assert sum(row.blocks for row in rows.values()) == len(every)
    names = {name_of(prefix): prefix for prefix in every}
    distinct = set(every)
    owned: Counter[int] = Counter()
    for prefix in every:
        owned[_owner(prefix, distinct)] += 1
    assert {name: row.blocks for name, row in rows.items()} == owned
    for name, row in rows.items():
        assert row.prefix_tokens == 16 * len(names[name])
        assert row.replicas == sum(names[name] in each for each in held)
    fleet = result.copies[0]
    assert (fleet.unique_blocks, fleet.resident_blocks) == (len(distinct), len(every))
    for row in result.copies[1:]:
        both = len(held[0] & held[1])
        assert (row.unique_blocks, row.resident_blocks, row.shared_blocks) == (
            len(held[0] | held[1]), len(held[0]) + len(held[1]), both,
        )  # fmt: skip


def _owner(prefix: tuple[int, ...], every: set[tuple[int, ...]]) -> int:
    """The end of the shared prefix a block belongs to, by walking: on to where prompts part if
    that is the only way on, else back to where they parted."""

    def following(of: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [each for each in every if each[:-1] == of]

    end = prefix
    while len(following(end)) == 1:
        (end,) = following(end)
    if len(following(end)) > 1:
        return name_of(end)
    back = prefix
    while back and len(following(back)) < 2:
        back = back[:-1]
    return name_of(back or end)


def test_prefixes_left_out_of_the_list_count_with_the_one_they_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contents, "LISTED_PREFIXES", 1)
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2, 3, 4]))
    for own in range(10, 15):
        listener.hear(prompt([1, 2, 3, 4, own], known=4), seconds=own)
    listener.hear(prompt([1, 2, 3, 4, 10, 50], known=5), seconds=20)
    listener.hear(prompt([1, 2, 3, 4, 10, 51], known=5), seconds=20)
    (row,) = drained(listener).prefixes or ()
    # Four shared blocks, five own ones, and two behind one of those.
    assert (row.prefix, row.blocks) == (name_of([1, 2, 3, 4]), 11)


def test_a_salted_prompt_is_another_prefix() -> None:
    listener = Listener(chains=True)
    for number, salt in enumerate(("a", "b")):
        hashes = [number * 10 + 1, number * 10 + 2]
        tokens = tokens_of([1, 2])
        listener.hear(stored(hashes, tokens=tokens, extra_keys=[[salt], None]), seconds=number)
    expected = {
        chain_hashes(tokens_of([1, 2]), 16, scope_id(KEY, salt) or "", KEY)[-1]
        for salt in ("a", "b")
    }
    result = drained(listener)
    assert set(by_prefix(result.prefixes)) == expected
    assert result.copies[0].unique_blocks == 4


# ------------------------------------------------------------------ copies


def test_copies_and_overlap_of_three_replicas() -> None:
    tracker = Tracker(KEY)
    prompts = {"a": [1, 2, 3], "b": [1, 2, 9], "c": [5]}
    for replica, blocks in prompts.items():
        stream = StreamName("events", replica, "tiny")
        tracker.hear(stream, 0, payload([prompt(blocks)]), moment(0))
    rows = tracker.drain(moment(1)).copies

    def row(a: str | None, b: str | None) -> BlockCopies:
        (found,) = (each for each in rows if (each.replica_a, each.replica_b) == (a, b))
        return found

    # Blocks are prefixes: 1, 12, 123, 129 and 5, of which 1 and 12 are twice there.
    fleet = row(None, None)
    assert (fleet.unique_blocks, fleet.resident_blocks, fleet.shared_blocks) == (5, 7, None)
    pair = row("a", "b")
    assert (pair.unique_blocks, pair.resident_blocks, pair.shared_blocks) == (4, 6, 2)
    assert row("a", "c").shared_blocks == row("b", "c").shared_blocks == 0
    assert tracker.snapshot().copies == {"tiny": (5, 7)}
    assert not tracker.drain(moment(2)).copies  # once a minute


def test_many_blocks_are_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "COPIES_SAMPLE", 2_000)
    names = np.random.default_rng(5).integers(1, 2**63, 60_000, dtype=np.uint64)
    ones, depths = np.ones(40_000, np.int32), np.ones(40_000, np.int32)
    holdings = [
        contents.Holding(
            replica, "tiny", "device", 16, held, np.zeros(40_000, np.uint64), depths, ones,
            np.zeros(40_000),
        )
        for replica, held in (("a", names[:40_000]), ("b", names[20_000:]))
    ]  # fmt: skip
    rows, _ = contents.Contents(KEY_ID).look_through(holdings, [], moment(0))
    fleet, pair = rows
    assert fleet.unique_blocks == pytest.approx(60_000, rel=0.1)
    assert fleet.resident_blocks == pytest.approx(80_000, rel=0.1)
    assert pair.shared_blocks == pytest.approx(20_000, rel=0.15)


def test_a_look_at_many_blocks_stays_good_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_SECONDS_PER_BLOCK", 10.0)
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2]))
    assert drained(listener, 1).prefixes is not None
    listener.hear(prompt([1, 3], known=1), seconds=2)
    assert drained(listener, 20).prefixes is None
    assert len(drained(listener, 32).prefixes or ()) == 1
    # Nothing has happened since.
    assert drained(listener, 500).prefixes is None


def test_a_stream_that_is_forgotten_is_drained_once_more_and_holds_nothing() -> None:
    tracker = Tracker(KEY)
    for replica in ("a", "b"):
        stream = StreamName("events", replica, "tiny")
        tracker.hear(stream, 0, payload([prompt([1])]), moment(0))
    tracker.forget(StreamName("events", "a", "tiny"))
    result = tracker.drain(moment(1))
    assert {row.replica for row in result.minutes} == {"a", "b"}
    assert (result.copies[0].unique_blocks, result.copies[0].resident_blocks) == (1, 1)
    assert [row.replica for row in tracker.drain(moment(2)).streams] == ["b"]
    assert [cache.replica for cache in tracker.snapshot().caches] == ["b"]


def test_without_chains_there_are_no_copies_and_no_prefixes() -> None:
    listener = Listener(chains=False)
    listener.hear(prompt([1, 2]))
    result = drained(listener)
    assert (list(result.copies), result.prefixes) == ([], None)


# ------------------------------------------------------------------ what requests tell


def test_a_request_is_a_use_of_the_blocks_that_were_there() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2, 3]))
    listener.tracker.touch([used([1, 2, 9, 9], moment(40))])
    listener.hear(removed(reversed(hashes_of([1, 2, 3]))), seconds=100)
    (row, later) = listener.minutes()
    assert row.reuse_gap == {bucket(40): 2}
    assert later.idle == {bucket(100): 1, bucket(60): 2}
    # The third was stored before requests could tell of it.
    assert (later.never_reused_blocks, later.reuse_known_blocks) == (0, 2)


def test_blocks_no_request_came_back_for_are_never_reused() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([7]))
    listener.tracker.touch([used([7], moment(5))])
    listener.hear(prompt([1, 2, 3]), seconds=10)
    listener.tracker.touch([used([1], moment(20), cached_tokens=16)])
    listener.hear(removed(reversed(hashes_of([1, 2, 3]))), seconds=30)
    (row,) = listener.minutes()
    assert (row.never_reused_blocks, row.reuse_known_blocks) == (2, 3)


def test_a_request_does_not_reuse_what_it_stored_itself() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2]), seconds=10)
    listener.tracker.touch([used([1, 2], moment(9))])
    listener.hear(removed(reversed(hashes_of([1, 2]))), seconds=30)
    (row,) = listener.minutes()
    assert (row.never_reused_blocks, row.reuse_known_blocks, row.reuse_gap) == (2, 2, {})


def test_only_cached_tokens_of_a_request_are_uses() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2, 3]))
    listener.tracker.touch([used([1, 2, 3], moment(30), cached_tokens=33)])
    (row,) = listener.minutes()
    assert row.reuse_gap == {bucket(30): 2}


@pytest.mark.parametrize(
    "more",
    [
        {"hash_key_id": "another"},
        {"hash_scope": "engine"},
        {"hash_scope": None},
        {"replica": "another"},
        {"replica": None, "model": "another"},
        {"block_hashes": None},
        {"block_hashes": []},
    ],
)
def test_rows_that_cannot_be_compared_tell_nothing(more: dict[str, object]) -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2]))
    listener.tracker.touch([used([1, 2], moment(30), **more)])
    (row,) = listener.minutes()
    assert row.reuse_gap == {}


def test_a_row_without_a_replica_counts_where_only_one_serves_the_model() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2]))
    listener.tracker.touch([used([1, 2], moment(30), replica=None)])
    (row,) = listener.minutes()
    assert row.reuse_gap == {bucket(30): 2}
    other = StreamName("events", "other", "tiny")
    listener.tracker.hear(other, 0, payload([prompt([1])]), moment(31))
    listener.tracker.touch([used([1, 2], moment(50), replica=None)])
    assert all(row.reuse_gap == {} for row in listener.minutes())


def test_a_prefix_says_for_whom_it_is_where_that_is_one() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2, 10]))
    listener.hear(prompt([1, 2, 20], known=2), seconds=1)
    rows = [
        used([1, 2, 10], moment(0), template="support", tenant="acme"),
        used([1, 2, 20], moment(1), template="support", tenant="globex"),
    ]
    listener.tracker.touch(rows)
    (row,) = drained(listener).prefixes or ()
    assert (row.requests, row.template, row.tenant) == (2, "support", None)


def test_times_without_a_zone_are_utc() -> None:
    listener = Listener(chains=True)
    listener.hear(prompt([1]))
    listener.tracker.touch([used([1], moment(30).replace(tzinfo=None))])
    (row,) = listener.minutes()
    assert row.reuse_gap == {bucket(30): 1}


def test_offloaded_placeholders_have_the_names_of_what_they_hold() -> None:
    """A placeholder has neither tokens nor parent: the device knows the block by its hash."""
    listener = Listener(chains=True)
    listener.hear(prompt([1, 2]))
    hashes = hashes_of([1, 2])
    listener.hear(stored(hashes, block_size=0, medium="CPU"), seconds=1)
    listener.hear(removed(reversed(hashes)), seconds=2)
    rows = drained(listener).prefixes or ()
    assert [(row.tier, row.prefix) for row in rows if row.prefix == name_of([1, 2])] == [
        ("host", name_of([1, 2]))
    ]
