"""The one thread that hears every stream of KV-cache events.

It alone touches the sockets. Each turn takes a bounded number of messages from every socket, so
that a busy engine or a long replay keeps none of the others waiting.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import zmq

from exporter.background import Background
from exporter.blocks.order import StreamName
from exporter.blocks.tracker import Tracker
from exporter.sources.discovery import Target
from exporter.sources.events.follower import Follower, Moment
from exporter.sources.events.frames import BadFrames, live_batch, replayed_batch
from exporter.sources.events.hearing import Hearing, Stream, say_once
from exporter.sources.events.settings import EventSettings, leak_of
from exporter.sources.events.sockets import (
    CannotListen,
    Context,
    Listening,
    Message,
    ReplaySocket,
    Socket,
)
from exporter.sources.events.subscriptions import Subscription, subscriptions

logger = logging.getLogger(__name__)

TURN_MS = 200
MESSAGES_A_TURN = 200
# How often the scraped targets are looked at for hosts that came or went.
REFRESH_SECONDS = 5.0
# ZeroMQ connects again by itself, but not after what it takes for a fault of the protocol, such as
# a message beyond the limit. Then only a new socket helps.
REOPEN_SECONDS = 15.0
MAX_SOCKETS = 20_000
# Names that a bound socket takes from topics and addresses; whoever connects chooses them.
MAX_STREAMS_A_SOCKET = 1_000
# One of many publishers at a bound socket that said nothing for so long, while fewer are connected
# than were heard, has gone for good.
GONE_SECONDS = 3_600.0

Key = tuple[str, str | None]


class EventWorker(Background):
    """Hears the configured streams until stopped; what was not heard then is asked for after the
    next start. `targets` gives the scraped engines of now."""

    def __init__(
        self,
        tracker: Tracker,
        entries: Sequence[EventSettings],
        targets: Callable[[], Sequence[Target]] = tuple,
        context: Context | None = None,
    ) -> None:
        super().__init__("events")
        self._tracker = tracker
        self._entries = entries
        self._targets = targets
        self._context: Context = context or zmq.Context()
        self._own_context = context is None
        self._poller = zmq.Poller()
        self._heard: dict[Key, Hearing] = {}
        self._replies: dict[Socket, Stream | Hearing] = {}
        self._failed: dict[Key, str] = {}
        self._refresh_due = 0.0

    # ---------------------------------------------------------------- running

    def start(self) -> None:
        """Begin to listen, and say what is sent for others to hear."""
        for entry in self._entries:
            if (leak := leak_of(entry)) is not None:
                logger.warning("events %s: %s", entry.endpoint, leak)
        super().start()

    def _run(self) -> None:
        if self._own_context:
            self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        try:
            while not self._stopped.is_set():
                self._turn()
        finally:
            while self._heard:
                self._close(self._heard.popitem()[1])
            if self._own_context:
                self._context.term()

    def _turn(self) -> None:
        """Take what has come, a bounded piece from everybody; wait a little if nothing has."""
        if time.monotonic() >= self._refresh_due:
            self._refresh()
        ready = {socket for socket, _ in self._poller.poll(TURN_MS)}
        now = Moment(datetime.now(UTC), time.monotonic())
        for heard in self._heard.values():
            if heard.listening.monitor in ready:
                self._take_changes(heard, now)
            if heard.listening.socket in ready:
                self._take_messages(heard, now)
        for socket in ready & self._replies.keys():
            asked = self._replies[socket]
            if isinstance(asked, Stream):
                self._take_replies(asked, now)
            else:
                self._take_name(asked, now)
        for heard in list(self._heard.values()):
            self._look_after(heard, now)

    # ---------------------------------------------------------------- sockets

    def _refresh(self) -> None:
        """Open what is wanted and not open; close what is wanted no more."""
        self._refresh_due = time.monotonic() + REFRESH_SECONDS
        wanted = {one.key: one for one in subscriptions(self._entries, self._targets())}
        for gone in self._heard.keys() - wanted.keys():
            closed = self._heard.pop(gone)
            for name in self._close(closed):
                self._tracker.forget(name)
        for key, subscription in wanted.items():
            if key not in self._heard:
                self._open(subscription)

    def _open(self, subscription: Subscription) -> None:
        listening = self._listen(subscription)
        if listening is None:
            return
        heard = self._heard[subscription.key] = Hearing(listening, time.monotonic())
        if not subscription.bind and subscription.replica is not None:
            self._stream(heard, subscription.stream("", None), None)
        if listening.connections:
            self._tell_all(heard, True, Moment(datetime.now(UTC), time.monotonic()))

    def _listen(self, subscription: Subscription) -> Listening | None:
        """A socket at work, None where that is not possible now."""
        try:
            listening = Listening(self._context, subscription)
        except CannotListen as error:
            if self._failed.get(subscription.key) != str(error):
                logger.error("%s", error)
            self._failed[subscription.key] = str(error)
            return None
        self._failed.pop(subscription.key, None)
        self._poller.register(listening.socket, zmq.POLLIN)
        self._poller.register(listening.monitor, zmq.POLLIN)
        return listening

    def _look_after(self, heard: Hearing, now: Moment) -> None:
        """What time alone brings: replays that do not come, connections that do not come back."""
        for stream in heard.streams.values():
            stream.follower.tick(now)
        if len(heard.streams) > max(1, heard.listening.connections):
            self._forget_gone(heard, now)
        if heard.listening.connections:
            heard.without_since = now.seconds
        elif now.seconds - heard.without_since > REOPEN_SECONDS:
            heard.without_since = now.seconds
            self._reopen(heard)

    def _forget_gone(self, heard: Hearing, now: Moment) -> None:
        """Streams of a bound socket whose publishers left long ago."""
        for name, stream in list(heard.streams.items()):
            if now.seconds - stream.heard_seconds > GONE_SECONDS:
                if stream.replays is not None:
                    stream.replays.end()
                del heard.streams[name]
                self._tracker.forget(name)

    def _reopen(self, heard: Hearing) -> None:
        subscription = heard.listening.subscription
        if subscription.bind:
            return
        self._unlisten(heard.listening)
        listening = self._listen(subscription)
        if listening is None:
            self._end_replays(heard)
            del self._heard[subscription.key]
            return
        heard.listening = listening

    def _close(self, heard: Hearing) -> list[StreamName]:
        """The streams that are heard nowhere now: an engine that moved is, at its new address."""
        self._end_replays(heard)
        self._unlisten(heard.listening)
        elsewhere = {name for other in self._heard.values() for name in other.streams}
        gone = [name for name in heard.streams if name not in elsewhere]
        for name in gone:
            self._tracker.connected(name, False)
        return gone

    def _end_replays(self, heard: Hearing) -> None:
        self._end_asking(heard)
        for stream in heard.streams.values():
            if stream.replays is not None:
                stream.replays.end()

    def _unlisten(self, listening: Listening) -> None:
        self._poller.unregister(listening.socket)
        self._poller.unregister(listening.monitor)
        listening.close()

    def _stream(self, heard: Hearing, name: StreamName, peer: str | None) -> Stream | None:
        """The stream of that name on a socket; made when it is first heard of, None where there
        are too many."""
        known = heard.streams.get(name)
        if known is not None or len(heard.streams) >= MAX_STREAMS_A_SOCKET:
            return known
        self._end_asking(heard)
        subscription = heard.listening.subscription
        replays = self._replays(subscription, peer, lambda: stream)
        follower = Follower(name, self._tracker, replays, subscription.settings.replay_seconds)
        stream = Stream(follower, replays, time.monotonic(), subscription, peer)
        heard.streams[name] = stream
        self._tracker.connected(name, heard.listening.connections > 0)
        return stream

    def _replays(
        self,
        subscription: Subscription,
        peer: str | None,
        asker: Callable[[], Stream | Hearing],
    ) -> ReplaySocket | None:
        """Where a publisher's past can be asked for; the replies are `asker`'s. None: nowhere."""
        endpoint = subscription.replay_of(peer)
        if endpoint is None:
            return None

        def changed(socket: Socket, is_open: bool) -> None:
            if is_open:
                self._replies[socket] = asker()
                self._poller.register(socket, zmq.POLLIN)
            else:
                del self._replies[socket]
                self._poller.unregister(socket)

        limit = subscription.settings.max_message_bytes
        return ReplaySocket(self._context, endpoint, limit, changed)

    # ---------------------------------------------------------------- names

    def _ask_for_a_name(self, heard: Hearing) -> None:
        """Nothing is heard under a name that the topic may belie: of a publisher that is silent
        now, the past tells the topic."""
        self._end_asking(heard)
        heard.asking = self._replays(heard.listening.subscription, None, lambda: heard)
        if heard.asking is not None:
            heard.asking.ask(0)

    def _end_asking(self, heard: Hearing) -> None:
        if heard.asking is not None:
            heard.asking.end()
            heard.asking = None

    def _take_name(self, heard: Hearing, now: Moment) -> None:
        """The first reply names the stream, which then asks for itself. Replies of older
        publishers have no topic: the first live message will tell."""
        assert heard.asking is not None
        for frames in heard.asking.replies(1):
            try:
                batch = replayed_batch(frames)
            except BadFrames as error:
                endpoint = heard.listening.subscription.endpoint
                say_once(heard.faults, f"replay of {endpoint}: {error}; not taken")
                continue
            self._end_asking(heard)
            if batch is not None and batch.topic is not None:
                name = heard.listening.subscription.stream(batch.topic, None)
                stream = self._stream(heard, name, None)
                assert stream is not None
                stream.follower.connected(True, now)

    # ---------------------------------------------------------------- messages

    def _take_changes(self, heard: Hearing, now: Moment) -> None:
        """Connections that came or went. The streams of one that several share are asked all."""
        listening = heard.listening
        subscription = listening.subscription
        for won in listening.changes():
            logger.info("events at %s: %s", subscription.endpoint, "connected" if won else "lost")
            if won or not listening.connections:
                self._tell_all(heard, won, now)
            if won and subscription.bind and subscription.replica and listening.connections > 1:
                self._share_a_name(heard)

    def _tell_all(self, heard: Hearing, is_connected: bool, now: Moment) -> None:
        for stream in heard.streams.values():
            stream.follower.connected(is_connected, now)
        if not is_connected:
            self._end_asking(heard)
        elif not heard.streams and not heard.listening.subscription.bind:
            self._ask_for_a_name(heard)

    def _share_a_name(self, heard: Hearing) -> None:
        """Two publishers under one configured name: their numbers would be mixed."""
        subscription = heard.listening.subscription
        reason = (
            f"{heard.listening.connections} publishers are connected to {subscription.endpoint}, "
            f"which is configured as the one replica {subscription.replica}: leave replica out, "
            "and give each publisher a topic kv@REPLICA@MODEL"
        )
        logger.warning("events: %s", reason)
        for name in heard.streams:
            self._tracker.lost(name, reason)

    def _take_messages(self, heard: Hearing, now: Moment) -> None:
        for message in heard.listening.messages(MESSAGES_A_TURN):
            try:
                batch = live_batch(message.frames)
            except BadFrames as error:
                self._fault(heard, str(error), message)
                continue
            subscription = heard.listening.subscription
            name = subscription.stream(batch.topic or "", message.peer)
            stream = self._stream(heard, name, message.peer)
            if stream is not None:
                stream.heard_seconds = now.seconds
                stream.follower.live(batch, now)
            elif not heard.refused:
                heard.refused = True
                logger.warning(
                    "events at %s: over %d names of streams; new ones are passed over",
                    subscription.endpoint, MAX_STREAMS_A_SOCKET,
                )  # fmt: skip

    def _fault(self, heard: Hearing, fault: str, message: Message) -> None:
        """A message of a wrong shape is counted; each kind of fault is told of once a socket."""
        subscription = heard.listening.subscription
        say_once(heard.faults, f"events at {subscription.endpoint}: {fault}; not taken")
        if subscription.replica:
            self._tracker.malformed(subscription.stream("", message.peer))
        elif not subscription.bind:
            for name in heard.streams:
                self._tracker.malformed(name)

    def _take_replies(self, stream: Stream, now: Moment) -> None:
        assert stream.replays is not None
        for frames in stream.replays.replies(MESSAGES_A_TURN):
            try:
                batch = replayed_batch(frames)
            except BadFrames as error:
                name = stream.follower.stream
                say_once(stream.faults, f"replay of {name.replica}: {error}; not taken")
                self._tracker.malformed(name)
                continue
            if batch is None:
                stream.follower.replay_ended(now)
            elif stream.is_meant(batch.topic):
                stream.follower.replied(batch, now)
