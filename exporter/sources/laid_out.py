"""JSON laid out over lines: an array of rows, or objects printed over several lines.

Exports come like that as often as one object a line. The objects are handed on one a line, read
piece by piece, so that the size of the input does not matter.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from exporter.sources.formats import FORMATS, format_named
from exporter.sources.formats.documents import is_json
from exporter.sources.formats.reshape import as_lines
from exporter.sources.lines import LINE_LIMIT_BYTES

_BLOCK_BYTES = 1 << 18
_BEGINS_ARRAY = re.compile(rb"\s*\[\s*\{")
_BEGINS_OBJECT = re.compile(rb"\s*\{\s*\r?\n\s*\"")
_BETWEEN = re.compile(r"[\s,]*")


def is_laid_out(head: bytes, format: str) -> bool:
    """Whether an input that begins so has its rows over several lines, or in an array.

    Formats that read whole documents read these as they are.
    """
    head = head.removeprefix(codecs.BOM_UTF8)
    if not (_BEGINS_ARRAY.match(head) or _BEGINS_OBJECT.match(head)):
        return False
    first_line, _, rest = head.strip().partition(b"\n")
    if is_json(first_line) and rest:  # a line that is an array, before others
        return False
    if format != "auto":
        return format_named(format).documents is None
    text = head.decode(errors="replace")
    return not any(known.sniff and known.sniff(text) for known in FORMATS)


class LaidOut:
    """The objects of such an input, one a line in `stream`.

    Where the rest cannot be read the stream ends, and `broken` says why: what came before counts.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.broken: str | None = None
        self.stream = as_lines(self._values(stream))

    def _values(self, stream: BinaryIO) -> Iterator[str]:
        """The values of the one array, or of the sequence, in order, as JSON on one line each."""
        decoder = json.JSONDecoder()
        text, count, opened = "", 0, False
        for block in self._decoded(stream):
            text += block
            if not opened:
                text, opened = text.lstrip().removeprefix("["), True
            end = 0
            while found := _next(decoder, text, end):
                line, end = found
                yield line
                count += 1
            text = text[end:]
            if len(text) > LINE_LIMIT_BYTES:
                break
        if not self.broken and _BETWEEN.sub("", text, count=1).rstrip() not in ("", "]"):
            self.broken = (
                f"value {count + 1} of its JSON cannot be read or has more than"
                f" {LINE_LIMIT_BYTES >> 20} MiB"
            )

    def _decoded(self, stream: BinaryIO) -> Iterator[str]:
        decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        try:
            while block := stream.read(_BLOCK_BYTES):
                yield decode(block)
            yield decode(b"", True)
        except UnicodeDecodeError as error:
            self.broken = f"its JSON is not UTF-8 ({error.reason})"


def _next(decoder: json.JSONDecoder, text: str, position: int) -> tuple[str, int] | None:
    """The next value and where it ends; None where it is not all there."""
    between = _BETWEEN.match(text, position)
    begin = between.end() if between else position
    if text[begin : begin + 1] in ("", "]"):
        return None
    try:
        value, end = decoder.raw_decode(text, begin)
        return json.dumps(value), end
    except (ValueError, RecursionError):
        return None
