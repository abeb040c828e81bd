"""The one path in for request rows: a file, an HTTP body and a followed log all end here."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Literal

from exporter.errors import PrefixscopeError
from exporter.sources.formats import format_named
from exporter.sources.formats.detect import detect
from exporter.sources.formats.mapping import LogFormat, Row
from exporter.sources.formats.names import with_names
from exporter.sources.formats.reshape import as_lines
from exporter.sources.laid_out import LaidOut, is_laid_out
from exporter.sources.lines import (
    BATCH_BYTES,
    LINE_LIMIT_BYTES,
    STEP_BYTES,
    LineBatch,
    LineReader,
)
from exporter.sources.names import SourceNames
from exporter.sources.packed import DAMAGED, peek
from exporter.store.append import BatchResult, Stream, append, append_many
from exporter.store.store import Store
from replay.counted import counted

_SAMPLE_BYTES = 1 << 18


@dataclass(kw_only=True)
class IngestSummary(BatchResult):
    """What became of an input, summed over its batches. Ratios are None without traffic."""

    source: str
    format: str
    decided_because: str

    @property
    def coverage_ratio(self) -> float | None:
        """Reported ÷ eligible prompt tokens of the accepted rows."""
        if not self.eligible_prompt_tokens:
            return None
        return self.reported_prompt_tokens / self.eligible_prompt_tokens

    @property
    def token_hit_ratio(self) -> float | None:
        if not self.reported_prompt_tokens:
            return None
        return self.cached_tokens / self.reported_prompt_tokens

    def add(self, batch: BatchResult) -> None:
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(batch, name))
        for mine, theirs in ((self.reasons, batch.reasons), (self.flags, batch.flags)):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count


_SUMMED = (
    "accepted", "duplicate", "corrected", "conflicting", "prompt_tokens",
    "eligible_prompt_tokens", "reported_prompt_tokens", "cached_tokens",
)  # fmt: skip


class Intake:
    """Takes streams of rows into one store. `names` are the naming rules of each source."""

    def __init__(
        self,
        store: Store,
        *,
        line_limit_bytes: int = LINE_LIMIT_BYTES,
        names: Mapping[str, SourceNames] | None = None,
    ) -> None:
        self.store = store
        self._line_limit_bytes = line_limit_bytes
        self._names = names or {}

    def ingest(
        self,
        stream: BinaryIO,
        *,
        source: str,
        format: str = "auto",
        origin: Literal["file", "http"] = "file",
        name: str = "input",
        defaults: dict[str, object] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> IngestSummary:
        """Reads a stream of lines to its end, batch by batch, each in one transaction.

        `name` is what the input is called in errors; it is not stored. `progress` is told the
        number of bytes taken so far. Raises PrefixscopeError for an unknown format.
        """
        try:
            head, stream, laid_out = self._open(stream, format, origin)
        except DAMAGED as error:
            raise PrefixscopeError(
                f"{name}: the compressed data is damaged or ends early ({error})"
            ) from error
        log_format, because = choose_format(format, head, name)
        log_format = with_names(log_format, self._names.get(source))
        target = Stream(
            source,
            log_format,
            fingerprint(head, self.store.key) if origin == "file" else None,
            defaults or {},
        )
        summary = IngestSummary(source=source, format=log_format.name, decided_because=because)
        if log_format.documents:
            stream = as_lines(_named(log_format.documents(stream), name))
        limit = max(self._line_limit_bytes, log_format.line_limit_bytes)
        # A transaction must not wait for a pipe or a client: only a file is read inside one.
        patient = origin == "file" and stream.seekable()
        batch_bytes = STEP_BYTES if patient else BATCH_BYTES
        reader = LineReader(stream, line_limit_bytes=limit, batch_bytes=batch_bytes)
        batches = _Batches(reader, progress)
        self._store_all(batches, target, summary, patient=patient)
        if origin == "file":
            self.store.fold()
        _refuse_damage(name, summary, laid_out, batches)
        return summary

    def _store_all(
        self, batches: "_Batches", target: Stream, summary: IngestSummary, *, patient: bool
    ) -> None:
        """Store batch by batch, many in one transaction where it may wait for the next."""
        while not batches.ended:
            if patient:
                summary.add(append_many(self.store, batches.take(), target))
            else:
                for batch in batches.take(1):
                    summary.add(append(self.store, batch, target))

    def _open(
        self, stream: BinaryIO, format: str, origin: Literal["file", "http"]
    ) -> tuple[bytes, BinaryIO, LaidOut | None]:
        """The first rows and all of them, one a line; of a file that is laid out for reading also
        what makes them so."""
        head, stream = self._look_ahead(stream)
        if origin == "http" or not is_laid_out(head, format):
            return head, stream, None
        laid_out = LaidOut(stream)
        return *self._look_ahead(laid_out.stream), laid_out

    def _look_ahead(self, stream: BinaryIO) -> tuple[bytes, BinaryIO]:
        """The first rows, as far as they are needed to tell the format."""
        head, stream = peek(stream, min(_SAMPLE_BYTES, self._line_limit_bytes))
        if b"\n" not in head:  # a first row that long still tells the format
            head, stream = peek(stream, self._line_limit_bytes)
        return head, stream


def _named(rows: Iterable[Row | str], name: str) -> Iterator[Row | str]:
    """The rows of a document; what is wrong with it is said with the name of the input."""
    try:
        yield from rows
    except PrefixscopeError as error:
        raise PrefixscopeError(f"{name}: {error}") from error


def _refuse_damage(
    name: str, summary: IngestSummary, laid_out: LaidOut | None, batches: "_Batches"
) -> None:
    """Raise for an input that could not be read to its end; what came before is stored."""
    if laid_out and laid_out.broken:
        raise PrefixscopeError(
            f"{name}: {laid_out.broken}; what came before it is stored: "
            f"{counted(summary.accepted, 'row')}"
        )
    if batches.damage:
        raise PrefixscopeError(
            f"{name}: the compressed data is damaged or ends early ({batches.damage}); "
            f"{counted(summary.accepted, 'row is', 'rows are')} stored, from before the damage"
        ) from batches.damage


class _Batches:
    """Hands on batches a few at a time. Damaged input ends them; what came before counts."""

    def __init__(self, reader: LineReader, progress: Callable[[int], None] | None) -> None:
        self._batches = iter(reader)
        self._progress = progress
        self.ended = False
        self.damage: Exception | None = None

    def take(self, count: int | None = None) -> Iterator[LineBatch]:
        """The next `count` batches, or all."""
        for _ in range(count) if count else itertools.count():
            try:
                batch = next(self._batches, None)
            except DAMAGED as error:
                self.damage, batch = error, None
            if batch is None:
                self.ended = True
                return
            if self._progress:
                self._progress(batch.end)
            yield batch


def choose_format(name: str, head: bytes, input_name: str) -> tuple[LogFormat, str]:
    """The format called `name`, or for 'auto' the one the first rows have, and why."""
    if name == "auto":
        decision = detect(head, input_name)
        known, because = decision.log_format, decision.because
    else:
        known, because = format_named(name), "chosen by name"
    return known.fitted(head) if known.fitted else known, because


def fingerprint(head: bytes, key: str) -> str:
    """Identifies a file by its first line, so that it stays the same file while it grows.

    Keyed, because a first line may hold a prompt.
    """
    first_line = head.split(b"\n", 1)[0].rstrip(b"\r")
    return hashlib.blake2b(first_line, key=key.encode(), digest_size=16).hexdigest()
