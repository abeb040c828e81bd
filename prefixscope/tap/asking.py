"""Asks for the usage of a stream on behalf of a client that did not, and hides the answer.

What the client receives is, byte for byte, what it would have received: the extra event is left
out, `"usage": null` too, and what servers move from the last choice to the extra event (vLLM the
fingerprint, llama.cpp its timings) is put back.
"""

import json
import re
from typing import Any

from prefixscope.tap.usage import CHAT, COMPLETIONS
from prefixscope.tap.watching import EventCutter, data_of, parsed_object

_USAGE_OBJECT = re.compile(rb'"usage"\s*:\s*\{')
_NULL_USAGE = re.compile(rb',\s*"usage"\s*:\s*null(?=\s*[,}])')
_LAST_OF_A_CHOICE = re.compile(rb'"finish_reason"\s*:\s*"')
_MOVED = (b"system_fingerprint", b"timings")
_QUESTION = b'"stream_options":{"include_usage":true},'


def asking_body(kind: str, body: bytes) -> bytes | None:
    """The request with the question for usage added; None where it is not to be touched:
    no stream, asked already, not an API that has the option, or nothing readable."""
    # Most requests that are no streams need no parsing; nor does UTF-16, which nobody sends.
    if kind not in (CHAT, COMPLETIONS) or b'"stream"' not in body or b"\0" in body[:4]:
        return None
    request = parsed_object(body)
    if request.get("stream") is not True:
        return None
    options = request.get("stream_options")
    if "stream_options" not in request:
        start = body.index(b"{") + 1
        return body[:start] + _QUESTION + body[start:]
    if options is not None and (not isinstance(options, dict) or options.get("include_usage")):
        return None
    # Without the question this one means nothing; with it, every event would carry usage.
    kept = {name: value for name, value in (options or {}).items() if "continuous" not in name}
    return json.dumps({**request, "stream_options": {**kept, "include_usage": True}}).encode()


class UsageHider:
    """Takes the stream that was asked for, gives the stream the client expects.

    The last event of a choice waits for the event after it, which servers send in the same
    breath. `moved` is shared between streams: where several choices end one after another, it
    tells what the events of the earlier ones would have carried.
    """

    def __init__(self, moved: dict[bytes, bytes], *, hide_null: bool) -> None:
        self._cutter = EventCutter()
        self._moved = moved
        self._hide_null = hide_null
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        return b"".join(self._shown(part, whole) for part, whole in self._cutter.feed(piece))

    def end(self) -> bytes:
        """What is still held when the stream has ended."""
        return self._released({}) + self._cutter.rest()

    def _shown(self, event: bytes, whole: bool) -> bytes:
        if not whole:
            return self._released({}) + event
        if _USAGE_OBJECT.search(event) and _is_only_usage(parsed_object(data_of(event))):
            found = {name: text for name in _MOVED if (text := _member(event, name))}
            if b"system_fingerprint" in found:
                self._moved[b"system_fingerprint"] = found[b"system_fingerprint"]
            return self._released(found)
        before = self._released(self._moved)
        shown = _NULL_USAGE.sub(b"", event, count=1) if self._hide_null else event
        if _LAST_OF_A_CHOICE.search(shown):
            self._held = shown
            return before
        return before + shown

    def _released(self, moved: dict[bytes, bytes]) -> bytes:
        """The held event, with the members it would have had."""
        held, self._held = self._held, b""
        end = held.rfind(b"}")
        added = b"".join(
            b"," + text for name, text in moved.items() if held and b'"%b":' % name not in held
        )
        return held[:end] + added + held[end:] if added else held


def _is_only_usage(document: dict[str, Any]) -> bool:
    return document.get("choices") == [] and isinstance(document.get("usage"), dict)


def _member(event: bytes, name: bytes) -> bytes:
    """`"name":value` as it stands in the event; nothing where it is absent or null."""
    found = re.search(rb'"%b"\s*:\s*' % name, event)
    if found is None:
        return b""
    text = event[found.end() :].decode("utf-8", "replace")
    value, end = json.JSONDecoder().raw_decode(text)
    return found[0] + text[:end].encode() if value is not None else b""
