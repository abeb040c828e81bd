"""Causes named minute by minute beside KV-cache events, as an exporter hears them."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from exporter.blocks.order import StreamName
from exporter.blocks.residency import Residency
from exporter.blocks.tracker import Tracker
from exporter.causes.sealing import Sealer
from exporter.store.blocks import write_drained
from exporter.store.store import Store
from replay.causes import CAUSES, attribute
from replay.columns import Fleet
from replay.rules import RULES
from tests.log_path import CAPTURES, Answer, ask, load, needs_captures
from tests.unit_blocks.event_streams import captured
from tests.unit_causes.captured import BLOCK_TOKENS, events_of, rows_of, traffic_of

STREAM = StreamName("events", "engine", "tiny")


def heard(store: Store, capture: str) -> Tracker:
    """A tracker that has heard a recording, and what it tells the store."""
    tracker = Tracker(store.key, live_window=timedelta(days=999), remember=timedelta(hours=1))
    for each in captured(capture):
        tracker.hear(STREAM, each.sequence, each.payload, each.heard)
    write_drained(store, tracker.drain(datetime.now(UTC)))
    return tracker


def sealed(store: Store, capture: str, tracker: Tracker) -> Answer:
    """The sums of a recording, its seconds sealed one after the other."""
    path = CAPTURES / "vllm-0.32.0" / capture / "requests.jsonl"
    load(store, path.read_bytes(), format="auto")
    sealer = Sealer(store, held_since=tracker.held_since)
    sealer.seal(datetime.now(UTC), wait_for_older=False)
    (found,) = ask(store, "waterfall")
    return found


@needs_captures
@pytest.mark.parametrize("capture", ["main", "evict", "restart"])
def test_with_events_it_is_what_the_batch_pass_says_with_them(store: Store, capture: str) -> None:
    stays, resets = events_of(f"vllm-0.32.0/{capture}")
    rule = RULES["vllm"].of_blocks(BLOCK_TOKENS)
    traffic = traffic_of(rows_of(f"vllm-0.32.0/{capture}"))
    wanted = attribute(traffic, rule, Fleet(resets=resets, stays=stays)).totals()
    found = sealed(store, capture, heard(store, capture))
    told = {name: found[f"{name}_tokens"] for name in CAUSES}
    for each in (told, wanted):  # rows have pieces beside their blocks, which find more of it
        each["new"] += each.pop("layout")
    assert told == {name: wanted[name] for name in told}
    # No log tells of the clear before request 53; the restart cost no prompt that came again.
    assert told["reset"] == (768 if capture == "main" else 0)


def test_what_left_is_remembered_for_a_while() -> None:
    cache, heard_at = Residency(True, remember_seconds=60.0), datetime.now(UTC)

    def told(since: float) -> list[tuple[int, float, float]]:
        names, begun, until = cache.stays(since)
        return sorted(zip(names.tolist(), begun.tolist(), until.tolist(), strict=True))

    def hear(seconds: float, stores: list[int], removes: list[int]) -> None:
        if stores:
            names = np.array([10 * each for each in stores], np.uint64)
            cache.pending.store(stores, seconds, None, names=names, depth=1)  # type: ignore[arg-type]
        if removes:
            cache.pending.removing(seconds).extend(removes)
        cache.flush((), heard_at)

    hear(100.0, [1, 2], [])
    hear(130.0, [3], [1])
    assert told(0.0) == [(10, 100.0, 130.0), (20, 100.0, np.inf), (30, 130.0, np.inf)]
    assert told(130.0) == [(20, 100.0, np.inf), (30, 130.0, np.inf)]
    hear(195.0, [], [3])
    assert told(0.0) == [(20, 100.0, np.inf), (30, 130.0, 195.0)]
    cache.reset(200.0, heard_at)
    assert told(0.0) == [(20, 100.0, 200.0), (30, 130.0, 195.0)]
    assert Residency(True).stays(0.0)[0].tolist() == []
