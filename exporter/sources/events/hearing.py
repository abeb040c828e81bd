"""What the worker keeps of every socket it listens to, and of every stream heard there."""

import logging
from dataclasses import dataclass, field

from exporter.blocks.order import StreamName
from exporter.sources.events.follower import Follower
from exporter.sources.events.sockets import Listening, ReplaySocket
from exporter.sources.events.subscriptions import Subscription

logger = logging.getLogger(__name__)

MAX_FAULTS_SAID = 20


@dataclass
class Stream:
    """One publisher. `peer`: the address its first message came from, where the transport tells."""

    follower: Follower
    replays: ReplaySocket | None
    heard_seconds: float
    subscription: Subscription
    peer: str | None
    faults: set[str] = field(default_factory=set)

    def is_meant(self, topic: str | None) -> bool:
        """Whether a reply is of this stream: another publisher may have taken the address."""
        name = self.follower.stream
        return topic is None or self.subscription.stream(topic, self.peer) == name


@dataclass
class Hearing:
    """A socket that is listened to, and its streams by name."""

    listening: Listening
    without_since: float
    streams: dict[StreamName, Stream] = field(default_factory=dict)
    faults: set[str] = field(default_factory=set)
    refused: bool = False
    # Asks for the past only to learn what topic the publisher has.
    asking: ReplaySocket | None = None


def say_once(said: set[str], message: str) -> None:
    """Log each message once, and not more kinds than a person would read."""
    if message not in said and len(said) < MAX_FAULTS_SAID:
        said.add(message)
        logger.warning("%s", message)
