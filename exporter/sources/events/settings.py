"""Which KV-cache events are taken in. Apart from the sockets, so that settings read cheaply."""

from itertools import combinations

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from exporter.sources.events.endpoints import Endpoint

MAX_RANKS = 1024


class EventSettings(BaseModel):
    """The event streams of one engine, or (with {host}) of every scraped engine."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(
        "events", min_length=1, max_length=100, description="name of these streams in the store"
    )
    endpoint: str = Field(
        description="where events are published, of rank 0: tcp://HOST:5557, ipc://PATH; "
        "tcp://{host}:5557 = on the host of every scraped engine"
    )
    replay_endpoint: str | None = Field(
        None, description="where missed batches can be asked for: tcp://HOST:5657"
    )
    topic: str = Field("", description="only topics that begin so")
    ranks: int | list[int] = Field(
        1, description="data-parallel ranks: how many, or which; rank r is at port + r"
    )
    bind: bool = Field(False, description="listen at the endpoint: for engines that connect to it")
    replica: str | None = Field(
        None, min_length=1, max_length=100,
        description="the replica's name, as its metric page has it; default: the scraped engine's, "
        "the topic's (kv@REPLICA@MODEL), or the address",
    )  # fmt: skip
    model: str | None = Field(
        None, min_length=1, max_length=200, description="the model's name, where no topic names it"
    )
    model_fingerprint: str | None = Field(
        None, min_length=1, max_length=200,
        description="version of the weights, where the taps of these engines state one",
    )  # fmt: skip
    receive_batches: int = Field(
        10_000, ge=1, description="batches that may wait here to be read; further ones are lost"
    )
    max_message_bytes: int = Field(
        100 * 2**20, ge=1024, description="a larger message ends the connection"
    )
    replay_seconds: float = Field(
        60, gt=0, description="how long a replay may take before the state is marked uncertain"
    )

    @field_validator("endpoint", "replay_endpoint")
    @classmethod
    def _is_address(cls, text: str | None) -> str | None:
        return None if text is None else str(Endpoint.of(text))

    @field_validator("ranks")
    @classmethod
    def _are_ranks(cls, ranks: int | list[int]) -> int | list[int]:
        listed = range(ranks) if isinstance(ranks, int) else ranks
        if not listed or len(listed) > MAX_RANKS or any(not 0 <= r < MAX_RANKS for r in listed):
            raise ValueError(f"must be a number of ranks from 1 to {MAX_RANKS}, or a list of ranks")
        if len(set(listed)) < len(listed):
            raise ValueError("names a rank twice")
        return ranks

    @model_validator(mode="after")
    def _can_be_reached(self) -> "EventSettings":
        """Addresses that can be connected to or bound, with room for every rank."""
        published, replayed = self.published, self.replayed
        if published.names_every_host and not self.bind:
            raise ValueError(
                f"endpoint {published} names every address: name the engine's host, or set "
                "bind: true where the engine connects to prefixscope"
            )
        if published.wants_host and (self.bind or self.replica):
            raise ValueError("{host} in endpoint goes with neither bind nor replica")
        if replayed is not None and replayed.names_every_host:
            raise ValueError(f"replay_endpoint {replayed} names every address: name the host")
        for endpoint in filter(None, (published, replayed)):
            endpoint.at_rank(max(self.rank_list))
        if replayed is not None and _meet(published, replayed, self.rank_list):
            raise ValueError("ports of endpoint and replay_endpoint meet: set them further apart")
        return self

    @property
    def published(self) -> Endpoint:
        """Where rank 0 publishes."""
        return Endpoint.of(self.endpoint)

    @property
    def replayed(self) -> Endpoint | None:
        """Where rank 0 replays."""
        return None if self.replay_endpoint is None else Endpoint.of(self.replay_endpoint)

    @property
    def rank_list(self) -> list[int]:
        """Every rank, by number."""
        return list(range(self.ranks)) if isinstance(self.ranks, int) else list(self.ranks)


def _meet(published: Endpoint, replayed: Endpoint, ranks: list[int]) -> bool:
    """Whether some rank replays where another publishes: the engine then cannot start."""
    if published.port is None or replayed.port is None or published.place != replayed.place:
        return published == replayed
    return bool(
        {published.port + rank for rank in ranks} & {replayed.port + rank for rank in ranks}
    )


def checked_apart(entries: list[EventSettings]) -> list[EventSettings]:
    """The entries, if no two would hear one stream or name two streams alike. Else ValueError."""
    for one, other in combinations(entries, 2):
        if one.endpoint == other.endpoint and set(one.rank_list) & set(other.rank_list):
            raise ValueError(f"two entries read {one.endpoint}: keep one of them")
        same_name = one.replica is not None and one.replica == other.replica
        if one.source == other.source and same_name and _share_a_name(one, other):
            raise ValueError(
                f"two entries of source {one.source!r} name the replica {one.replica!r}: give "
                "each a replica of its own"
            )
    return entries


def _share_a_name(one: EventSettings, other: EventSettings) -> bool:
    """Of one replica, entries may bring different ranks."""
    several = len(one.rank_list) > 1 and len(other.rank_list) > 1
    return not several or bool(set(one.rank_list) & set(other.rank_list))


def leak_of(entry: EventSettings) -> str | None:
    """What is wrong with where events travel; None where they stay on this machine."""
    endpoints = [entry.published, *([entry.replayed] if entry.replayed else [])]
    exposed = [str(endpoint) for endpoint in endpoints if not endpoint.is_private]
    if not exposed:
        return None
    return (
        f"{' and '.join(exposed)} can be reached from other machines, and events carry the token "
        "ids of prompts and cache salts in clear, without encryption or a key: whoever reaches "
        "the port reads them"
    )
