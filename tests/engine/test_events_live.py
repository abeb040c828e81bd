"""KV-cache events of a real vLLM with a cache of 72 blocks: is our state the engine's, always?

Run with `make test-engine`. Everything is on loopback and in sockets of a temporary folder.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import yaml

from exporter.blocks.order import Heard, StreamName
from exporter.blocks.rows import BlockStream
from exporter.blocks.snapshot import CacheSnapshot
from exporter.blocks.tracker import Tracker
from exporter.sources.events.settings import EventSettings
from exporter.sources.events.worker import EventWorker
from tests.engine.events import BLOCK_TOKENS, USABLE_BLOCKS, Engine, Truth, prompts
from tests.engine.live import needs_engine
from tests.running import PROGRAM, answer, free_port, running, wait_for

pytestmark = needs_engine
PATIENCE_SECONDS = 60.0


class Pausing(Tracker):
    """A tracker that can be made to hold up whoever talks to it, as a busy machine does."""

    def __init__(self) -> None:
        super().__init__("live test")
        self.go = threading.Event()
        self.go.set()

    def hear(
        self, stream: StreamName, sequence: int, payload: bytes, heard_at: datetime,
        replayed: bool = False,
    ) -> Heard:  # fmt: skip
        self.go.wait()
        return super().hear(stream, sequence, payload, heard_at, replayed)

    @property
    def stream(self) -> BlockStream:
        (stream,) = self.drain(datetime.now(UTC)).streams
        return stream

    @property
    def cache(self) -> CacheSnapshot:
        (cache,) = self.snapshot().caches
        return cache


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = Engine(tmp_path_factory.mktemp("kv"))
    made.start()
    try:
        yield made
    finally:
        made.kill()


def settings(engine: Engine, *, replay: bool = True, **more: object) -> EventSettings:
    replay_endpoint = engine.replay if replay else None
    usual = {"endpoint": engine.endpoint, "replay_endpoint": replay_endpoint, "topic": "kv-"}
    return EventSettings.model_validate({**usual, "replica": "live", **more})


@contextmanager
def hearing(tracker: Tracker, entry: EventSettings) -> Iterator[None]:
    worker = EventWorker(tracker, [entry])
    worker.start()
    try:
        yield
    finally:
        worker.stop()


def wait_until(ready: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < end, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
        time.sleep(0.05)


def caught_up(tracker: Pausing, engine: Engine) -> Truth:
    """The truth, once the tracker has heard the last batch of it."""
    truth = engine.settled_truth()
    wait_until(lambda: tracker.stream.last_sequence == truth.batches - 1, "the last batch")
    return truth


def assert_true(tracker: Pausing, truth: Truth) -> None:
    """The state is what the engine's own events say, and nothing is doubted."""
    assert tracker.cache.resident_blocks == truth.resident
    assert tracker.cache.uncertain is None
    assert truth.resident <= USABLE_BLOCKS


def test_t20_the_state_predicts_what_the_engine_serves(engine: Engine) -> None:
    """Sequential requests: cached tokens are those our state holds; evictions are the engine's."""
    tracker, wrong = Pausing(), []
    with hearing(tracker, settings(engine)):
        for prompt, salt in prompts(seed=1, count=40):
            truth = caught_up(tracker, engine) if tracker.snapshot().caches else engine.truth()
            served = engine.ask(prompt, salt)
            expected = truth.cached_tokens(prompt, salt)
            if served != expected:
                wrong.append((served, expected))
        truth = caught_up(tracker, engine)
        assert_true(tracker, truth)
        cache = tracker.cache
    print(f"\nstored {truth.stored}, evicted {truth.removed}, resident {truth.resident}")
    assert wrong == []
    assert cache.stored_blocks == truth.stored
    assert cache.evicted_blocks == truth.removed > 100
    assert cache.block_size == BLOCK_TOKENS
    assert truth.resident >= USABLE_BLOCKS - 3


def test_a_subscriber_that_was_away_is_right_again(engine: Engine) -> None:
    """It is stopped while requests go on, and comes back with what it knew."""
    tracker = Pausing()
    with hearing(tracker, settings(engine)):
        assert_true(tracker, caught_up(tracker, engine))
        before = tracker.stream
    for prompt, salt in prompts(seed=2, count=12):
        engine.ask(prompt, salt)
    assert engine.settled_truth().batches - 1 > (before.last_sequence or 0)
    assert tracker.stream.last_sequence == before.last_sequence
    with hearing(tracker, settings(engine)):
        truth = caught_up(tracker, engine)
        assert_true(tracker, truth)
        assert tracker.stream.restarts == 0
        assert tracker.cache.stored_blocks == truth.stored
    print(f"\naway for batches {before.last_sequence} to {truth.batches - 1}")


