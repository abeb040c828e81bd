"""Addresses of event streams: what a rank's address is, and who else could listen there."""

import re
from dataclasses import dataclass, replace

from exporter.server_settings import is_loopback

# Stands for the host of each scraped engine (or of the publisher that connected).
HOST = "{host}"
WILDCARDS = frozenset({"*", "0.0.0.0", "[::]"})  # noqa: S104 - refused or warned of, not bound
_TCP = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|\{host\}|\*|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_LAST_PORT = 65535
# What the operating system takes as the path of a socket.
_LONGEST_PATH = 103


@dataclass(frozen=True)
class Endpoint:
    """One address. `place` is the host for tcp, the path for ipc, the name for inproc."""

    scheme: str
    place: str
    port: int | None = None

    @classmethod
    def of(cls, text: str) -> "Endpoint":
        """Read an address as ZeroMQ writes it. ValueError for what is none."""
        scheme, separator, rest = text.partition("://")
        if separator and scheme in ("ipc", "inproc") and 0 < len(rest.encode()) <= _LONGEST_PATH:
            return cls(scheme, rest)
        found = _TCP.fullmatch(rest) if scheme == "tcp" else None
        if found is None or not 0 < int(found["port"]) <= _LAST_PORT:
            raise ValueError(
                "must be tcp://HOST:PORT, ipc://PATH (of at most 103 bytes) or inproc://NAME"
            )
        return cls("tcp", found["host"], int(found["port"]))

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{self.place}{port}"

    @property
    def names_every_host(self) -> bool:
        """Whether it can be bound but not connected to."""
        return self.scheme == "tcp" and self.place in WILDCARDS

    @property
    def wants_host(self) -> bool:
        """Whether a host is still to be filled in."""
        return self.scheme == "tcp" and self.place == HOST

    @property
    def is_private(self) -> bool:
        """Whether what travels there stays on this machine."""
        return self.scheme != "tcp" or is_loopback(f"{self.place}:{self.port}")

    @property
    def may_be_ipv6(self) -> bool:
        """Whether the socket must be told to expect such addresses: for names it may be one."""
        return self.scheme == "tcp" and not re.fullmatch(r"[\d.]+|\*|localhost", self.place)

    def at_rank(self, rank: int) -> "Endpoint":
        """Where that data-parallel rank publishes: engines count up the port from rank 0's.

        ValueError where there is no such address.
        """
        if rank == 0:
            return self
        if self.scheme == "inproc":
            return replace(self, place=f"{self.place}_dp{rank}")
        if self.port is None or self.port + rank > _LAST_PORT:
            raise ValueError(f"{self} has no room for rank {rank}: ranks need tcp ports above it")
        return replace(self, port=self.port + rank)

    def on(self, host: str) -> "Endpoint":
        """With the host filled in, if one is wanted; an IPv6 host may stand without brackets."""
        if not self.wants_host:
            return self
        return replace(self, place=f"[{host}]" if ":" in host and host[0] != "[" else host)
