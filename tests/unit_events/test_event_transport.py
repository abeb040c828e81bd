"""Streams over real ZeroMQ sockets, with every fault of the transport. Nothing here may sleep a
fixed time: what is waited for is seen, or the test fails after half a minute."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from exporter.blocks.order import StreamName
from exporter.sources.events import follower
from exporter.sources.events import worker as worker_module
from exporter.sources.events.settings import EventSettings
from exporter.sources.events.worker import EventWorker
from tests.running import free_port
from tests.unit_events.publishing import (
    Publisher,
    ToldTracker,
    bodies,
    entry,
    hearing,
    ipc,
    wait_until,
)

REPLICA = "engine"


class Scene:
    """A publisher, what the tracker was told, and where both meet."""

    def __init__(self, folder: Path) -> None:
        self.endpoint, self.replay = ipc(folder), ipc(folder, "replay")
        self.tracker = ToldTracker()
        self.publisher = Publisher(self.endpoint, self.replay)

    @property
    def applied(self) -> list[bytes]:
        return self.tracker.of(REPLICA)

    @property
    def connected(self) -> bool:
        return self.tracker.is_connected.get(StreamName("events", REPLICA), False)

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason in self.tracker.gave_up]

    @contextmanager
    def heard(self, *, replay: bool = True, **more: object) -> Iterator[EventWorker]:
        settings = entry(self.endpoint, self.replay if replay else None, **more)
        with hearing(self.tracker, settings) as worker:
            wait_until(lambda: self.connected, "the connection")
            if replay:
                wait_until(lambda: self.publisher.requests, "the first request")
            yield worker

    def restart(self) -> None:
        """The engine's process ends and another one begins, which numbers from 0."""
        self.publisher.close()
        wait_until(lambda: not self.connected, "the loss of the connection")
        self.publisher = Publisher(self.endpoint, self.replay)
        wait_until(lambda: self.connected, "the connection to the new process")

    def wait_for(self, *numbers: int) -> None:
        wait_until(lambda: self.applied == bodies(*numbers), f"batches {numbers}")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.publisher.close()


@pytest.mark.parametrize("with_topic_frame", [True, False])
def test_who_comes_late_is_told_the_past(scene: Scene, with_topic_frame: bool) -> None:
    scene.publisher.with_topic_frame = with_topic_frame
    for _ in range(5):
        scene.publisher.publish()
    with scene.heard():
        scene.wait_for(0, 1, 2, 3, 4)
        scene.publisher.publish()
        scene.wait_for(0, 1, 2, 3, 4, 5)
    assert scene.publisher.requests == [0]
    assert (scene.reasons, scene.tracker.restarts) == ([], [])
    assert not scene.connected  # a worker that ended hears nothing more


@pytest.mark.parametrize("with_topic_frame", [True, False])
def test_t29_a_gap_is_filled_by_a_replay(scene: Scene, with_topic_frame: bool) -> None:
    scene.publisher.with_topic_frame = with_topic_frame
    with scene.heard():
        for lost in (False, False, True, True, True, False, False):
            scene.publisher.publish(lost=lost)
        scene.wait_for(0, 1, 2, 3, 4, 5, 6)
    assert scene.publisher.requests[-1] == 2
    assert scene.reasons == []


def test_t29_a_gap_without_replay_says_which_flag_to_set(scene: Scene) -> None:
    with scene.heard(replay=False):
        scene.publisher.publish()
        scene.wait_for(0)
        scene.publisher.publish(lost=True)
        scene.publisher.publish()
        scene.wait_for(0, 2)
        scene.publisher.publish()
        scene.wait_for(0, 2, 3)
    (reason,) = scene.reasons
    assert "replay_endpoint" in reason
    assert "--kv-events-config" in reason


def test_a_replay_that_starts_later_than_asked(scene: Scene) -> None:
    """The publisher keeps three batches; of seven missed ones four are gone for good."""
    scene.publisher.close()
    scene.publisher = Publisher(scene.endpoint, scene.replay, buffer_steps=3)
    with scene.heard():
        scene.publisher.publish()
        scene.wait_for(0)
        for _ in range(6):
            scene.publisher.publish(lost=True)
        scene.publisher.publish()
        scene.wait_for(0, 5, 6, 7)
    (reason,) = scene.reasons
    assert reason.startswith("batches 1 to 4 are not in the replay")
    assert "buffer_steps" in reason


def test_a_replay_out_of_order(scene: Scene) -> None:
    scene.publisher.reorder = lambda wanted: wanted[::-1]
    for _ in range(8):
        scene.publisher.publish()
    with scene.heard():
        scene.wait_for(*range(8))
    assert scene.reasons == []


