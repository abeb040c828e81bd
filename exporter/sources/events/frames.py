"""The frames of a KV-cache event message, live and replayed, of vLLM and SGLang alike.

A live message is `[topic, sequence, payload]`; the sequence is an unsigned number of 8 bytes,
most significant first. A replay is asked for with `[empty, first sequence]`; its replies are
`[empty, topic, sequence, payload]`, or without the topic from older publishers (vLLM up to
0.25.1, SGLang up to 0.5.21). A reply with the sequence -1 ends it. The payload is msgpack and is
not looked at here: it holds prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exporter.errors import PrefixscopeError

SEQUENCE_BYTES = 8
END_SEQUENCE = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)
# No publisher names itself at such length; what is longer is none of ours.
MAX_TOPIC_BYTES = 1024

_LIVE_FRAMES = 3
_REPLY_FRAMES = (3, 4)


class BadFrames(PrefixscopeError):
    """A message that is no event batch. Says what is odd about its shape, never what it holds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One message: its place in the stream, and the msgpack not yet read. `topic` None: a reply
    of an older publisher does not tell."""

    sequence: int
    payload: bytes = field(repr=False)
    topic: str | None = None


def live_batch(frames: Sequence[bytes]) -> Batch:
    """The batch of a live message. BadFrames for another shape."""
    if len(frames) != _LIVE_FRAMES:
        raise BadFrames(f"{len(frames)} frames instead of topic, sequence and payload")
    topic, sequence, payload = frames
    if sequence == END_SEQUENCE:
        raise BadFrames("the end mark of a replay in the live stream")
    return Batch(_sequence(sequence), _payload(payload), _topic(topic))


def replay_request(start: int) -> list[bytes]:
    """Frames that ask for every batch from `start` on that the publisher still has."""
    return [b"", start.to_bytes(SEQUENCE_BYTES, "big")]


def replayed_batch(frames: Sequence[bytes]) -> Batch | None:
    """The batch of a reply, None for the mark that ends the replay. BadFrames for another shape."""
    if len(frames) not in _REPLY_FRAMES or frames[0] != b"":
        raise BadFrames(f"{len(frames)} frames that are no reply to a replay request")
    *topics, sequence, payload = frames[1:]
    if sequence == END_SEQUENCE:
        return None
    topic = _topic(topics[0]) if topics else None
    return Batch(_sequence(sequence), _payload(payload), topic)


def _sequence(frame: bytes) -> int:
    if len(frame) != SEQUENCE_BYTES:
        raise BadFrames(f"a sequence number of {len(frame)} bytes instead of {SEQUENCE_BYTES}")
    return int.from_bytes(frame, "big")


def _payload(frame: bytes) -> bytes:
    if not frame:
        raise BadFrames("a message without a payload")
    return frame


def _topic(frame: bytes) -> str:
    if len(frame) > MAX_TOPIC_BYTES:
        raise BadFrames(f"a topic of {len(frame)} bytes")
    try:
        return frame.decode()
    except UnicodeDecodeError as error:
        raise BadFrames("a topic that is not UTF-8") from error
