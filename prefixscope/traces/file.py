"""Traces of hash ids read straight into columns, without a store between.

Which kinds there are stands in `lines`; what is assumed of a trace is printed with every
figure from it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import numpy as np

from exporter.errors import PrefixscopeError
from exporter.sources.packed import DAMAGED, open_input, peek
from prefixscope.traces.columns import Columns, NotATraceRow, added_up
from prefixscope.traces.labels import TraceLabels, read_labels
from prefixscope.traces.lines import (
    MICROSECONDS,
    MILLISECONDS,
    Kind,
    Reader,
    is_document,
    kind_of,
)
from replay.counted import counted
from replay.known_blocks import mixed, numbered
from replay.prompts import Prompts
from replay.recorded import Labels, Recorded
from replay.traffic import Flags, Names, Numbers, Seconds, starts_of

# The block of the format's first traces; the file does not carry it.
USUAL_BLOCK_TOKENS = 512
_OTHER_BLOCK_TOKENS = tuple(1 << power for power in range(4, 15))
_MOST_SECONDS = 10 * 366 * 86_400.0
_DAYS_FROM = 2.0
_UNITS = {MILLISECONDS: "milliseconds", MICROSECONDS: "microseconds"}
_HEAD_BYTES = 4096
_FILES_TO_NAME = 3

# Said once, of the first line: of one line among others the line itself is wrong.
_ANOTHER_LOG = (
    "not a trace of hash ids; where the log has token ids, prompts or hashes (docs/chains.md), "
    "`prefixscope export {} --out trace.jsonl` makes one"
)


@dataclass(frozen=True)
class TraceFile:
    """A trace, and what was assumed of it. `seconds_each`: of one unit of its time; `of_bytes`:
    lengths are bytes of text, not tokens."""

    recorded: Recorded
    name: str
    seconds_each: float
    of_bytes: bool = False
    notes: tuple[str, ...] = ()

    @property
    def prompts(self) -> Prompts:
        """As they were."""
        return self.recorded.prompts

    @property
    def measured(self) -> None:
        """A trace tells nothing of speeds and memory."""
        return None

    def words(self) -> str:
        """What was read, for a person to check before believing a figure."""
        prompts = self.prompts
        span = float(prompts.arrived[-1]) if len(prompts) else 0.0
        unit = _UNITS.get(self.seconds_each, "seconds")
        of = "bytes" if self.of_bytes else "tokens"
        told = (
            f"{self.name}: {counted(len(prompts), 'request')} in {_span(span)} (times read as "
            f"{unit}), {int(prompts.prompt_tokens.sum()):,} prompt {of}, "
            f"{counted(len(prompts.blocks), 'block')} of {prompts.block_tokens} {of}, "
            f"{prompts.distinct_blocks:,} different"
        )
        return ". ".join((told, *self.notes))


def _span(seconds: float) -> str:
    """In days where seconds would tell nobody that their unit is wrong."""
    days = seconds / 86_400
    return f"{seconds:,.1f} s" if days < _DAYS_FROM else f"{days:,.1f} days"


def read_trace(
    paths: Sequence[Path],
    block_tokens: int | None = None,
    seconds_each: float | None = None,
    labels: Path | None = None,
) -> TraceFile:
    """Read a trace, plain or packed; several files are parts of one, by the same ids.

    `block_tokens`: tokens an id stands for; None: as stated, else 512 where the rows fit that, else
    the only power of two they fit. `seconds_each`: of a unit of its times; None: as its kind has
    it. `labels`: beside it, as `prefixscope export --labels` writes it. PrefixscopeError names
    file, line and remedy: a line that is none, ids that do not fit the length, rows out of order
    of time, no rows.
    """
    files = _Files()
    for path in paths:
        files.read(path)
    columns, kind, name = files.reader.columns, files.kind, name_of(paths)
    if not len(columns) or kind is None:
        raise PrefixscopeError(f"{name}: there are no requests in it")
    given = TraceLabels() if labels is None else read_labels(labels, len(columns))
    unit = seconds_each or kind.seconds_each
    prompts, order = _prompts(columns, kind, block_tokens, unit)
    _check_span(prompts.arrived, name)
    return TraceFile(
        _recorded(columns, given, prompts, order), name, unit, kind.of_bytes,
        (*([] if labels is None else [given.words()]), *_notes(columns, kind)),
    )  # fmt: skip


def name_of(paths: Sequence[Path]) -> str:
    """Files in a few words, however many there are."""
    if len(paths) <= _FILES_TO_NAME:
        return ", ".join(map(str, paths))
    return f"{paths[0]} and {counted(len(paths) - 1, 'more file')}"


def is_trace(path: Path) -> bool:
    """Is it meant as a trace of hash ids, by its first line? Taken to be one is what cannot be read
    (whoever reads it says why) or not twice, as a pipe."""
    if not path.is_file():
        return True
    try:
        with path.open("rb") as file:
            head, stream = peek(open_input(cast("BinaryIO", file)), _HEAD_BYTES)
            return is_document(head) or kind_of(next(iter(stream), b"")) is not None
    except (OSError, *DAMAGED):
        return True


class _Files:
    """All files of a trace; PrefixscopeError where a line is none."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.kind: Kind | None = None

    def read(self, path: Path) -> None:
        """All rows of a file."""
        try:
            with path.open("rb") as file:
                self._read_stream(open_input(cast("BinaryIO", file)), path)
        except OSError as error:
            raise PrefixscopeError(f"{path}: {error.strerror or error}") from error
        except DAMAGED as error:
            raise PrefixscopeError(f"{path}: the packed data is damaged: {error}") from error
        self.reader.columns.ends.append((path, len(self.reader.columns)))

    def _read_stream(self, stream: BinaryIO, path: Path) -> None:
        head, stream = peek(stream, _HEAD_BYTES)
        lines = (stream.read(),) if is_document(head) else stream
        reader, number, kind = self.reader, 1, None
        try:
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                if kind is None:
                    kind = self._agreed(line, path, number)
                    decode, add = msgspec.json.Decoder(kind.row).decode, kind.add
                add(reader, decode(line))
        except OverflowError:
            said = "hash_ids must be from 0 to 2^64 - 1, and lengths below 2^63"
            raise PrefixscopeError(f"{path}, line {number}: {said}") from None
        except (msgspec.DecodeError, NotATraceRow) as error:
            said = f"{error}; correct the line or leave it out"
            raise PrefixscopeError(f"{path}, line {number}: {said}") from None

    def _agreed(self, line: bytes, path: Path, number: int) -> Kind:
        """The kind of a file by its first line, which is that of all files."""
        kind = kind_of(line)
        if kind is None:
            raise PrefixscopeError(f"{path}, line {number}: {_ANOTHER_LOG.format(path)}")
        if self.kind not in (None, kind):
            raise PrefixscopeError(
                f"{path}, line {number}: a trace of another kind than the files before it: give"
                " only one kind at a time"
            )
        self.kind = kind
        return kind


