"""Reads an answer while it passes, piece by piece, and never keeps more of it than a bound.

A stream is cut into its events; of most events only a few bytes are looked at. An answer in one
document is kept whole while it is small, and only searched for its usage once it is not.
"""

import json
import re
import zlib
from typing import Any

from prefixscope.tap.usage import Answer, brings_a_token, merge_stated

# An event or a document longer than this is searched instead of parsed.
WHOLE_BYTES = 256 * 1024
_LONGEST_USAGE_BYTES = 8 * 1024
_HEAD_BYTES = 1024
_UNPACKED_BYTES = 1 << 20

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\n|\r")
# In JSON a quote inside a text is escaped, so that a text can hold none of these.
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_TELLING = re.compile(
    rb'"usage"\s*:\s*\{|"finish_reason"\s*:\s*"|"error"\s*:'
    rb'|"type"\s*:\s*"(?:message_|response\.(?:completed|incomplete|failed))'
)
_HEAD_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*"([^"\\]{1,200})"')
_HEAD_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,200})"')


class EventCutter:
    """Cuts a stream of server-sent events into events, whatever pieces it arrives in."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._oversized = False

    def feed(self, piece: bytes) -> list[tuple[bytes, bool]]:
        """Pieces in order, joined they are what was fed; True where one is a whole event.

        The beginning of an event is kept back until its end arrives, or until it is longer than
        `WHOLE_BYTES`: then its pieces are given out as they come.
        """
        alone = piece.find(b"\n\n") == len(piece) - 2 and len(piece) > 2
        if alone and not self._rest and not self._oversized and b"\r" not in piece:
            return [(piece, True)]  # as engines send them; anything else takes longer
        searched = max(len(self._rest) - 3, 0)
        self._rest += piece
        found: list[tuple[bytes, bool]] = []
        start = 0
        for end in _EVENT_END.finditer(self._rest, searched):
            found.append((bytes(self._rest[start : end.end()]), not self._oversized))
            self._oversized, start = False, end.end()
        del self._rest[:start]
        if self._oversized or len(self._rest) > WHOLE_BYTES:
            # Three bytes may be the beginning of the end.
            self._oversized = True
            cut = max(len(self._rest) - 3, 0)
            found.append((bytes(self._rest[:cut]), False))
            del self._rest[:cut]
        return found

    def rest(self) -> bytes:
        """What is kept back when no more comes."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


def data_of(event: bytes) -> bytes:
    """The data lines of an event, joined; empty for a comment."""
    if event.startswith(b"data:") and event.find(b"\n") >= len(event) - 2:
        return event[5:].strip()
    lines = _LINE_END.split(event)
    return b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))


def parsed_object(text: bytes) -> dict[str, Any]:
    """The JSON object in `text`; an empty one where there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class UsageSearch:
    """Finds usage objects in a document too long to be kept."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        self._rest += piece
        while (found := _USAGE.search(self._rest)) is not None:
            text = self._rest[found.end() - 1 :]
            window = text[:_LONGEST_USAGE_BYTES].decode("utf-8", "replace")
            try:
                usage, _ = json.JSONDecoder().raw_decode(window)
            except (ValueError, RecursionError):
                if len(text) < _LONGEST_USAGE_BYTES:
                    self._rest = self._rest[found.start() :]
                    return
            else:
                merge_stated(self._answer.usage, usage)
            self._rest = text[1:]
        self._rest = self._rest[-64:]


class StreamWatch:
    """Watches a stream of events. `feed` takes its bytes and when they came."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._cutter = EventCutter()
        self._search = UsageSearch(answer)

    def feed(self, piece: bytes, now: float) -> None:
        for part, whole in self._cutter.feed(piece):
            if whole:
                self._event(part, now)
            else:
                self._search.feed(part)

    def end(self) -> None:
        """No more comes; an event without its end still counts."""
        self._event(self._cutter.rest(), None)

    def _event(self, event: bytes, now: float | None) -> None:
        answer = self.answer
        waiting = answer.first_token_at is None
        if not waiting and _TELLING.search(event) is None and b"[DONE]" not in event:
            return
        data = data_of(event)
        if data == b"[DONE]":
            answer.finished = answer.done = True
            return
        document = parsed_object(data)
        answer.learn(document)
        if waiting and now is not None and brings_a_token(answer.kind, document):
            answer.first_token_at = now


class DocumentWatch:
    """Watches an answer that is one JSON document."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._search = UsageSearch(answer)

    def feed(self, piece: bytes, now: float) -> None:  # noqa: ARG002 - as of a stream
        if self._kept is None:
            self._search.feed(piece)
            return
        self._kept.append(piece)
        self._kept_bytes += len(piece)
        if self._kept_bytes > WHOLE_BYTES:
            whole = b"".join(self._kept)
            self._kept = None
            self._learn_head(whole[:_HEAD_BYTES])
            self._search.feed(whole)

    def _learn_head(self, head: bytes) -> None:
        """Names are in front where an answer begins with its id; elsewhere they stay unknown."""
        if (found := _HEAD_ID.match(head)) is None:
            return
        self.answer.response_id = found[1].decode("utf-8", "replace")
        if model := _HEAD_MODEL.search(head):
            self.answer.model = model[1].decode("utf-8", "replace")

    def end(self) -> None:
        """The answer is whole: read it."""
        self.answer.finished = True
        if self._kept is not None:
            self.answer.learn(parsed_object(b"".join(self._kept)))


Watch = StreamWatch | DocumentWatch


class Unpacked:
    """Gives a watch the content of a compressed answer, a bounded piece at a time."""

    def __init__(self, watch: Watch, encoding: str) -> None:
        self.watch = watch
        # 47: gzip or zlib, told by the first bytes.
        self._unpack = zlib.decompressobj(47) if encoding in ("gzip", "x-gzip", "deflate") else None

    def feed(self, piece: bytes, now: float) -> None:
        """An encoding the standard library cannot read, or damage, leaves the answer unread."""
        while piece and self._unpack is not None:
            try:
                content = self._unpack.decompress(piece, _UNPACKED_BYTES)
            except zlib.error:
                self._unpack = None
                return
            self.watch.feed(content, now)
            piece = self._unpack.unconsumed_tail

    def end(self) -> None:
        if self._unpack is not None:
            self.watch.end()
