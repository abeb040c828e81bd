"""KV-cache events as engines write them, by hand and from captures, and a tracker to hear them.

Batches made here are written by hand after engines.md; only those read from captures came out of
an engine.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from exporter.blocks.order import Heard, StreamName
from exporter.blocks.rows import BlockMinute
from exporter.blocks.snapshot import CacheSnapshot
from exporter.blocks.tracker import Tracker
from tests.log_path import CAPTURES, needs_captures

__all__ = ["needs_captures"]

KEY = "a key of these tests"
STREAM = StreamName("events", "pod", "tiny")
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NOON_UNIX = NOON.timestamp()

Event = dict[str, Any]


def stored(
    hashes: Sequence[int | bytes],
    parent: int | bytes | None = None,
    *,
    tokens: Sequence[Any] = (),
    block_size: int = 16,
    **more: object,
) -> Event:
    """BlockStored of the map era."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": block_size,
        "lora_id": None,
        **more,
    }


def removed(hashes: Sequence[int | bytes], **more: object) -> Event:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), **more}


CLEARED: Event = {"type": "AllBlocksCleared"}


def payload(events: Sequence[Any], seconds: float = 0.0, rank: int | None = 0) -> bytes:
    """A batch of `seconds` after noon."""
    return msgspec.msgpack.encode([NOON_UNIX + seconds, list(events), rank])


def moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


class Listener:
    """A tracker and the next number of its one stream."""

    def __init__(self, chains: bool = False, stream: StreamName = STREAM) -> None:
        self.tracker = Tracker(KEY, chains=chains)
        self.stream = stream
        self.sequence = 0

    def hear(self, *events: Event, seconds: float = 0.0, sequence: int | None = None) -> Heard:
        number = self.sequence if sequence is None else sequence
        heard = self.tracker.hear(self.stream, number, payload(events, seconds), moment(seconds))
        if heard in (Heard.APPLIED, Heard.RESTARTED):
            self.sequence = number + 1
        return heard

    def cache(self, tier: str = "device") -> CacheSnapshot:
        (found,) = (each for each in self.tracker.snapshot().caches if each.tier == tier)
        return found

    def minutes(self, seconds: float = 3600.0) -> list[BlockMinute]:
        return list(self.tracker.drain(moment(seconds)).minutes)


class Recorded(NamedTuple):
    """A batch of a capture."""

    stream: StreamName
    sequence: int
    payload: bytes
    heard: datetime


def captured(scenario: str) -> Iterator[Recorded]:
    """Raw frames where the capture has them, else its decoded batches packed again."""
    folder = CAPTURES / "vllm-0.32.0" / scenario
    raw = folder / "kv-events.raw.jsonl"
    path = raw if raw.exists() else folder / "kv-events.decoded.jsonl"
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    for line in path.read_text().splitlines():
        row = json.loads(line)
        heard = datetime.fromtimestamp(row["received_unix"], UTC)
        stream = StreamName(row["endpoint"], "pod", "tiny")
        if "batch" in row:
            yield Recorded(stream, row["seq"], msgspec.msgpack.encode(row["batch"]), heard)
        else:
            _, number, body = map(base64.b64decode, row["frames_base64"])
            yield Recorded(stream, int.from_bytes(number, "big"), body, heard)


def requests_of(scenario: str) -> list[dict[str, Any]]:
    path = CAPTURES / "vllm-0.32.0" / scenario / "requests.jsonl"
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    return [json.loads(line) for line in path.read_text().splitlines()]
