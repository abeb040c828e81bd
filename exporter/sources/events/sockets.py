"""The ZeroMQ sockets of one subscription: what is heard, who is connected, and replays."""

import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import zmq

from exporter.errors import PrefixscopeError
from exporter.sources.events.endpoints import Endpoint
from exporter.sources.events.frames import replay_request
from exporter.sources.events.subscriptions import Subscription

logger = logging.getLogger(__name__)

# A connection that was cut without a word is noticed after a minute at the latest: by TCP. With
# ZeroMQ's own heartbeats libzmq (4.3.5 too) aborts the whole process when the queue of a socket
# is full and the connection is made anew.
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_PROBES = 30, 10, 3
RECONNECT_MS, RECONNECT_MAX_MS = 100, 2_000
# Replies wait here while others are worked on; publishers drop what finds no room.
REPLY_BATCHES = 10_000

_FAILED = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)
_MONITORED = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED | _FAILED
_MONITOR_MESSAGE = struct.Struct("=HI")

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]


@dataclass(frozen=True)
class Message:
    """The frames of one message, and the address it came from where the transport tells."""

    frames: list[bytes] = field(repr=False)
    peer: str | None = None


class CannotListen(PrefixscopeError):
    """An endpoint that cannot be bound or connected to; the message says which setting."""


class Listening:
    """The socket of one subscription, and a second one that tells who comes and goes."""

    def __init__(self, context: Context, subscription: Subscription) -> None:
        settings = subscription.settings
        self.subscription = subscription
        self.socket = _open(context, zmq.SUB, subscription.endpoint)
        self.socket.set(zmq.RCVHWM, settings.receive_batches)
        self.socket.set(zmq.MAXMSGSIZE, settings.max_message_bytes)
        self.socket.set(zmq.SUBSCRIBE, settings.topic.encode())
        self.monitor = self.socket.get_monitor_socket(_MONITORED)
        # Of inproc nothing is told.
        self.connections = int(subscription.endpoint.scheme == "inproc")
        # Ends of connections to be passed over: of those that never were any.
        self._failed = 0
        try:
            _attach(self.socket, subscription.endpoint, bind=subscription.bind)
        except CannotListen:
            self.close()
            raise

    def messages(self, most: int) -> Iterator[Message]:
        """What has come, at most so many."""
        tells_peer = self.subscription.bind and self.subscription.endpoint.scheme == "tcp"
        for parts in _received(self.socket, most):
            yield Message([part.bytes for part in parts], _peer(parts[0]) if tells_peer else None)

    def changes(self) -> Iterator[bool]:
        """Connections won (True) and lost (False) since the last call, in order."""
        while True:
            try:
                told = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event, _ = _MONITOR_MESSAGE.unpack(told[0])
            if event & _FAILED:
                self._failed += 1
            elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self.connections += 1
                yield True
            elif self._failed:
                self._failed -= 1
            elif self.connections:
                self.connections -= 1
                yield False

    def close(self) -> None:
        """End, without waiting for anything."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=0)


class ReplaySocket:
    """Asks one publisher for its past, on a new socket each time: late replies then cannot be
    taken for those of a later request. `changed` is told of a socket that came or went."""

    def __init__(
        self,
        context: Context,
        endpoint: Endpoint,
        max_message_bytes: int,
        changed: Callable[[Socket, bool], None],
    ) -> None:
        self._context = context
        self._endpoint = endpoint
        self._max_message_bytes = max_message_bytes
        self._changed = changed
        self.socket: Socket | None = None

    def ask(self, start: int) -> None:
        """Send the request; it waits where the publisher does not answer yet, and is not sent
        where the address cannot be used."""
        self.end()
        socket = _open(self._context, zmq.DEALER, self._endpoint)
        socket.set(zmq.RCVHWM, REPLY_BATCHES)
        socket.set(zmq.MAXMSGSIZE, self._max_message_bytes)
        try:
            _attach(socket, self._endpoint, bind=False)
        except CannotListen as error:
            socket.close(linger=0)
            logger.error("%s", error)
            return
        socket.send_multipart(replay_request(start), zmq.NOBLOCK)
        self.socket = socket
        self._changed(socket, True)

    def end(self) -> None:
        """Take no more replies."""
        if self.socket is not None:
            self._changed(self.socket, False)
            self.socket.close(linger=0)
            self.socket = None

    def replies(self, most: int) -> Iterator[list[bytes]]:
        """What has come, at most so many; ends when the socket is closed on the way."""
        for _ in range(most):
            socket = self.socket
            if socket is None:
                return
            parts = next(_received(socket, 1), None)
            if parts is None:
                return
            yield [part.bytes for part in parts]


def _open(context: Context, kind: int, endpoint: Endpoint) -> Socket:
    socket = context.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IPV6, int(endpoint.may_be_ipv6))
    socket.set(zmq.TCP_KEEPALIVE, 1)
    socket.set(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_SECONDS)
    socket.set(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_SECONDS)
    socket.set(zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
    return socket


def _attach(socket: Socket, endpoint: Endpoint, *, bind: bool) -> None:
    try:
        if bind:
            socket.bind(str(endpoint))
        else:
            socket.connect(str(endpoint))
    except zmq.ZMQError as error:
        verb = "listen at" if bind else "connect to"
        raise CannotListen(
            f"events: cannot {verb} {endpoint}: {error.strerror}; correct endpoint or "
            "replay_endpoint under events"
        ) from error


def _received(socket: Socket, most: int) -> Iterator[list[zmq.Frame]]:
    for _ in range(most):
        try:
            yield socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return


def _peer(frame: zmq.Frame) -> str | None:
    """The address a message came from, without the wrapping of IPv4 in IPv6."""
    try:
        address = str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return None
    return address.removeprefix("::ffff:") or None
