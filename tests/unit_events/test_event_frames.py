"""The shape of messages: every framing publishers use, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.events.frames import (
    END_SEQUENCE,
    BadFrames,
    Batch,
    live_batch,
    replay_request,
    replayed_batch,
)

FIVE = b"\x00\x00\x00\x00\x00\x00\x00\x05"


def test_a_live_message() -> None:
    assert live_batch([b"kv@pod@model", FIVE, b"body"]) == Batch(5, b"body", "kv@pod@model")
    assert live_batch([b"", FIVE, b"body"]).topic == ""


def test_sequences_are_unsigned_and_most_significant_first() -> None:
    high = b"\x80" + b"\x00" * 7
    assert live_batch([b"", high, b"x"]).sequence == 9_223_372_036_854_775_808
    assert replay_request(258) == [b"", b"\x00\x00\x00\x00\x00\x00\x01\x02"]


def test_replies_of_newer_and_older_publishers() -> None:
    assert replayed_batch([b"", b"topic", FIVE, b"body"]) == Batch(5, b"body", "topic")
    assert replayed_batch([b"", FIVE, b"body"]) == Batch(5, b"body", None)
    assert replayed_batch([b"", b"", END_SEQUENCE, b""]) is None
    assert replayed_batch([b"", END_SEQUENCE, b""]) is None


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ([], "0 frames"),
        ([FIVE, b"body"], "2 frames"),
        ([b"", b"", FIVE, b"body"], "4 frames"),
        ([b"topic", b"\x05", b"body"], "of 1 bytes"),
        ([b"topic", FIVE, b""], "without a payload"),
        ([b"\xff\xfe", FIVE, b"body"], "UTF-8"),
        ([b"t" * 1025, FIVE, b"body"], "topic of 1025 bytes"),
        ([b"topic", END_SEQUENCE, b"body"], "end mark"),
    ],
)
def test_what_is_no_live_message(frames: list[bytes], says: str) -> None:
    with pytest.raises(BadFrames, match=says):
        live_batch(frames)


@pytest.mark.parametrize(
    "frames",
    [
        [], [b""], [b"", FIVE], [b"topic", FIVE, b"body"], [b"", b"", b"", FIVE, b"body"],
        [b"", b"\x05", b"body"], [b"", FIVE, b""], [b"", b"t" * 1025, FIVE, b"body"],
    ],
)  # fmt: skip
def test_what_is_no_reply(frames: list[bytes]) -> None:
    with pytest.raises(BadFrames):
        replayed_batch(frames)


@given(st.integers(0, 2**64 - 2), st.text(max_size=40), st.binary(min_size=1))
def test_every_framing_carries_the_same_batch(sequence: int, topic: str, payload: bytes) -> None:
    number = sequence.to_bytes(8, "big")
    name = topic.encode()
    batch = Batch(sequence, payload, topic)
    assert live_batch([name, number, payload]) == batch
    assert replayed_batch([b"", name, number, payload]) == batch
    assert replayed_batch([b"", number, payload]) == Batch(sequence, payload)


@given(st.lists(st.binary(max_size=1100), max_size=6))
def test_any_frames_are_a_batch_or_an_error_that_quotes_nothing(frames: list[bytes]) -> None:
    for read in (live_batch, replayed_batch):
        said = ""
        try:
            read(frames)
        except BadFrames as error:
            said = str(error)
        assert len(said) < 100


def test_the_payload_is_not_shown() -> None:
    assert "prompt" not in repr(Batch(1, b"prompt"))
