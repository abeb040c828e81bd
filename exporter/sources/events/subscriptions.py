"""Settings and scraped engines -> the sockets to open, and the name of each stream heard there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporter.blocks.order import StreamName
from exporter.sources.discovery import Target
from exporter.sources.events.endpoints import Endpoint
from exporter.sources.events.settings import EventSettings

_NAMING_TOPIC = "kv"
_MAX_NAME = 200


@dataclass(frozen=True)
class Subscription:
    """One socket to hear on: one rank of one engine, or where `bind`, all that connect to it.

    `replica` (without the rank) None: the topic or the address tells. `rank` None = the only one.
    """

    settings: EventSettings
    endpoint: Endpoint
    replay: Endpoint | None
    replica: str | None
    rank: int | None

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells sockets apart: one whose engine got another name is opened anew."""
        return str(self.endpoint), self.replica

    @property
    def bind(self) -> bool:
        """Whether engines connect here."""
        return self.settings.bind

    def stream(self, topic: str, peer: str | None) -> StreamName:
        """The stream of a message; `peer` is the address it came from, None where unknown.

        Topics of others may be anything: what cannot name a replica is passed over.
        """
        replica, model = self.replica, self.settings.model
        if replica is None:
            named, told_model = _told(topic)
            replica, model = named or self._address(topic, peer), model or told_model
        weights = self.settings.model_fingerprint
        return StreamName(self.settings.source, replica, model, self.rank, weights)

    def replay_of(self, peer: str | None) -> Endpoint | None:
        """Where the batches of a publisher can be asked for again."""
        if self.replay is None or not self.replay.wants_host:
            return self.replay
        host = self.endpoint.place if not self.bind else peer
        return self.replay.on(host) if host else None

    def _address(self, topic: str, peer: str | None) -> str:
        """The name of last resort: the topic if it can be one, else where it comes from."""
        if self.bind and _is_name(topic):
            return topic
        if self.bind and peer:
            return peer
        rank_0 = self.settings.published
        return rank_0.place if rank_0.port is None else f"{rank_0.place}:{rank_0.port}"


def _told(topic: str) -> tuple[str | None, str | None]:
    """Replica and model of a topic like kv@pod@model; None each where it is no such topic."""
    first, _, rest = topic.partition("@")
    replica, _, model = rest.partition("@")
    if first != _NAMING_TOPIC or not _is_name(replica):
        return None, None
    return replica, model if _is_name(model) else None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME and text.isprintable()


def subscriptions(
    entries: Iterable[EventSettings], targets: Sequence[Target]
) -> list[Subscription]:
    """Every socket to open now: those of fixed addresses, and one a rank of each target's host."""
    found: dict[str, Subscription] = {}
    for entry in entries:
        for one in _of_entry(entry, targets):
            found.setdefault(str(one.endpoint), one)
    return list(found.values())


def _of_entry(entry: EventSettings, targets: Sequence[Target]) -> Iterator[Subscription]:
    if not entry.published.wants_host:
        yield from _ranks(entry, entry.published, entry.replayed, entry.replica)
        return
    for target in targets:
        host = urlsplit(target.url).hostname
        if host:
            replayed = entry.replayed.on(host) if entry.replayed else None
            yield from _ranks(entry, entry.published.on(host), replayed, target.replica)


def _ranks(
    entry: EventSettings, published: Endpoint, replayed: Endpoint | None, replica: str | None
) -> Iterator[Subscription]:
    several = len(entry.rank_list) > 1
    for rank in entry.rank_list:
        yield Subscription(
            settings=entry,
            endpoint=published.at_rank(rank),
            replay=replayed.at_rank(rank) if replayed else None,
            replica=replica,
            rank=rank if several else None,
        )
