"""Several threads at one tracker; and how much memory a state takes."""

import random
import threading

import pytest

from exporter.blocks.order import Heard, StreamName
from exporter.blocks.tracker import Tracker
from tests.unit_blocks.brute_force import Engine, Model
from tests.unit_blocks.event_streams import KEY, NOON_UNIX, moment, payload, removed, stored


def test_streams_heard_by_threads_while_others_drain_come_to_the_model() -> None:
    tracker = Tracker(KEY)
    streams = [StreamName("events", f"pod-{number}", "tiny") for number in range(3)]
    models = [Model() for _ in streams]
    heard: list[Heard] = []

    def hear(place: int) -> None:
        engine, source = Engine(12), random.Random(place)
        for number in range(150):
            blocks = [source.randint(0, 2) for _ in range(source.randint(1, 5))]
            _, events = engine.serve(blocks)
            models[place].apply(events, NOON_UNIX + number)
            body = payload(events, number)
            heard.append(tracker.hear(streams[place], number, body, moment(number)))

    hearing = [threading.Thread(target=hear, args=(place,)) for place in range(len(streams))]
    done = threading.Event()
    stored_blocks = evicted_blocks = 0

    def drain() -> None:
        nonlocal stored_blocks, evicted_blocks
        last = False
        while not last:
            last = done.is_set()
            tracker.snapshot()
            for row in tracker.drain(moment(1000)).minutes:
                stored_blocks += row.stored_blocks
                evicted_blocks += row.evicted_blocks

    draining = threading.Thread(target=drain)
    for thread in (draining, *hearing):
        thread.start()
    for thread in hearing:
        thread.join()
    done.set()
    draining.join()
    assert set(heard) == {Heard.APPLIED}
    assert stored_blocks == sum(model.stored for model in models)
    assert evicted_blocks == sum(model.evicted for model in models)
    resident = {cache.replica: cache.resident_blocks for cache in tracker.snapshot().caches}
    assert resident == {f"pod-{number}": model.resident for number, model in enumerate(models)}


@pytest.mark.parametrize("chains", [False, True], ids=["without chains", "with chains"])
def test_a_block_takes_no_more_than_160_bytes_also_under_churn(chains: bool) -> None:
    """Counted in bytes of arrays, not in memory of the process; at full size in bench_events."""
    tracker, stream = Tracker(KEY, chains=chains), StreamName("events", "pod", "tiny")
    numbers = random.Random(3)
    resident: list[list[int]] = []
    blocks, most = 0, 0.0
    for sequence in range(600):
        run = [numbers.getrandbits(64) for _ in range(200)]
        events = [stored(run, tokens=[7] * 3200)]
        if blocks >= 60_000:
            events += [removed([block]) for block in reversed(resident.pop(0))]
        resident.append(run)
        blocks = sum(map(len, resident))
        tracker.hear(stream, sequence, payload(events, sequence), moment(sequence))
        if blocks >= 60_000 and sequence % 50 == 0:
            (cache,) = tracker.snapshot().caches
            most = max(most, tracker.memory_bytes() / cache.resident_blocks)
    assert 40 < most <= 160
