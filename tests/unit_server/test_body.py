"""Bodies: unpacked within a limit, brought to one row a line, refused with a reason."""

import gzip
import io
import json
import os
from collections.abc import AsyncIterator

import anyio
import pytest
import zstandard
from anyio.to_thread import run_sync

from exporter.endpoints import body
from exporter.sources.zstd_reader import open_zstd

MIB = 2**20


def test_gzip_and_zstd_of_several_parts_unpack() -> None:
    packed = gzip.compress(b"one\n") + gzip.compress(b"two\n")
    assert body.unpack(packed, "gzip", 100) == b"one\ntwo\n"
    packed = zstandard.compress(b"one\n") + zstandard.compress(b"two\n")
    assert body.unpack(packed, "zstd", 100) == b"one\ntwo\n"
    assert body.unpack(b"plain", "", 100) == body.unpack(b"plain", "identity", 100) == b"plain"


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", b"not gzip"),
        ("gzip", gzip.compress(os.urandom(1000))[:-20]),
        ("gzip", b"\x1f\x8b\x08" + b"\0" * 20),
        ("zstd", b"not zstd"),
        ("zstd", zstandard.compress(os.urandom(1000))[:-20]),
    ],
)
def test_a_damaged_body_is_refused_as_a_whole(encoding: str, packed: bytes) -> None:
    with pytest.raises(body.UnreadableBody, match=f"not valid {encoding}"):
        body.unpack(packed, encoding, MIB)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_that_unpacks_beyond_the_limit_stops_there(encoding: str) -> None:
    compress = gzip.compress if encoding == "gzip" else zstandard.compress
    packed = compress(b"0" * (300 * MIB))
    assert len(packed) < MIB
    with pytest.raises(body.BodyTooLarge, match="1,048,576 bytes"):
        body.unpack(packed, encoding, MIB)


def test_another_encoding_is_named() -> None:
    with pytest.raises(body.UnknownEncoding, match="'br' is not understood: send gzip or zstd"):
        body.unpack(b"x", "br", MIB)


def test_reading_stops_at_the_limit() -> None:
    taken = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(100):
            taken.append(number)
            yield b"x" * 400

    with pytest.raises(body.BodyTooLarge):
        anyio.run(body.read_limited, chunks(), 1000)
    assert taken == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"", []),
        (b"[]", []),
        (b" [ ] \n", []),
        (b'[{"id": "a"}, 2, "x\\ny", [3]]', [{"id": "a"}, 2, "x\ny", [3]]),
        (b'[\n  {"id": "a"},\n  {"id": "b"}\n]\n', [{"id": "a"}, {"id": "b"}]),
        (b'{"id": "a"}', [{"id": "a"}]),
        (b'{\n  "id": "a"\n}\n', [{"id": "a"}]),
        (b'{"id": "a"}\n{"id": "b"}\n', [{"id": "a"}, {"id": "b"}]),
        (b'[]\n{"id": "a"}\n', [[], {"id": "a"}]),
    ],
)
def test_one_row_a_line(given: bytes, expected: list[object]) -> None:
    assert [json.loads(line) for line in body.as_lines(given).splitlines()] == expected


@pytest.mark.parametrize("given", [b'{"id": "a"}\n{broken\n', b'{broken\n{"id": "a"}\n', b"\xff\n"])
def test_bad_lines_go_on_as_they_are(given: bytes) -> None:
    assert body.as_lines(given) == given


@pytest.mark.parametrize("given", [b"[1,]", b"[1 2]", b"[", b'[{"a": 1}', b"[1] x", b"[" * 5000])
def test_a_broken_array_is_refused_as_a_whole(given: bytes) -> None:
    with pytest.raises(body.UnreadableBody, match="array"):
        body.as_lines(given)


def test_a_body_is_read_while_it_arrives() -> None:
    content = os.urandom(3 * MIB)

    async def chunks() -> AsyncIterator[bytes]:
        yield b""
        for start in range(0, len(content), 70_001):
            yield content[start : start + 70_001]

    async def read() -> bytes:
        return await run_sync(lambda: body.buffered(chunks()).read())

    assert anyio.run(read) == content


def test_zstd_reader_notices_a_cut_in_any_place() -> None:
    content = os.urandom(20_000)
    packed = zstandard.compress(content)
    assert open_zstd(io.BytesIO(packed)).read() == content
    for cut in (1, 10, 5000, len(packed) - 1):
        with pytest.raises(EOFError):
            open_zstd(io.BytesIO(packed[:cut])).read()
    assert open_zstd(io.BytesIO(b"")).read() == b""