def _prompts(
    columns: Columns, kind: Kind, block_tokens: int | None, seconds_each: float
) -> tuple[Prompts, Numbers | None]:
    """In order of time, and which rows they are; None: as they stand."""
    times = np.frombuffer(columns.times, np.float64)
    prompt_tokens = np.frombuffer(columns.prompt_tokens, np.int64)
    lengths = np.frombuffer(columns.lengths, np.int64)
    block = _block_tokens(prompt_tokens, lengths, block_tokens, columns, kind)
    sessions = columns.sessions.codes(len(columns)) if columns.turns else None
    if sessions is None:
        _check_order(times, columns)
        blocks = columns.blocks()
    else:
        ids = np.frombuffer(columns.ids, np.uint64)
        prompt_tokens, ids, lengths = added_up(sessions, prompt_tokens, ids, lengths, block)
        blocks = numbered(ids)[0]
    prompts = Prompts(
        arrived=(times - times.min()) * seconds_each,
        prompt_tokens=prompt_tokens,
        output_tokens=np.frombuffer(columns.output_tokens, np.int64),
        blocks=blocks,
        starts=starts_of(lengths),
        block_tokens=block,
    )
    if sessions is None:
        return prompts, None
    # Turns stand by their session as often as by their time.
    order = np.argsort(times, kind="stable")
    return prompts.picked(order), order


