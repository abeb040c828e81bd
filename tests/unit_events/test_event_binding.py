"""Endpoints bound here: engines connect, and are told apart by topic or address."""

import socket
import time
from pathlib import Path

import pytest

from exporter.blocks.order import StreamName
from exporter.sources.discovery import Target
from exporter.sources.events import worker
from exporter.sources.events.settings import EventSettings
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


def test_bound_here_publishers_connect_and_are_told_apart_by_topic(tmp_path: Path) -> None:
    tracker = ToldTracker()
    settings = EventSettings(endpoint=ipc(tmp_path), bind=True)
    with hearing(tracker, settings):
        one = Publisher(ipc(tmp_path), topic=b"kv@pod-1@llama", bind=False)
        two = Publisher(ipc(tmp_path), topic=b"kv@pod-2@qwen", bind=False)

        def both() -> bool:
            one.send(b"kv@pod-1@llama", bytes(8), b"from one")
            two.send(b"kv@pod-2@qwen", bytes(8), b"from two")
            time.sleep(0.02)
            return len(tracker.applied) == 2

        try:
            wait_until(both, "both publishers")
        finally:
            one.close()
            two.close()
    assert tracker.applied == {
        StreamName("events", "pod-1", "llama"): [b"from one"],
        StreamName("events", "pod-2", "qwen"): [b"from two"],
    }
    assert tracker.restarts == []


def test_bound_here_a_publisher_without_topic_is_named_after_its_address() -> None:
    tracker = ToldTracker()
    first = free_port(2)
    endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in (first, first + 1))
    settings = EventSettings(
        endpoint=endpoint, bind=True, replay_endpoint=replay.replace("127.0.0.1", "{host}")
    )
    with hearing(tracker, settings):
        publisher = Publisher(endpoint, replay, bind=False)
        publisher.publish(lost=True)
        publisher.publish(lost=True)

        def heard() -> bool:
            publisher.publish()
            time.sleep(0.02)
            return len(tracker.of("127.0.0.1")) == publisher.next

        try:
            wait_until(heard, "the whole past, replayed")
        finally:
            publisher.close()
    assert tracker.gave_up == []


def test_bound_here_two_publishers_under_one_name_are_uncertain(tmp_path: Path) -> None:
    tracker = ToldTracker()
    with hearing(tracker, entry(ipc(tmp_path), bind=True)):
        one = Publisher(ipc(tmp_path), bind=False)
        two = Publisher(ipc(tmp_path), bind=False)

        def heard() -> bool:
            one.send(b"", bytes(8), b"batch 0")
            time.sleep(0.02)
            return bool(tracker.of(REPLICA))

        try:
            wait_until(heard, "a batch, which makes the stream")
            three = Publisher(ipc(tmp_path), bind=False)
            wait_until(lambda: tracker.lost_reasons, "the reason")
            three.close()
        finally:
            one.close()
            two.close()
    assert "kv@REPLICA@MODEL" in tracker.lost_reasons[0][1]


def test_an_address_that_is_taken_is_said_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    other = Publisher(endpoint)
    tracker = ToldTracker()
    with hearing(tracker, entry(endpoint, bind=True)) as worker:
        wait_until(lambda: "cannot listen at" in caplog.text, "the message")
        assert worker.alive
    other.close()
    assert f"events: cannot listen at {endpoint}: Address already in use" in caplog.text


def test_who_only_knocks_does_not_count_as_a_publisher() -> None:
    """A probe of the port comes and goes beside the publisher: it is no connection lost."""
    port = free_port()
    endpoint = f"tcp://127.0.0.1:{port}"
    tracker, name = ToldTracker(), StreamName("events", REPLICA)
    with hearing(tracker, entry(endpoint, bind=True)):
        publisher = Publisher(endpoint, bind=False)
        try:

            def heard() -> bool:
                publisher.send(b"", bytes(8), b"batch 0")
                time.sleep(0.02)
                return bool(tracker.of(REPLICA))

            wait_until(heard, "the first batch")
            for greeting in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64):
                with socket.create_connection(("127.0.0.1", port)) as probe:
                    probe.sendall(greeting)
            publisher.send(b"", (1).to_bytes(8, "big"), b"batch 1")
            wait_until(lambda: tracker.of(REPLICA) == bodies(0, 1), "the next batch")
            assert tracker.is_connected[name]
            publisher.close()
            wait_until(lambda: not tracker.is_connected[name], "the loss of the publisher")
        except BaseException:
            publisher.close()
            raise
    assert tracker.lost_reasons == []


def test_a_publisher_that_left_for_good_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two goes; after a while only the other is kept."""
    monkeypatch.setattr(worker, "GONE_SECONDS", 2.0)
    tracker = ToldTracker()
    with hearing(tracker, EventSettings(endpoint=ipc(tmp_path), bind=True)):
        one, two = (Publisher(ipc(tmp_path), bind=False) for _ in range(2))
        numbers = {b"one": 0, b"two": 0}

        def say(publisher: Publisher, topic: bytes) -> None:
            publisher.send(topic, numbers[topic].to_bytes(8, "big"), topic)
            numbers[topic] += 1

        def both() -> bool:
            say(one, b"one")
            say(two, b"two")
            time.sleep(0.02)
            return len(tracker.applied) == 2 or bool(tracker.forgotten)

        def left() -> bool:
            say(two, b"two")
            time.sleep(0.02)
            return bool(tracker.forgotten)

        try:
            wait_until(both, "both publishers")
            one.close()
            wait_until(left, "the first to be forgotten")
        finally:
            two.close()
    assert tracker.forgotten == [StreamName("events", "one")]
    assert tracker.of("two")


def test_a_target_that_is_scraped_no_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "REFRESH_SECONDS", 0.1)
    targets = [Target("a", "http://127.0.0.1:9/metrics", "pod-a")]
    tracker = ToldTracker()
    settings = EventSettings(endpoint=f"tcp://{{host}}:{free_port()}")
    hears = worker.EventWorker(tracker, [settings], lambda: targets)
    hears.start()
    try:
        wait_until(lambda: tracker.is_connected, "the stream")
        targets.clear()
        wait_until(lambda: tracker.forgotten, "the end of it")
    finally:
        hears.stop()
    assert tracker.forgotten == [StreamName("events", "pod-a")]


def test_an_engine_that_moved_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while it is scraped at two addresses; then the old one goes."""
    monkeypatch.setattr(worker, "REFRESH_SECONDS", 0.1)
    old, new = (
        Target(host, f"http://{host}:9/metrics", "pod-a") for host in ("127.0.0.1", "127.0.0.2")
    )
    targets = [old, new]
    port = free_port()
    publisher = Publisher(f"tcp://127.0.0.2:{port}")
    tracker, name = ToldTracker(), StreamName("events", "pod-a")
    settings = EventSettings(endpoint=f"tcp://{{host}}:{port}")
    hears = worker.EventWorker(tracker, [settings], lambda: targets)
    hears.start()
    try:
        wait_until(lambda: tracker.is_connected.get(name), "the new address")
        targets[0] = Target("b", "http://127.0.0.3:9/metrics", "pod-b")
        wait_until(lambda: StreamName("events", "pod-b") in tracker.is_connected, "a later look")
        assert (tracker.forgotten, tracker.is_connected[name]) == ([], True)
    finally:
        hears.stop()
        publisher.close()
