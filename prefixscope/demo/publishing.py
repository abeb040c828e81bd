"""Publishes the demo's KV-cache events over ZeroMQ on loopback, and answers requests for replays,
as an engine does: what the exporter hears is an ordinary live stream."""

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread

import zmq

TOPIC = b"kv-events"
POLL_MILLISECONDS = 500
_END = struct.pack(">q", -1)

# Gives the kept batches of a replica from a number on, oldest first.
Batches = Callable[[str, int], list[tuple[int, bytes]]]


@dataclass(frozen=True)
class Endpoints:
    """Where the events of one replica are published, and where missed ones are asked for."""

    live: str
    replay: str


class EventPublisher:
    """One pair of sockets a replica.

    The sockets are bound at once, so that `endpoints` can be told before anything is published.
    """

    def __init__(self, replicas: Iterable[str], batches: Batches) -> None:
        self._batches = batches
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._live = {name: self._bound(zmq.PUB) for name in replicas}
        self._replay = {name: self._bound(zmq.ROUTER) for name in self._live}
        self._published = dict.fromkeys(self._live, 0)
        self._stop = Event()
        self._thread = Thread(target=self._run, name="demo-events", daemon=True)
        self._thread.start()

    @property
    def endpoints(self) -> dict[str, Endpoints]:
        """By replica."""
        return {name: Endpoints(_address(self._live[name]), _address(self._replay[name]))
                for name in self._live}  # fmt: skip

    def close(self) -> None:
        """Stop publishing and give the ports back."""
        self._stop.set()
        self._thread.join()

    def _bound(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)  # a replay is longer than the usual bound
        socket.bind("tcp://127.0.0.1:*")
        return socket

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in self._replay.values():
            poller.register(socket, zmq.POLLIN)
        while not self._stop.is_set():
            poller.poll(POLL_MILLISECONDS)
            for name in self._live:
                self._answer(name)
                self._publish(name)
        for socket in (*self._live.values(), *self._replay.values()):
            socket.close()
        self._context.term()

    def _publish(self, name: str) -> None:
        """Send what is new."""
        for sequence, payload in self._batches(name, self._published[name]):
            self._live[name].send_multipart([TOPIC, struct.pack(">Q", sequence), payload])
            self._published[name] = sequence + 1

    def _answer(self, name: str) -> None:
        """Send whoever asked what is kept, from the number asked for on, and an end."""
        with suppress(zmq.Again):
            while True:
                asker, *request = self._replay[name].recv_multipart(zmq.NOBLOCK)
                if len(request) != 2 or len(request[1]) != 8:
                    continue
                first = int.from_bytes(request[1], "big")
                for sequence, payload in self._batches(name, first):
                    if sequence < self._published[name]:
                        reply = [asker, b"", TOPIC, struct.pack(">Q", sequence), payload]
                        self._replay[name].send_multipart(reply)
                self._replay[name].send_multipart([asker, b"", b"", _END, b""])


def _address(socket: zmq.Socket[bytes]) -> str:
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b"\0").decode()
