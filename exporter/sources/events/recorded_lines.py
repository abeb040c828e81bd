"""Reading recorded KV-cache events: one message a line, and lines that are none.

A line is a JSON object with `received_unix`, `endpoint`, and the message either as `frames_base64`
(topic, sequence, msgpack), or decoded: `topic`, `seq`, `batch` as an array, where bytes stand as
{"hex": …}.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Protocol

import msgspec

from exporter.errors import PrefixscopeError
from exporter.sources.events.frames import BadFrames, Batch, live_batch
from exporter.sources.packed import DAMAGED

# A batch of 100 MB in base64, and what stands around it.
LINE_LIMIT_BYTES = 160 * 2**20
_LATEST_SECONDS = 4_102_444_800.0  # the year 2100


class Faults(Protocol):
    """Whoever is told of lines that are no messages."""

    def refuse(self, message: str) -> None:
        """One more; the message says which line and why, never what it holds."""


class _Line(msgspec.Struct):
    """One line, as far as it is read; other keys are other people's notes."""

    received_unix: float
    endpoint: str = ""
    frames_base64: list[str] | None = None
    topic: str = ""
    seq: int | None = None
    batch: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True)
class Recorded:
    """One recorded message."""

    at: datetime
    endpoint: str
    batch: Batch


def is_recorded(head: bytes) -> bool:
    """Whether the first line of an input is a recorded event message."""
    first = next((line for line in head.split(b"\n") if line.strip()), b"")
    # A first line may be longer than what was read of it, so its keys are looked for as text.
    keys = first.lstrip()[:1] == b"{" and b'"received_unix"' in first
    return keys and (b'"frames_base64"' in first or (b'"seq"' in first and b'"batch"' in first))


def read_recorded(stream: BinaryIO, name: str, faults: Faults) -> Iterator[Recorded]:
    """The messages in order; lines that are none are counted, and told of without their text."""
    number = 0
    while text := _next_line(stream, name):
        number += 1
        if not text.strip():
            continue
        try:
            yield _read(text)
        except BadFrames as error:
            faults.refuse(f"{name}:{number}: {error}")


def _next_line(stream: BinaryIO, name: str) -> bytes:
    """A whole line; of one beyond the limit a piece, which is no message."""
    try:
        return stream.readline(LINE_LIMIT_BYTES)
    except DAMAGED as error:
        raise PrefixscopeError(
            f"{name}: the compressed data is damaged or ends early ({error}); what came before it "
            "is stored"
        ) from error


def _read(text: bytes) -> Recorded:
    try:
        line = _LINE.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadFrames(f"no recorded message ({_where(error)})") from None
    if not 0 < line.received_unix < _LATEST_SECONDS:
        raise BadFrames("received_unix is no time in seconds")
    at = datetime.fromtimestamp(line.received_unix, UTC)
    return Recorded(at, line.endpoint, live_batch(_frames(line)))


def _frames(line: _Line) -> list[bytes]:
    try:
        if line.frames_base64 is not None:
            return [base64.b64decode(frame, validate=True) for frame in line.frames_base64]
        if line.seq is None or not bytes(line.batch):
            raise BadFrames("neither frames_base64 nor seq and batch")
        number = line.seq.to_bytes(8, "big")
        packed = msgspec.msgpack.encode(_with_bytes(msgspec.json.decode(line.batch)))
    except (binascii.Error, ValueError, OverflowError, RecursionError) as error:
        raise BadFrames(f"no message ({type(error).__name__})") from None
    return [line.topic.encode(), number, packed]


def _with_bytes(value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """Bytes stand in JSON as {"hex": …}."""
    if isinstance(value, list):
        return [_with_bytes(one) for one in value]
    if isinstance(value, dict):
        if list(value) == ["hex"] and isinstance(value["hex"], str):
            return bytes.fromhex(value["hex"])
        return {key: _with_bytes(one) for key, one in value.items()}
    return value


def _where(error: Exception) -> str:
    """The kind of fault; the library's own words may quote the line."""
    return "not JSON" if not isinstance(error, msgspec.ValidationError) else "a key is odd"


_LINE = msgspec.json.Decoder(_Line)
