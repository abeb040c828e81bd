"""Publishers at connected addresses that their topics name: each is one stream, never two."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from exporter.blocks.order import StreamName
from exporter.sources.events.settings import EventSettings
from tests.running import free_port
from tests.unit_events.publishing import (
    Publisher,
    ToldTracker,
    bodies,
    hearing,
    ipc,
    wait_until,
)

POD_1, POD_2 = (StreamName("events", f"pod-{number}", "llama") for number in (1, 2))
TOPIC_1, TOPIC_2 = b"kv@pod-1@llama", b"kv@pod-2@llama"


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    made = publishing(tmp_path, TOPIC_1)
    yield made
    made.close()


def publishing(folder: Path, topic: bytes) -> Publisher:
    return Publisher(ipc(folder), ipc(folder, "replay"), topic=topic)


def nameless(folder: Path) -> EventSettings:
    return EventSettings(endpoint=ipc(folder), replay_endpoint=ipc(folder, "replay"))


def test_the_past_of_a_silent_publisher_names_it(tmp_path: Path, publisher: Publisher) -> None:
    for _ in range(3):
        publisher.publish()
    tracker = ToldTracker()
    with hearing(tracker, nameless(tmp_path)):
        wait_until(lambda: tracker.of("pod-1") == bodies(0, 1, 2), "the past")
        publisher.publish()
        wait_until(lambda: tracker.of("pod-1") == bodies(0, 1, 2, 3), "the present")
        assert tracker.is_connected == {POD_1: True}
    assert tracker.applied == {POD_1: bodies(0, 1, 2, 3)}
    assert tracker.gave_up == []


def test_without_topics_in_replies_the_first_live_message_names_it(
    tmp_path: Path, publisher: Publisher
) -> None:
    publisher.with_topic_frame = False
    for _ in range(3):
        publisher.publish()
    tracker = ToldTracker()
    with hearing(tracker, nameless(tmp_path)):
        wait_until(lambda: publisher.requests, "the question for the name")
        publisher.publish()
        wait_until(lambda: tracker.of("pod-1") == bodies(0, 1, 2, 3), "past and present")
    assert set(tracker.is_connected) == {POD_1}


def test_who_has_published_nothing_has_no_name_yet(tmp_path: Path, publisher: Publisher) -> None:
    tracker = ToldTracker()
    with hearing(tracker, nameless(tmp_path)):
        wait_until(lambda: publisher.requests, "the question for the name")
        assert tracker.is_connected == {}
        publisher.publish()
        wait_until(lambda: tracker.of("pod-1") == bodies(0), "the first batch")
    assert set(tracker.is_connected) == {POD_1}


def test_another_pod_at_the_same_address_is_another_stream(
    tmp_path: Path, publisher: Publisher
) -> None:
    """What the new pod replays is its own past, and nothing of the one that was there before."""
    for _ in range(3):
        publisher.publish()
    tracker = ToldTracker()
    with hearing(tracker, nameless(tmp_path)):
        wait_until(lambda: tracker.of("pod-1") == bodies(0, 1, 2), "the past of the first")
        publisher.close()
        wait_until(lambda: not tracker.is_connected[POD_1], "the loss of the first")
        second = publishing(tmp_path, TOPIC_2)
        try:
            for number in range(5):
                second.publish(b"of the second %d" % number)
            wait_until(lambda: tracker.restarts, "the end of the first")
            second.publish(b"of the second 5")
            wait_until(lambda: len(tracker.of("pod-2")) == 6, "all of the second")
        finally:
            second.close()
    assert tracker.of("pod-2") == [b"of the second %d" % number for number in range(6)]
    assert tracker.of("pod-1") == []
    assert tracker.restarts == [POD_1]


def test_a_topic_that_names_nobody_leaves_the_address(tmp_path: Path) -> None:
    port = free_port(2)
    endpoint, replay = (f"tcp://127.0.0.1:{each}" for each in (port, port + 1))
    tracker, publisher = ToldTracker(), Publisher(endpoint, replay)
    publisher.publish()
    try:
        settings = EventSettings(endpoint=endpoint, replay_endpoint=replay)
        with hearing(tracker, settings):
            wait_until(lambda: tracker.applied, "the past")
    finally:
        publisher.close()
    assert tracker.applied == {StreamName("events", f"127.0.0.1:{port}"): bodies(0)}


def test_an_odd_first_reply_is_no_name(tmp_path: Path, publisher: Publisher) -> None:
    """Nor does it keep the next one from telling it."""
    publisher.close()
    tracker = ToldTracker()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    live, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    live.bind(ipc(tmp_path))
    router.bind(ipc(tmp_path, "replay"))
    try:
        with hearing(tracker, nameless(tmp_path)):
            client, _, _ = router.recv_multipart()
            router.send_multipart([client, b"", b"what"])
            router.send_multipart([client, b"", TOPIC_1, bytes(8), b"batch 0"])
            wait_until(lambda: tracker.is_connected == {POD_1: True}, "the name")
    finally:
        live.close(linger=0)
        router.close(linger=0)
        context.term()
