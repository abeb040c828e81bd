"""How an engine is told to publish KV-cache events, and the entry under `events` that fits.

The replay ports stand 100 above the others: with data parallelism rank r uses port + r of both,
and in the often-copied pair 5557 and 5558 they would meet.
"""

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporter.server_settings import is_loopback

PORT, REPLAY_PORT = 5557, 5657
# Room for the ranks of several engines on one host.
_APART = 200
FLAG = "--kv-events-config"
_EXTRA: dict[str, dict[str, object]] = {
    "vllm": {"enable_kv_cache_events": True},
    "sglang": {},
}


@dataclass(frozen=True)
class EventSetup:
    """The engine's flag, and our settings for it."""

    flag: str
    entry: dict[str, object]

    @property
    def entry_text(self) -> str:
        """The entry in one line, as it stands in the file."""
        parts = (f"{key}: {json.dumps(value)}" for key, value in self.entry.items())
        return f"events: [{{{', '.join(parts)}}}]"


def event_setup(
    engine: str | None, url: str | None, replicas: tuple[str, ...], nth: int = 0
) -> EventSetup | None:
    """What to set for an engine at this address; None where its events cannot be had.

    On this machine the engine connects to us over loopback, so that nobody else can listen in.
    `nth`: so many others are on the same host already.
    """
    if engine not in _EXTRA:
        return None
    host = urlsplit(url or "").hostname or "HOST"
    near = is_loopback(f"{host}:0")
    place = host if ":" not in host else f"[{host}]"
    port, replay_port = PORT + nth * _APART, REPLAY_PORT + nth * _APART
    told = {
        **_EXTRA[engine], "publisher": "zmq",
        "endpoint": f"tcp://{place if near else '*'}:{port}",
        "replay_endpoint": f"tcp://{place if near else '*'}:{replay_port}",
    }  # fmt: skip
    entry: dict[str, object] = {
        "endpoint": f"tcp://{place}:{port}", "replay_endpoint": f"tcp://{place}:{replay_port}",
    }  # fmt: skip
    if near:
        entry["bind"] = True
    return EventSetup(
        f"{FLAG} '{json.dumps(told, separators=(',', ':'))}'", {**entry, **_naming(replicas)}
    )


def _naming(replicas: tuple[str, ...]) -> dict[str, object]:
    """The name the metric page goes by; several names are the ranks of one engine."""
    if len(replicas) == 1:
        return {"replica": replicas[0]}
    bases = {replica.rpartition("/")[0] for replica in replicas}
    return {"replica": bases.pop(), "ranks": len(replicas)} if len(bases) == 1 else {}