def test_a_replay_with_every_batch_twice(scene: Scene) -> None:
    scene.publisher.reorder = lambda wanted: [one for one in wanted for _ in range(2)]
    for _ in range(4):
        scene.publisher.publish()
    with scene.heard():
        scene.publisher.publish()
        scene.wait_for(0, 1, 2, 3, 4)


def test_a_replay_with_holes_is_asked_for_again(scene: Scene) -> None:
    """A publisher's queue of replies holds so many; what is more is dropped without a word."""
    tries: list[int] = []

    def drops(wanted: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        tries.append(len(wanted))
        return [one for place, one in enumerate(wanted) if place < 3 or place > 6]

    scene.publisher.reorder = drops
    for _ in range(12):
        scene.publisher.publish()
    with scene.heard():
        scene.wait_for(*range(12))
    assert scene.reasons == []
    # 12, then from 3 on (3, 4, 5 come), then from 6 on: the rest was kept from the first time.
    assert tries[:3] == [12, 9, 6]


def test_more_replies_than_a_queue_holds(scene: Scene) -> None:
    """A ROUTER drops replies beyond its 1,000 when they are not taken as fast as they are sent."""
    for _ in range(9_000):
        scene.publisher.publish(b"x" * 700)
    with scene.heard():
        wait_until(lambda: len(scene.applied) == 9_000, "all of the past")
    assert scene.reasons == []


def test_a_replay_that_hangs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "QUIET_SECONDS", 0.3)
    scene.publisher.hangs = True
    scene.publisher.publish()
    with scene.heard():
        scene.publisher.publish()  # waits for the replay, then is heard without it
        scene.wait_for(1)
        scene.publisher.publish(lost=True)
        scene.publisher.publish()
        scene.wait_for(1, 3)
        scene.publisher.publish()
        scene.wait_for(1, 3, 4)
    assert len(scene.reasons) == 2
    assert all(reason.startswith("no answer to the replay request") for reason in scene.reasons)


def test_a_replay_that_never_ends(scene: Scene) -> None:
    """Replies keep coming, none is the missing one: time is up."""
    scene.publisher.hangs = True
    with scene.heard(replay_seconds=0.5):
        scene.publisher.publish()
        scene.wait_for(0)
        scene.publisher.publish(lost=True)
        scene.publisher.publish()
        scene.wait_for(0, 2)
    (reason,) = scene.reasons
    assert reason == "the replay did not end within 0.5 s"


def test_nobody_at_the_replay_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "QUIET_SECONDS", 0.3)
    tracker, publisher = ToldTracker(), Publisher(ipc(tmp_path))
    publisher.publish()
    try:
        with hearing(tracker, entry(ipc(tmp_path), ipc(tmp_path, "nobody"))):
            wait_until(lambda: any(tracker.is_connected.values()), "the connection")
            publisher.publish()
            wait_until(lambda: tracker.of(REPLICA) == bodies(1), "the batch")
    finally:
        publisher.close()
    (told,) = tracker.gave_up
    assert told[1].startswith("no answer to the replay request")


