"""Gaps, repetitions, restarts and clears in any order: the state is right, or marked as not."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.blocks.order import Heard
from exporter.blocks.tracker import Tracker
from exporter.records import EngineSample
from tests.unit_blocks.brute_force import BLOCK, Engine, Model
from tests.unit_blocks.event_streams import (
    CLEARED,
    KEY,
    NOON_UNIX,
    STREAM,
    Event,
    Listener,
    moment,
    payload,
    removed,
    stored,
)
from tests.unit_blocks.test_blocks_state import PROMPTS, blocks_of

CAPACITY = 9


@dataclass
class Publisher:
    """One engine process: what it published, and how many blocks it held after each batch."""

    engine: Engine = field(default_factory=lambda: Engine(CAPACITY))
    model: Model = field(default_factory=Model)
    payloads: list[bytes] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    pending: list[Event] = field(default_factory=list)

    def serve(self, prompt: tuple[int, int, int, int], seconds: float) -> None:
        _, events = self.engine.serve(blocks_of(prompt))
        events, self.pending = [*self.pending, *events], []
        self.model.apply(events, NOON_UNIX + seconds)
        self.payloads.append(payload(events, seconds))
        self.resident.append(self.model.resident)

    def clear(self) -> None:
        """Published with the next batch, as engines do."""
        self.engine.clear()
        self.pending = [CLEARED]


class Transport:
    """Hears a publisher over a line that loses and repeats; asks it for a replay of what is
    missing, of which it keeps the last `kept` batches only."""

    def __init__(self, kept: int) -> None:
        self.tracker = Tracker(KEY, chains=False)
        self.publisher = Publisher()
        self.kept = kept
        self.gave_up = False
        self.heard: set[int] = set()
        self.tracker.connected(STREAM, True)

    def _replayed(self, number: int) -> bytes | None:
        have = self.publisher.payloads
        return have[number] if len(have) - self.kept <= number < len(have) else None

    def deliver(self, number: int, seconds: float, replayed: bool = False) -> Heard:
        body = self.publisher.payloads[number]
        self.heard.add(number)
        heard = self.tracker.hear(STREAM, number, body, moment(seconds), replayed)
        while missing := self.tracker.missing(STREAM):
            batch = self._replayed(missing[0])
            if batch is None:
                self.tracker.give_up(STREAM, "the publisher kept no more")
                self.gave_up = True
                body_again = self.publisher.payloads[number]
                return self.tracker.hear(STREAM, number, body_again, moment(seconds), replayed)
            self.heard.add(missing[0])
            self.tracker.hear(STREAM, missing[0], batch, moment(seconds), True)
        if heard in (Heard.GAP, Heard.RESTARTED):
            self.tracker.hear(STREAM, number, body, moment(seconds), replayed)
        return heard

    def restart(self, last: int | None, seconds: float) -> None:
        """A new process; the line was cut, so what was heard last is compared with it later."""
        self.publisher = Publisher()
        self.heard = set()
        if last is not None:
            self.tracker.restarted(STREAM, moment(seconds))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["serve", "serve", "serve", "lose", "repeat", "clear", "restart"]),
        st.integers(0, 20),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=100)
@given(PROMPTS, STEPS, st.sampled_from([0, 2, 1000]))
def test_whatever_the_line_does_the_state_is_right_or_says_that_it_may_not_be(
    prompts: list[tuple[int, int, int, int]], steps: list[tuple[str, int]], kept: int
) -> None:
    transport, last, seconds = Transport(kept), None, 0.0
    restarts = 0
    capacity = EngineSample(
        target="pod", replica="pod", engine="vllm", ts=moment(0), block_size=BLOCK,
        kv_capacity_tokens=CAPACITY * BLOCK,
    )  # fmt: skip
    transport.tracker.sampled([capacity])
    for (step, place), prompt in zip(steps, prompts, strict=False):
        seconds += 1.0
        publisher = transport.publisher
        if step == "clear":
            publisher.clear()
            continue
        if step == "restart":
            transport.restart(last, seconds)
            restarts += last is not None
            last = None
            continue
        publisher = transport.publisher
        if step == "repeat" and last is not None:
            # A line repeats what it brought: what was lost comes again by a replay only.
            old = max(
                number for number in transport.heard if number <= max(place, min(transport.heard))
            )
            assert transport.deliver(old, seconds) is Heard.REPEATED
        else:
            publisher.serve(prompt, seconds)
            if step == "lose":
                continue
            last = len(publisher.payloads) - 1
            transport.deliver(last, seconds)
        snapshot = transport.tracker.snapshot()
        for cache in snapshot.caches:
            assert cache.resident_blocks >= 0
            assert cache.resident_blocks <= CAPACITY or cache.uncertain is not None
            if cache.uncertain is None:
                assert cache.resident_blocks == publisher.resident[last]
    streams = transport.tracker.drain(moment(seconds)).streams
    for stream in streams:
        assert stream.restarts == restarts
        if kept == 1000:
            assert (stream.missed_batches, stream.uncertain) == (0, None)


def test_t26_a_number_that_goes_back_is_a_restart_and_no_eviction() -> None:
    listener = Listener()
    for number in range(100):
        listener.hear(stored([number + 1]), seconds=number)
    assert listener.hear(stored([500]), seconds=200, sequence=0) is Heard.RESTARTED
    cache = listener.cache()
    assert (cache.resident_blocks, cache.evicted_blocks, cache.reset_blocks) == (1, 0, 100)
    assert cache.resets == {"restart": 1}
    assert cache.uncertain is None


def test_t27_a_clear_is_applied_and_counted_as_a_reset() -> None:
    listener = Listener()
    listener.hear(stored([1]), stored([2], 1), stored([3], 2))
    listener.hear(CLEARED, stored([1]), seconds=1)
    cache = listener.cache()
    assert (cache.resident_blocks, cache.evicted_blocks, cache.reset_blocks) == (1, 0, 3)
    assert cache.resets == {"clear": 1}


def test_t27_a_clear_counts_from_the_end_of_the_batch_before() -> None:
    listener = Listener()
    listener.hear(stored([1, 2]), seconds=50)
    listener.hear(CLEARED, stored([3]), seconds=130)
    drained = listener.tracker.drain(moment(140))
    (reset,) = drained.resets
    assert reset.ts == moment(50)
    by_minute = {row.minute: row for row in drained.minutes}
    assert by_minute[moment(0)].reset_blocks == 2
    assert by_minute[moment(0)].resident_blocks == 0
    assert by_minute[moment(120)].resident_blocks == 1


def test_t29_a_gap_is_recorded_and_marks_the_state_until_a_clear() -> None:
    listener = Listener()
    for number in range(6):
        listener.hear(stored([number + 1]), seconds=number)
    assert listener.hear(stored([10]), seconds=9, sequence=9) is Heard.GAP
    assert listener.tracker.missing(STREAM) == range(6, 9)
    assert "3 batches are missing" in str(listener.cache().uncertain)
    assert listener.cache().resident_blocks == 6
    listener.tracker.give_up(STREAM, "no replay endpoint")
    assert listener.hear(stored([10]), seconds=9, sequence=9) is Heard.APPLIED
    assert listener.cache().uncertain == "no replay endpoint"
    assert listener.cache().resident_blocks == 7
    (stream,) = listener.tracker.drain(moment(10)).streams
    assert (stream.missed_batches, stream.uncertain) == (3, "no replay endpoint")
    (minute,) = listener.minutes() or [None]
    assert minute is None
    listener.hear(CLEARED, stored([1]), seconds=20)
    assert listener.cache().uncertain is None
    assert listener.minutes()[-1].uncertain is None


def test_t29_a_replay_fills_the_gap_and_the_state_is_right_again() -> None:
    listener = Listener()
    listener.hear(stored([1]))
    assert listener.hear(removed([2]), sequence=2, seconds=2) is Heard.GAP
    body = payload([stored([2])], 1)
    assert listener.tracker.hear(STREAM, 1, body, moment(3), replayed=True) is Heard.APPLIED
    assert listener.hear(removed([2]), sequence=2, seconds=2) is Heard.APPLIED
    cache = listener.cache()
    assert (cache.resident_blocks, cache.evicted_blocks, cache.uncertain) == (1, 1, None)
    (stream,) = listener.tracker.drain(moment(4)).streams
    assert (stream.missed_batches, stream.replayed_batches, stream.batches) == (0, 1, 3)


def test_who_joins_late_is_uncertain_until_as_many_blocks_are_known_as_fit() -> None:
    listener = Listener()
    assert listener.hear(stored([1]), sequence=7) is Heard.GAP
    listener.tracker.give_up(STREAM, "joined late")
    listener.hear(stored([1]), sequence=7)
    listener.tracker.sampled(
        [
            EngineSample(
                target="pod", replica="pod", engine="vllm", ts=moment(0),
                block_size=16, kv_capacity_tokens=48,
            )
        ]
    )  # fmt: skip
    # A block that was there before goes: nobody here knew it.
    listener.hear(removed([99]), stored([2]), seconds=1)
    assert listener.cache().uncertain == "joined late"
    listener.hear(stored([3]), seconds=2)
    assert listener.cache().resident_blocks == 3
    assert listener.cache().uncertain is None
    (stream,) = listener.tracker.drain(moment(3)).streams
    assert stream.missed_batches == 0


def test_more_blocks_than_fit_prove_that_events_are_missing() -> None:
    listener = Listener()
    listener.tracker.give_up(STREAM, "one batch was lost")
    listener.hear(stored([1, 2, 3]), sequence=1)
    listener.tracker.sampled(
        [
            EngineSample(
                target="pod", replica="pod", engine="vllm", ts=moment(0),
                block_size=16, kv_capacity_tokens=48,
            )
        ]
    )  # fmt: skip
    listener.hear(stored([4]), seconds=1)
    cache = listener.cache()
    assert (cache.resident_blocks, cache.reset_blocks) == (0, 4)
    assert cache.resets == {"lost_events": 1}
    assert "more blocks than the engine has room for" in str(cache.uncertain)


def test_t24_sleep_clears_the_cache_from_that_moment_and_only_once() -> None:
    listener = Listener()
    listener.hear(stored(range(1, 801)))

    def sample(seconds: float, awake: bool) -> None:
        listener.tracker.sampled(
            [EngineSample(target="p", replica="pod", engine="vllm", ts=moment(seconds),
                          awake=awake)]
        )  # fmt: skip

    sample(10, awake=False)
    assert listener.cache().resident_blocks == 0
    sample(25, awake=False)
    sample(40, awake=True)
    # The clear of going to sleep is published with the first batch after waking up.
    listener.hear(CLEARED, stored([1]), seconds=50)
    cache = listener.cache()
    assert (cache.resident_blocks, cache.evicted_blocks, cache.reset_blocks) == (1, 0, 800)
    assert cache.resets == {"sleep": 1}
    (reset,) = listener.tracker.drain(moment(60)).resets
    assert (reset.ts, reset.reason, reset.blocks) == (moment(10), "sleep", 800)
    listener.hear(CLEARED, seconds=70)
    assert listener.cache().resets == {"sleep": 1, "clear": 1}


def test_an_unreadable_batch_takes_its_number_and_makes_the_state_uncertain() -> None:
    listener = Listener()
    listener.hear(stored([1]))
    assert listener.tracker.hear(STREAM, 1, b"\xc1", moment(1)) is Heard.UNREADABLE
    assert listener.hear(stored([2]), sequence=2) is Heard.APPLIED
    assert listener.cache().uncertain == "a batch could not be read"
    (stream,) = listener.tracker.drain(moment(2)).streams
    assert (stream.unreadable_batches, stream.batches) == (1, 3)


def test_a_transport_that_knows_of_losses_marks_the_state() -> None:
    listener = Listener()
    listener.hear(stored([1]))
    listener.tracker.lost(STREAM, "the queue of this exporter was full")
    assert listener.cache().uncertain == "the queue of this exporter was full"
    listener.tracker.malformed(STREAM)
    (stream,) = listener.tracker.drain(moment(2)).streams
    assert (stream.unreadable_batches, stream.connected) == (1, False)


def test_ranks_are_named_as_the_scraper_names_them() -> None:
    listener = Listener()
    body = payload([stored([1])], rank=2)
    listener.tracker.hear(STREAM, 0, body, moment(0))
    # One rank alone: its metrics page shows no other, and goes by the plain name.
    assert [cache.replica for cache in listener.tracker.snapshot().caches] == ["pod"]
    other = Listener(stream=type(STREAM)("other", "pod", "tiny"))
    other.tracker = listener.tracker
    other.hear(stored([1]))
    assert {cache.replica for cache in listener.tracker.snapshot().caches} == {"pod/0", "pod/2"}


def test_several_ranks_in_one_stream_are_a_mistake_that_is_shown() -> None:
    listener = Listener()
    listener.tracker.hear(STREAM, 0, payload([stored([1])], rank=0), moment(0))
    listener.tracker.hear(STREAM, 1, payload([stored([1])], rank=1), moment(0))
    assert "several data-parallel ranks" in str(listener.cache().uncertain)


def test_counters_never_fall_and_survive_drains() -> None:
    listener = Listener()
    totals = []
    for number in range(40):
        listener.hear(stored([number + 1]), seconds=number * 7)
        if number >= 5:
            listener.hear(removed([number - 4]), seconds=number * 7 + 1)
        if number % 3 == 0:
            listener.tracker.drain(moment(number * 7 + 2))
        if number == 20:
            listener.hear(CLEARED, seconds=number * 7 + 3)
        cache = listener.cache()
        totals.append(
            (cache.stored_blocks, cache.evicted_blocks, cache.reset_blocks,
             sum(cache.lifetime.values()), cache.lifetime_seconds, sum(cache.resets.values()))
        )  # fmt: skip
    assert all(
        all(new >= old for new, old in zip(after, before, strict=True))
        for before, after in itertools.pairwise(totals)
    )
    assert totals[-1][0] == 40


def test_what_is_replayed_from_long_ago_reaches_the_rows_and_no_counter() -> None:
    """A counter takes what happened within ten minutes of its arrival: its rate stays true."""
    listener = Listener()
    day = 86_400.0
    old = [payload([stored([1, 2])], 0), payload([CLEARED, stored([3])], 30)]
    for number, body in enumerate(old):
        listener.tracker.hear(STREAM, number, body, moment(day), replayed=True)
    listener.tracker.hear(STREAM, 2, payload([stored([4]), removed([3])], day), moment(day))
    for _ in range(2):
        cache = listener.cache()
        assert (cache.stored_blocks, cache.evicted_blocks, cache.reset_blocks) == (1, 1, 0)
        assert (cache.resident_blocks, cache.resets) == (1, {})
        assert sum(cache.lifetime.values()) == 1
        drained = listener.tracker.drain(moment(day + 1))
        if drained.minutes:
            assert sum(row.stored_blocks for row in drained.minutes) == 4
            assert [reset.reason for reset in drained.resets] == ["clear"]


ANY_HASH = st.integers(-(2**63), 2**64 - 1) | st.integers(0, 6) | st.binary(max_size=40)
ANYTHING = st.recursive(
    st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.binary(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
ODD_EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["BlockStored", "BlockStored", "BlockRemoved", "AllBlocksCleared"]),
        "block_hashes": st.lists(ANY_HASH, max_size=5),
        "block_size": st.sampled_from([16, 16, 32, 1, 0, -3, 7, 2**40]),
        "token_ids": st.lists(st.integers(-2, 2**64 - 1), max_size=3)
        | st.sampled_from([list(range(16)), list(range(32)), [[1, 2]] * 16, [[]] * 16]),
    },
    optional={
        "parent_block_hash": st.none() | ANY_HASH,
        "medium": st.sampled_from([None, "GPU", "CPU", "DISK", "EXTERNAL", "TAPE", ""]),
        "group_idx": st.integers(-1, 2) | st.none(),
        "kv_cache_spec_kind": st.sampled_from([None, "full_attention", "mamba", ""]),
        "lora_id": st.none() | st.integers(0, 2) | st.just("x"),
        "lora_name": st.none() | st.sampled_from(["", "ad"]),
        "extra_keys": st.none() | st.lists(ANYTHING, max_size=4),
        "cache_salt": st.none() | st.text(max_size=3),
    },
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(ODD_EVENTS, max_size=4), max_size=12), st.booleans())
def test_no_event_however_odd_ends_the_one_who_hears_it(
    batches: list[list[Event]], chains: bool
) -> None:
    listener = Listener(chains=chains)
    for number, events in enumerate(batches):
        body = payload(events, number * 20)
        heard = listener.tracker.hear(STREAM, number, body, moment(number * 20))
        assert heard in (Heard.APPLIED, Heard.UNREADABLE)
        if number % 3 == 0:
            listener.tracker.drain(moment(number * 20))
    for cache in listener.tracker.snapshot().caches:
        assert cache.resident_blocks >= 0
        assert cache.stored_blocks >= cache.evicted_blocks + cache.demoted_blocks