def _recorded(
    columns: Columns, labels: TraceLabels, prompts: Prompts, order: Numbers | None
) -> Recorded:
    rows = len(prompts)
    return Recorded(
        prompts=prompts,
        sessions=_numbers_of(_sorted(labels.session or columns.sessions.labels(rows), order)),
        template=_sorted(labels.template or columns.templates.labels(rows), order),
        tenant=_sorted(labels.tenant, order),
        scope=_sorted(labels.scope or columns.scopes.labels(rows), order),
        replica=_sorted(labels.replica, order),
    )


def _sorted(labels: Labels | None, order: Numbers | None) -> Labels | None:
    if labels is None or order is None:
        return labels
    return Labels(labels.codes[order], labels.names)


def _numbers_of(sessions: Labels | None) -> Names | None:
    """A scattered number for each session, and one of its own for a request without."""
    if sessions is None:
        return None
    own = len(sessions.names) + np.arange(len(sessions.codes))
    return mixed(np.where(sessions.codes < 0, own, sessions.codes).astype(np.uint64))


def _notes(columns: Columns, kind: Kind) -> Iterator[str]:
    if columns.turns:
        yield "Rows of a session state what each turn adds: they were added up and sorted by time"
    if columns.starts_by_delay:
        starts = counted(columns.starts_by_delay, "turn starts", "turns start")
        yield (
            f"{starts} by a delay after the start of the turn before, as nobody tells how long its "
            "answer took"
        )
    if kind.own_times:
        yield (
            "Times are of each trace alone: its "
            f"{counted(len(columns.scopes.names), 'trace')} run one behind the other, not beside "
            "each other"
        )
    if kind.of_bytes:
        yield "Lengths are bytes of text, and so is every figure of tokens here"


def _check_order(times: Seconds, columns: Columns) -> None:
    back = np.flatnonzero(~(np.diff(times) >= 0))
    if len(back):
        raise PrefixscopeError(
            f"{columns.place(int(back[0]) + 1)}: its timestamp is before that of the row above, as "
            f"in {len(back):,} of {counted(len(times), 'row')}: a cache sees requests in order of "
            "time, so sort the rows by timestamp"
        )


def _check_span(arrived: Seconds, name: str) -> None:
    if arrived[-1] > _MOST_SECONDS:
        raise PrefixscopeError(
            f"{name}: its requests span {arrived[-1] / 86_400:,.0f} days: is the unit of its times"
            " another one (--unit)?"
        )


def _block_tokens(
    prompt: Numbers, lengths: Numbers, given: int | None, columns: Columns, kind: Kind
) -> int:
    """The block that every row fits."""
    sizes = (USUAL_BLOCK_TOKENS, *_OTHER_BLOCK_TOKENS)
    if columns.block_tokens:
        sizes = (columns.block_tokens,)
    fitting = [size for size in sizes if _fits(prompt, lengths, size, kind).all()]
    block = given or (fitting[0] if fitting else sizes[0])
    fits = _fits(prompt, lengths, block, kind)
    if fits.all():
        return block
    row = int(np.argmin(fits))
    remedy = (
        f"the rows fit blocks of {fitting[0]} tokens: give --block-tokens {fitting[0]}"
        if fitting
        else "give the tokens an id stands for with --block-tokens, or leave such rows out"
    )
    raise PrefixscopeError(
        f"{columns.place(row)}: {int(prompt[row]):,} tokens are "
        f"{counted(int(_blocks_of(prompt[row], block, kind)), 'block')} of {block} tokens, and it "
        f"has {int(lengths[row]):,} ids, as have {int((~fits).sum()):,} of "
        f"{counted(len(prompt), 'row')} another number; {remedy}"
    )


def _fits(prompt: Numbers, lengths: Numbers, block: int, kind: Kind) -> Flags:
    fits: Flags = _blocks_of(prompt, block, kind) == lengths
    return fits


def _blocks_of(prompt: Numbers, block: int, kind: Kind) -> Numbers:
    """How many ids so many tokens have."""
    return -(-prompt // block) if kind.names_partial else prompt // block