def test_live_batches_wait_for_the_replay(scene: Scene) -> None:
    """While the replay is slow, what comes live is kept, and heard after it in order."""
    go = threading.Event()

    def slow(wanted: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        go.wait(30)
        return wanted[:4]

    scene.publisher.reorder = slow
    for _ in range(4):
        scene.publisher.publish()
    with scene.heard():
        for _ in range(4):
            scene.publisher.publish()
        assert scene.applied == []
        go.set()
        scene.wait_for(*range(8))
    (stream,) = scene.tracker.replayed
    assert scene.tracker.replayed[stream] == bodies(0, 1, 2, 3)


def test_duplicated_live_batches_count_once(scene: Scene) -> None:
    with scene.heard():
        scene.publisher.publish()
        for number in (0, 1, 1, 0, 1):
            if number == scene.publisher.next:
                scene.publisher.publish()
            else:
                scene.publisher.send(b"", number.to_bytes(8, "big"), b"batch %d" % number)
        scene.publisher.publish()
        scene.wait_for(0, 1, 2)
    assert scene.tracker.restarts == []


def test_t26_a_restart_is_seen_although_nothing_was_published_since(scene: Scene) -> None:
    with scene.heard():
        for _ in range(3):
            scene.publisher.publish()
        scene.wait_for(0, 1, 2)
        scene.restart()
        wait_until(lambda: scene.tracker.restarts, "the restart")
        assert scene.publisher.requests == [2]
        scene.publisher.publish(b"new 0")
        wait_until(lambda: scene.applied == [b"new 0"], "the new process' batch")
    assert scene.reasons == []


def test_t26_a_restarted_publisher_that_is_further_than_the_old_one(scene: Scene) -> None:
    """Its numbers alone look like a gap. The batch under the number heard last is another one."""
    with scene.heard():
        for _ in range(2):
            scene.publisher.publish()
        scene.wait_for(0, 1)
        scene.publisher.close()
        wait_until(lambda: not scene.connected, "the loss of the connection")
        scene.publisher = Publisher(ipc_elsewhere(scene), scene.replay)
        for number in range(5):
            scene.publisher.publish(b"new %d" % number)
        scene.publisher.socket.bind(scene.endpoint)
        wait_until(lambda: len(scene.applied) == 5, "the new process' batches")
    assert scene.applied == [b"new %d" % number for number in range(5)]
    assert scene.publisher.requests == [1, 0]
    assert len(scene.tracker.restarts) == 1
    assert scene.reasons == []


def ipc_elsewhere(scene: Scene) -> str:
    return scene.endpoint + ".before"


def test_t26_a_restart_without_replay(scene: Scene) -> None:
    with scene.heard(replay=False):
        for _ in range(3):
            scene.publisher.publish()
        scene.wait_for(0, 1, 2)
        scene.restart()
        scene.publisher.publish(b"new 0")
        wait_until(lambda: scene.applied == [b"new 0"], "the new process' batch")
        scene.publisher.publish(b"new 1", lost=True)
        scene.publisher.publish(b"new 2")
        wait_until(lambda: scene.applied == [b"new 0", b"new 2"], "what came after the hole")
    assert len(scene.reasons) == 1


def test_a_subscriber_that_was_away_is_told_what_it_missed() -> None:
    """The connection breaks and comes back; the publisher is the same."""
    first = free_port(2)
    endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in (first, first + 1))
    tracker, publisher = ToldTracker(), Publisher(endpoint, replay)
    name = StreamName("events", REPLICA)
    try:
        with hearing(tracker, entry(endpoint, replay)):
            wait_until(lambda: tracker.is_connected.get(name), "the connection")
            wait_until(lambda: publisher.requests, "the first request")
            publisher.publish()
            wait_until(lambda: tracker.of(REPLICA) == bodies(0), "the first batch")
            publisher.socket.close()
            wait_until(lambda: not tracker.is_connected[name], "the loss of the connection")
            publisher.publish(lost=True)
            publisher.publish(lost=True)
            publisher.socket = publisher.context.socket(zmq.PUB)
            publisher.socket.set(zmq.LINGER, 0)
            publisher.socket.bind(endpoint)
            wait_until(lambda: tracker.of(REPLICA) == bodies(0, 1, 2), "what was missed")
    finally:
        publisher.close()
    assert publisher.requests == [0, 0]
    assert (tracker.gave_up, tracker.restarts) == ([], [])


def test_messages_of_a_wrong_shape_are_counted_and_do_no_harm(scene: Scene) -> None:
    with scene.heard():
        scene.publisher.publish()
        scene.publisher.send(b"one frame")
        scene.publisher.send(b"", b"\x01", b"a short number")
        scene.publisher.send(b"", (9).to_bytes(8, "big"), b"")
        scene.publisher.send(*[b"x"] * 40)
        scene.publisher.send(b"", b"\xff" * 8, b"an end mark")
        scene.publisher.publish()
        scene.wait_for(0, 1)
        wait_until(lambda: len(scene.tracker.faults) == 5, "five faults")


def test_replies_of_a_wrong_shape_are_counted_and_do_no_harm(scene: Scene) -> None:
    tracker, context = scene.tracker, scene.publisher.context
    scene.publisher.publish()
    router = context.socket(zmq.ROUTER)
    router.set(zmq.LINGER, 0)
    bad = scene.replay + "-bad"
    router.bind(bad)
    try:
        with hearing(tracker, entry(scene.endpoint, bad)):
            client, _, _ = router.recv_multipart()
            router.send_multipart([client, b"", b"what"])
            router.send_multipart([client, b"no delimiter", b"", bytes(8), b"batch 0"])
            router.send_multipart([client, b"", b"", bytes(8), b"batch 0"])
            router.send_multipart([client, b"", b"", b"\xff" * 8, b""])
            scene.wait_for(0)
    finally:
        router.close()
    assert len(tracker.faults) == 2