def overflow(engine: Engine, entry: EventSettings) -> tuple[Pausing, Truth]:
    """A tracker that heard nothing while far more batches came than any queue holds."""
    tracker = Pausing()
    with hearing(tracker, entry):
        wait_until(lambda: tracker.snapshot().streams[0].connected, "the connection")
        engine.ask(prompts(seed=3, count=1)[0][0])
        wait_until(lambda: tracker.snapshot().caches, "the first batch")
        tracker.go.clear()
        for prompt, salt in prompts(seed=4, count=160):
            engine.ask(prompt, salt)
        last = engine.settled_truth().batches
        tracker.go.set()
        # What waited comes now; the next batch shows what is missing before it.
        engine.ask(prompts(seed=5, count=1)[0][0])
        truth = caught_up(tracker, engine)
        assert truth.batches > last
    return tracker, truth


def test_t29_an_overflow_is_filled_by_the_replay(engine: Engine) -> None:
    tracker, truth = overflow(engine, settings(engine, receive_batches=1))
    assert_true(tracker, truth)
    stream = tracker.stream
    print(f"\nbatches {stream.batches}, of these {stream.replayed_batches} replayed")
    assert stream.replayed_batches > 0
    assert stream.missed_batches == 0


def test_t29_an_overflow_without_replay_leaves_a_mark_that_says_why(engine: Engine) -> None:
    tracker, _ = overflow(engine, settings(engine, receive_batches=1, replay=False))
    stream = tracker.stream
    print(f"\nbatches {stream.batches}, missed {stream.missed_batches}: {stream.uncertain}")
    assert stream.missed_batches > 0
    assert "replay_endpoint" in (stream.uncertain or "")


def test_t27_a_reset_is_no_eviction_and_ends_all_doubt(engine: Engine) -> None:
    """The engine says so with the next batch."""
    tracker = Pausing()
    engine.ask(prompts(seed=9, count=1)[0][0])  # of which this subscriber is never told
    engine.settled_truth()
    with hearing(tracker, settings(engine, replay=False)):
        wait_until(lambda: tracker.snapshot().streams[0].connected, "the connection")
        engine.ask(prompts(seed=6, count=1)[0][0])
        wait_until(lambda: tracker.snapshot().caches, "the first batch")
        assert tracker.cache.uncertain is not None  # it came late, and nobody told it the past
        evicted = tracker.cache.evicted_blocks
        engine.reset()
        prompt = prompts(seed=7, count=1)[0][0]
        engine.ask(prompt)
        truth = caught_up(tracker, engine)
        assert_true(tracker, truth)
    assert truth.resident == len(prompt) // BLOCK_TOKENS
    assert tracker.cache.resets == {"clear": 1}
    assert tracker.cache.evicted_blocks == evicted


def _config(folder: Path, engine: Engine, port: int) -> Path:
    file = folder / "prefixscope.yml"
    entry = settings(engine).model_dump(exclude_defaults=True)
    targets = {"static": [{"url": engine.url, "replica": "live"}]}
    told = {
        "store": {"directory": str(folder / "store")},
        "server": {"listen": f"127.0.0.1:{port}"},
        "scrape": {"interval_seconds": 1, "targets": targets},
        "events": [entry],
    }
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    return file


def test_t26_the_exporter_outlives_the_engine(engine: Engine, tmp_path: Path) -> None:
    """`serve` as people run it, through a kill -9 and a new start of the engine: /metrics and the
    questions have it right, and no file holds a prompt or a salt."""
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", tmp_path / "exporter.log"
    command = [PROGRAM, "serve", "--config", str(_config(tmp_path, engine, port))]
    canary = [4001, 3999, 4002, 3998] * 20
    with running(command, log) as process:

        def stream() -> dict[str, object]:
            rows = answer(url, "block_streams")
            return rows[0] if rows else {}

        def heard(*processes: Truth) -> Callable[[], bool]:
            return lambda: stream().get("batches") == sum(each.batches for each in processes)

        engine.ask(canary, "salt-canary-1")
        wait_for("events", heard(engine.settled_truth()), 60, process, log)
        before = engine.settled_truth()
        engine.kill()
        wait_for("the loss", lambda: stream()["connected"] is False, 60, process, log)
        engine.start()
        restarted = "a restart"
        wait_for(restarted, lambda: stream()["restarts"] == 1, 90, process, log)
        for prompt, salt in prompts(seed=8, count=10):
            engine.ask(prompt, salt)
        truth = engine.settled_truth()
        wait_for("the new events", heard(before, truth), 60, process, log)
        resets = answer(url, "block_resets")
        page = httpx.get(f"{url}/metrics").text
        assert process.poll() is None
    (lost,) = [reset for reset in resets if reset["reason"] == "restart"]
    print(f"\nlost {lost['blocks']} of {before.resident} blocks; now {truth.resident}")
    assert (lost["basis"], lost["blocks"]) == ("events", before.resident)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 2
    secrets = [b"salt-canary-1", b"salt-acme", b", ".join(b"%d" % token for token in canary[:4])]
    for file in files:
        data = file.read_bytes()
        assert not any(secret in data for secret in secrets), file
    assert re.search(
        r'^prefixcache_resets_total{.*reason="restart".*} 1(\.0)?$', page, re.MULTILINE
    )
    assert re.search(r"^prefixscope_event_stream_up{.*} 1(\.0)?$", page, re.MULTILINE)
