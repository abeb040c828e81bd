"""State and ages must equal a model that takes one block at a time, whatever the engine does."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.blocks.ages import Tally
from exporter.blocks.chains import Chains
from exporter.blocks.tiers import Tiers
from exporter.blocks.wire import Decoder
from tests.unit_blocks.brute_force import Engine, Model
from tests.unit_blocks.event_streams import CLEARED, KEY, NOON_UNIX, Event, payload, removed, stored

# A prompt: which family it begins with, how far it follows it, and what it goes on with.
PROMPTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 5), st.integers(0, 4)),
    max_size=60,
)
PAUSES = st.sampled_from([0.0, 0.01, 1.0, 31.0])


def blocks_of(prompt: tuple[int, int, int, int]) -> list[int]:
    family, shared, ending, own = prompt
    return [family * 10 + place for place in range(shared)] + [
        100 + family * 10 + ending * 50 + place for place in range(own)
    ]


class State:
    """Tiers that hear batches; totals over all minutes."""

    def __init__(self, named: bool) -> None:
        self.tiers = Tiers(Chains(KEY) if named else None)
        self._decoder = Decoder(tokens=named)

    def apply(self, events: Sequence[Event], seconds: float) -> None:
        heard = datetime.fromtimestamp(NOON_UNIX + seconds, UTC)
        self.tiers.apply(self._decoder.decode(payload(events, seconds)), heard)

    def total(self) -> Tally:
        self.tiers.flush()
        total = Tally()
        for _, cache in self.tiers.caches():
            for tally in cache.tallies.values():
                total.merge(tally)
        return total

    def holds(self, hashes: Sequence[int]) -> list[bool]:
        self.tiers.flush()
        ((_, cache),) = self.tiers.caches()
        never = np.full(len(hashes), np.inf)
        return cache.held_after(np.array(hashes, np.uint64), never).tolist()  # type: ignore[no-any-return]

    def resident(self) -> int:
        self.tiers.flush()
        return sum(cache.resident_blocks for _, cache in self.tiers.caches())


def same(state: State, model: Model) -> None:
    total = state.total()
    assert (total.stored, total.evicted, total.reset) == (model.stored, model.evicted, model.reset)
    assert state.resident() == model.resident
    assert Counter(total.lifetime.counts) == model.lifetime
    assert Counter(total.evicted_reuse_gap.counts) == model.wanted_again


@settings(deadline=None, max_examples=100)
@given(PROMPTS, st.integers(4, 20), st.booleans(), st.booleans(), st.data())
def test_any_traffic_of_an_engine_gives_the_state_and_the_ages_of_the_model(
    prompts: list[tuple[int, int, int, int]],
    capacity_blocks: int,
    named: bool,
    often: bool,
    data: st.DataObject,
) -> None:
    engine, model, state = Engine(capacity_blocks), Model(), State(named)
    seconds = 0.0
    for prompt in prompts:
        _, events = engine.serve(blocks_of(prompt))
        seconds += data.draw(PAUSES)
        model.apply(events, NOON_UNIX + seconds)
        state.apply(events, seconds)
        if often:
            state.tiers.flush()
    same(state, model)
    if model.stored:
        total = state.total()
        assert Counter(total.idle.counts) == model.idle
        assert total.reuse_known == model.reused
        assert all(state.holds(list(engine.idle)))
        assert sorted(engine.idle) == sorted(model.blocks)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["store", "store", "remove", "clear"]),
            st.lists(st.integers(0, 12), min_size=1, max_size=6),
            st.none() | st.integers(0, 12),
            PAUSES,
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_any_events_at_all_give_the_state_of_the_model(
    steps: list[tuple[str, list[int], int | None, float]], often: bool
) -> None:
    """Duplicates of a hash, in one event too, removals out of order, of unknown blocks, clears."""
    model, state = Model(), State(named=False)
    seconds = 0.0
    for kind, hashes, parent, pause in steps:
        seconds += pause
        event = CLEARED
        if kind == "store":
            event = stored(hashes, parent, tokens=[0] * 16 * len(hashes))
        elif kind == "remove":
            event = removed(hashes)
        model.apply([event], NOON_UNIX + seconds)
        state.apply([event], seconds)
        if often:
            state.tiers.flush()
        assert state.resident() >= 0 if often else True
    same(state, model)
    if model.stored:
        assert state.holds(list(range(13))) == [number in model.blocks for number in range(13)]
    if model.unknown and not any(kind == "clear" for kind, *_ in steps):
        assert state.tiers.uncertain("device") is not None


def test_a_removal_of_a_block_that_never_came_makes_the_state_uncertain_until_a_clear() -> None:
    state = State(named=False)
    state.apply([stored([1]), removed([2])], 0.0)
    assert state.resident() == 1
    assert "never seen coming" in (state.tiers.uncertain("device") or "")
    state.apply([CLEARED, stored([1])], 1.0)
    assert state.resident() == 1
    assert state.tiers.uncertain("device") is None


def test_bytes_and_numbers_name_the_same_block() -> None:
    state = State(named=False)
    state.apply([stored([2**64 - 1])], 0.0)
    state.apply([removed([-1])], 1.0)
    state.apply([stored([2**63 + 1]), removed([(2**63 + 1).to_bytes(32, "big")])], 2.0)
    assert state.resident() == 0
    assert state.total().evicted == 2


def test_a_million_operations_in_one_batch_are_applied() -> None:
    """Longer than anything that gathers: one batch, many flushes' worth."""
    state = State(named=False)
    hashes = list(range(1, 200_001))
    batch = msgspec.msgpack.encode(
        [NOON_UNIX, [stored(hashes, tokens=[]), removed(hashes[::2])], 0]
    )
    state.tiers.apply(Decoder(tokens=False).decode(batch), datetime.fromtimestamp(NOON_UNIX, UTC))
    assert state.resident() == 100_000