def test_a_message_beyond_the_limit_is_lost_not_taken(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the connection, live and in the replay; the state says what is missing."""
    monkeypatch.setattr(follower, "QUIET_SECONDS", 0.3)
    monkeypatch.setattr(worker_module, "REOPEN_SECONDS", 0.3)
    with scene.heard(max_message_bytes=100_000):
        scene.publisher.publish()
        scene.wait_for(0)
        scene.publisher.publish(b"x" * 100_001)
        wait_until(lambda: len(scene.publisher.requests) > 1, "the request after the connection")
        wait_until(lambda: scene.connected, "the connection")

        def later_batches() -> bool:
            scene.publisher.publish(b"later")
            time.sleep(0.05)
            return b"later" in scene.applied

        wait_until(later_batches, "a batch after the large one")
    assert not any(len(payload) > 100_000 for payload in scene.applied)
    assert scene.reasons


def test_the_limit_is_100_megabytes_by_default() -> None:
    assert EventSettings(endpoint="tcp://h:1").max_message_bytes == 104_857_600


def test_a_publisher_that_never_comes(tmp_path: Path) -> None:
    tracker = ToldTracker()
    with hearing(tracker, entry(ipc(tmp_path), ipc(tmp_path, "replay"))) as worker:
        wait_until(lambda: tracker.is_connected, "the stream's name")
        assert worker.alive
    assert tracker.is_connected == {StreamName("events", REPLICA): False}
    assert not worker.alive


def test_a_publisher_that_comes_later(tmp_path: Path) -> None:
    tracker = ToldTracker()
    with hearing(tracker, entry(ipc(tmp_path), ipc(tmp_path, "replay"))):
        wait_until(lambda: tracker.is_connected, "the stream's name")
        publisher = Publisher(ipc(tmp_path), ipc(tmp_path, "replay"))
        try:
            publisher.publish()
            wait_until(lambda: tracker.of(REPLICA) == bodies(0), "the batch")
        finally:
            publisher.close()


def test_another_server_than_a_publisher(tmp_path: Path) -> None:
    """A socket of another kind answers at the endpoint: nothing is heard, nothing breaks."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    other = context.socket(zmq.REP)
    other.bind(ipc(tmp_path))
    tracker = ToldTracker()
    try:
        with hearing(tracker, entry(ipc(tmp_path))) as worker:
            wait_until(lambda: tracker.is_connected, "the stream's name")
            assert worker.alive
        assert tracker.of(REPLICA) == []
    finally:
        other.close()
        context.term()


def test_every_rank_is_a_stream_of_its_own() -> None:
    port = free_port(4)
    replay = port + 2
    publishers = [
        Publisher(f"tcp://127.0.0.1:{port + rank}", f"tcp://127.0.0.1:{replay + rank}")
        for rank in (0, 1)
    ]
    tracker = ToldTracker()
    try:
        publishers[0].publish(b"of rank 0")
        publishers[1].publish(b"of rank 1")
        settings = entry(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{replay}", ranks=2)
        with hearing(tracker, settings):
            wait_until(lambda: len(tracker.applied) == 2, "both ranks")
    finally:
        for publisher in publishers:
            publisher.close()
    ranks = {stream.rank: payloads for stream, payloads in tracker.applied.items()}
    assert ranks == {0: [b"of rank 0"], 1: [b"of rank 1"]}
    assert {stream.replica for stream in tracker.applied} == {REPLICA}


def test_only_the_topic_asked_for(tmp_path: Path) -> None:
    tracker, publisher = ToldTracker(), Publisher(ipc(tmp_path), topic=b"kv-events")
    try:
        with hearing(tracker, entry(ipc(tmp_path), topic="kv-")):
            wait_until(lambda: any(tracker.is_connected.values()), "the connection")

            def heard() -> bool:
                publisher.send(b"other", bytes(8), b"not this")
                publisher.send(b"kv-events", bytes(8), b"this")
                time.sleep(0.02)
                return bool(tracker.of(REPLICA))

            wait_until(heard, "the batch of the topic")
    finally:
        publisher.close()
    assert tracker.of(REPLICA) == [b"this"]


def test_inproc_needs_no_connection_to_be_told_of() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = Publisher("inproc://events", "inproc://replay", context=context)
    publisher.publish()
    tracker = ToldTracker()
    with hearing(tracker, entry("inproc://events", "inproc://replay"), context=context):
        wait_until(lambda: tracker.of(REPLICA) == bodies(0), "the past")
        publisher.publish()
        wait_until(lambda: tracker.of(REPLICA) == bodies(0, 1), "the present")
    publisher.close()
    context.term()
