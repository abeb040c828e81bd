"""The body of a POST: read within a limit, unpack within the same limit, bring to one row a line.

Everything stays in memory, never in a file on the way: bodies may carry prompts.
"""

import gzip
import io
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO, cast

import zstandard
from anyio import fail_after, from_thread
from typing_extensions import Buffer

from exporter.errors import PrefixscopeError
from exporter.sources.formats.documents import behind_space, is_json
from exporter.sources.zstd_reader import open_zstd

_CHUNK_BYTES = 1 << 20
# A sender that is gone without a word would keep its place among those that may send.
SILENT_SECONDS = 30.0


class BodyTooLarge(PrefixscopeError):
    """More bytes than the setting allows, packed or unpacked."""


class UnreadableBody(PrefixscopeError):
    """The body as a whole cannot be read; single bad rows are counted instead."""


class UnknownEncoding(PrefixscopeError):
    """A Content-Encoding we do not unpack."""


class SilentSender(PrefixscopeError):
    """The rest of a body does not come."""


async def read_limited(stream: AsyncIterator[bytes], limit_bytes: int) -> bytes:
    """The bytes as sent; stops reading as soon as there are too many, or none come any more."""
    body = bytearray()
    try:
        while chunk := await _next(stream):
            body += chunk
            if len(body) > limit_bytes:
                raise _too_large(limit_bytes)
    except TimeoutError as error:
        raise SilentSender(
            f"nothing came for {SILENT_SECONDS:g} s, and the body is not whole: send it again"
        ) from error
    return bytes(body)


async def _next(stream: AsyncIterator[bytes]) -> bytes | None:
    """The next bytes that are any; None at the end."""
    with fail_after(SILENT_SECONDS):
        async for chunk in stream:
            if chunk:
                return chunk
    return None


class BodyStream(io.RawIOBase):
    """A body as a file a thread reads from while it still arrives.

    Nothing is read ahead, so a slow writer slows the sender down instead of filling memory.
    """

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always: the end shows when it is reached."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Fill from what has arrived, waiting for more where nothing has; 0 at the end."""
        target = memoryview(buffer).cast("B")
        while not self._rest:
            chunk = from_thread.run(self._next_chunk)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    async def _next_chunk(self) -> bytes | None:
        return await anext(self._chunks, None)


def buffered(chunks: AsyncIterator[bytes]) -> BinaryIO:
    """The body as a binary file whose `read(n)` gives n bytes until the end."""
    return cast(BinaryIO, io.BufferedReader(BodyStream(chunks), _CHUNK_BYTES))


def unpack(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Undo a Content-Encoding; never holds more than the limit, however well the body packs."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    try:
        return _read_limited(_reader(body, encoding), limit_bytes)
    except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
        raise UnreadableBody(f"the body is not valid {encoding}: {error}") from error


def _reader(body: bytes, encoding: str) -> BinaryIO:
    """A reader that unpacks as it is read; both formats may have several parts in a row."""
    if encoding in ("gzip", "x-gzip"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=io.BytesIO(body)))
    if encoding == "zstd":
        return cast(BinaryIO, open_zstd(io.BytesIO(body)))
    raise UnknownEncoding(f"Content-Encoding {encoding!r} is not understood: send gzip or zstd")


def _read_limited(reader: BinaryIO, limit_bytes: int) -> bytes:
    """Read to the end or to the limit, whichever comes first."""
    unpacked = bytearray()
    while chunk := reader.read(_CHUNK_BYTES):
        unpacked += chunk
        if len(unpacked) > limit_bytes:
            raise _too_large(limit_bytes)
    return bytes(unpacked)


def _too_large(limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body has more than {limit_bytes:,} bytes unpacked: send smaller batches, "
        "or raise server.max_body_bytes"
    )


def as_lines(body: bytes) -> bytes:
    """One row a line: an array becomes a line per element, an object over lines becomes one.

    Anything else is NDJSON already and goes on as it is, bad lines included: those are counted.
    """
    start = body.lstrip()[:1]
    if start == b"[":
        return _array_lines(body)
    if start == b"{" and not is_json(_first_line(body)) and is_json(body):
        return json.dumps(json.loads(body)).encode()
    return body


def _array_lines(body: bytes) -> bytes:
    """Lines of an array, one element at a time so that memory stays near the body's size.

    NDJSON may open with a line that is an array: then it is a bad row, not a bad body.
    """
    try:
        text = body.decode("utf-8")
        return b"".join(json.dumps(row).encode() + b"\n" for row in _elements(text))
    except (ValueError, RecursionError) as error:
        if is_json(_first_line(body)):
            return body
        raise UnreadableBody(f"the body opens an array that cannot be read: {error}") from error


def _elements(text: str) -> Iterator[object]:
    """Elements of the one array that `text` is; ValueError where it is something else."""
    decoder, position = json.JSONDecoder(), behind_space(text, text.index("[") + 1)
    separator = ""
    while text[position : position + 1] != "]" or separator:
        element, position = decoder.raw_decode(text, position)
        yield element
        position = behind_space(text, position)
        separator = text[position : position + 1]
        if separator not in (",", "]"):
            raise ValueError(f"expected ',' or ']' at character {position}")
        if separator == "]":
            break
        position = behind_space(text, position + 1)
    if behind_space(text, position + 1) != len(text):
        raise ValueError("there is more after the array")


def _first_line(body: bytes) -> bytes:
    return body.lstrip().split(b"\n", 1)[0]
