"""A publisher of KV-cache events as vLLM's and SGLang's is, with real sockets, and faults to order.

Written from what engines send: PUB with [topic, sequence, payload], a ROUTER that replays the last
batches in order and ends with -1, with the topic frame (newer) or without (older).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import zmq

from exporter.blocks.order import Heard, Order, StreamName, digest
from exporter.sources.events.settings import EventSettings
from exporter.sources.events.worker import EventWorker

END = b"\xff" * 8
PATIENCE_SECONDS = 120.0


class Publisher:
    """One engine process. Batches are `publish`ed from the test; replays run in a thread."""

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str | None = None,
        *,
        topic: bytes = b"",
        bind: bool = True,
        with_topic_frame: bool = True,
        buffer_steps: int = 10_000,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = context or zmq.Context()
        self._own_context = context is None
        self.topic = topic
        self.with_topic_frame = with_topic_frame
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self.next = 0
        self.hangs = False
        self.requests: list[int] = []
        # What a replay sends, changed on the way: list of (sequence, payload) -> the same.
        self.reorder: Callable[[list[tuple[int, bytes]]], list[tuple[int, bytes]]] = list
        self.socket = self.context.socket(zmq.PUB)
        self.socket.set(zmq.LINGER, 0)
        (self.socket.bind if bind else self.socket.connect)(endpoint)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._replay, daemon=True)
        self._router: zmq.Socket[bytes] | None = None
        if replay_endpoint is not None:
            self._router = self.context.socket(zmq.ROUTER)
            self._router.set(zmq.LINGER, 0)
            self._router.bind(replay_endpoint)
            self._thread.start()

    def publish(self, payload: bytes | None = None, *, lost: bool = False) -> int:
        """The next batch; `lost`: it is never sent, though it can be replayed."""
        sequence = self.next
        self.next += 1
        body = payload if payload is not None else b"batch %d" % sequence
        if not lost:
            self.send(self.topic, sequence.to_bytes(8, "big"), body)
        with self._lock:
            self.buffer.append((sequence, body))
        return sequence

    def send(self, *frames: bytes) -> None:
        """Frames as they are."""
        self.socket.send_multipart(frames)

    def close(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._router is not None:
            self._router.close()
        self.socket.close()
        if self._own_context:
            self.context.term()

    def _replay(self) -> None:
        assert self._router is not None
        while not self._stopped.is_set():
            if not self._router.poll(20):
                continue
            client, empty, start = self._router.recv_multipart()
            assert empty == b""
            self.requests.append(int.from_bytes(start, "big"))
            if self.hangs:
                continue
            with self._lock:
                wanted = [one for one in self.buffer if one[0] >= self.requests[-1]]
            for sequence, payload in self.reorder(wanted):
                self._reply(client, self.topic, sequence.to_bytes(8, "big"), payload)
            self._reply(client, b"", END, b"")

    def _reply(self, client: bytes, topic: bytes, sequence: bytes, payload: bytes) -> None:
        assert self._router is not None
        topics = [topic] if self.with_topic_frame else []
        self._router.send_multipart([client, b"", *topics, sequence, payload])


class ToldTracker:
    """Keeps the order as the real tracker does, and remembers what it was told. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._orders: dict[StreamName, Order] = {}
        self.applied: dict[StreamName, list[bytes]] = {}
        self.replayed: dict[StreamName, list[bytes]] = {}
        self.gave_up: list[tuple[StreamName, str]] = []
        self.lost_reasons: list[tuple[StreamName, str]] = []
        # Why the state of the process heard now may be wrong.
        self.doubts: dict[StreamName, list[str]] = {}
        self.restarts: list[StreamName] = []
        self.forgotten: list[StreamName] = []
        self.is_connected: dict[StreamName, bool] = {}
        self.faults: list[StreamName] = []

    def hear(
        self, stream: StreamName, sequence: int, payload: bytes, heard_at: datetime,
        replayed: bool = False,
    ) -> Heard:  # fmt: skip
        assert heard_at.tzinfo is not None
        with self._lock:
            order = self._orders.setdefault(stream, Order())
            heard = order.place(sequence, digest(payload), replayed)
            if heard is Heard.RESTARTED:
                self._began_anew(stream)
            if heard is Heard.APPLIED or (heard is Heard.RESTARTED and not order.missing):
                self.applied.setdefault(stream, []).append(payload)
                if replayed:
                    self.replayed.setdefault(stream, []).append(payload)
            return heard

    def missing(self, stream: StreamName) -> range:
        with self._lock:
            return self._orders.setdefault(stream, Order()).missing

    def give_up(self, stream: StreamName, reason: str) -> None:
        with self._lock:
            self.gave_up.append((stream, reason))
            self.doubts.setdefault(stream, []).append(reason)
            self._orders.setdefault(stream, Order()).give_up()

    def restarted(self, stream: StreamName, heard_at: datetime) -> None:
        assert heard_at.tzinfo is not None
        with self._lock:
            self._orders.setdefault(stream, Order()).begin_anew()
            self._began_anew(stream)

    def connected(self, stream: StreamName, is_connected: bool) -> None:
        with self._lock:
            self.is_connected[stream] = is_connected

    def malformed(self, stream: StreamName) -> None:
        with self._lock:
            self.faults.append(stream)

    def lost(self, stream: StreamName, reason: str) -> None:
        with self._lock:
            self.lost_reasons.append((stream, reason))
            self.doubts.setdefault(stream, []).append(reason)

    def forget(self, stream: StreamName) -> None:
        with self._lock:
            self.forgotten.append(stream)
            for kept in (self._orders, self.applied, self.is_connected):
                kept.pop(stream, None)

    def of(self, replica: str) -> list[bytes]:
        """What is applied of the streams of a replica, ranks one after the other."""
        with self._lock:
            names = sorted(
                (n for n in self.applied if n.replica == replica), key=lambda n: n.rank or 0
            )
            return [payload for name in names for payload in self.applied[name]]

    def _began_anew(self, stream: StreamName) -> None:
        self.restarts.append(stream)
        self.applied[stream] = []
        self.doubts[stream] = []


@contextmanager
def hearing(
    tracker: ToldTracker, *entries: EventSettings,
    context: zmq.Context[zmq.Socket[bytes]] | None = None,
) -> Iterator[EventWorker]:  # fmt: skip
    """A worker at work."""
    worker = EventWorker(tracker, entries, context=context)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def wait_until(ready: Callable[[], object], what: str = "") -> None:
    """Ask again and again; a machine may be slow, but not for ever."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < end, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
        time.sleep(0.01)


def bodies(*numbers: int) -> list[bytes]:
    return [b"batch %d" % number for number in numbers]


def entry(endpoint: str, replay: str | None = None, **more: object) -> EventSettings:
    given = {"endpoint": endpoint, "replay_endpoint": replay, "replica": "engine", **more}
    return EventSettings.model_validate(given)


def ipc(folder: Path, name: str = "events") -> str:
    """An address no other test has. Paths of sockets may be 107 bytes long."""
    return f"ipc://{folder / name}"
