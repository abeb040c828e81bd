"""Traces of hash ids read straight into columns, without a store between.

What replay needs of such a trace is four numbers a request and its ids, millions of them; rows
of a store would cost ten times the memory. Read is the format of Mooncake and of all that write
it (Dynamo, AIPerf, `prefixscope export`): one JSON object a line with `timestamp`, `input_length`,
`output_length` and `hash_ids`, an id for each block of the prompt, the last block partial.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import numpy as np

from exporter.errors import PrefixscopeError
from exporter.sources.packed import DAMAGED, open_input
from replay.known_blocks import numbered
from replay.prompts import Prompts
from replay.traffic import Flags, Numbers, Seconds, starts_of

# The block of the format's first traces; the file does not carry it.
USUAL_BLOCK_TOKENS = 512
_OTHER_BLOCK_TOKENS = tuple(1 << power for power in range(4, 15))
MILLISECONDS = 1e-3


class _Line(msgspec.Struct, gc=False):
    """Fields not named here (sessions, priorities) are skipped, not built."""

    timestamp: float
    input_length: int
    hash_ids: list[int]
    output_length: int = 0
    session_id: object = None
    chat_id: object = None


# An answer of more is a mistake, and would need memory of its own in a replay.
_MOST_OUTPUT_TOKENS = 100_000_000
_MOST_SECONDS = 10 * 366 * 86_400.0
_DECODER = msgspec.json.Decoder(_Line)


@dataclass(frozen=True)
class TraceFile:
    """A trace, and what was assumed of it. `seconds_each`: of one unit of its time."""

    prompts: Prompts
    name: str
    seconds_each: float

    def words(self) -> str:
        """What was read, for a person to check before believing a figure."""
        prompts = self.prompts
        span = float(prompts.arrived[-1]) if len(prompts) else 0.0
        unit = "milliseconds" if self.seconds_each == MILLISECONDS else "seconds"
        return (
            f"{self.name}: {len(prompts):,} requests in {span:,.1f} s (times read as {unit}), "
            f"{int(prompts.prompt_tokens.sum()):,} prompt tokens, {len(prompts.blocks):,} blocks "
            f"of {prompts.block_tokens} tokens, {prompts.distinct_blocks:,} different"
        )


class _NotATrace(ValueError):
    pass


# Said once, of the first line: of one line among others the line itself is wrong.
_ANOTHER_LOG = "not a trace of hash ids; make one with `prefixscope export {} --out trace.jsonl`"


def _has_hash_ids(line: bytes) -> bool:
    """Is it meant as a line of a trace, whatever else is wrong with it?"""
    return b'"hash_ids"' in line


@dataclass
class _Columns:
    """`ends`: how many rows there are once each file is read."""

    times: "array[float]" = field(default_factory=lambda: array("d"))
    prompt_tokens: "array[int]" = field(default_factory=lambda: array("q"))
    output_tokens: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    ids: "array[int]" = field(default_factory=lambda: array("Q"))
    ends: list[tuple[Path, int]] = field(default_factory=list)

    def read(self, path: Path) -> None:
        """All rows of a file. PrefixscopeError where a line is none."""
        try:
            with path.open("rb") as file:
                for number, line in enumerate(open_input(cast("BinaryIO", file)), 1):
                    self._read_line(line, path, number)
        except OSError as error:
            raise PrefixscopeError(f"{path}: {error.strerror or error}") from error
        except DAMAGED as error:
            raise PrefixscopeError(f"{path}: the packed data is damaged: {error}") from error
        self.ends.append((path, len(self.times)))

    def _read_line(self, line: bytes, path: Path, number: int) -> None:
        if line.isspace():
            return
        place = f"{path}, line {number}"
        try:
            self._add(_DECODER.decode(line))
        except OverflowError:
            said = "hash_ids must be from 0 to 2^64 - 1, and lengths below 2^63"
            raise PrefixscopeError(f"{place}: {said}") from None
        except (msgspec.DecodeError, _NotATrace) as error:
            if number == 1 and not _has_hash_ids(line):
                raise PrefixscopeError(f"{place}: {_ANOTHER_LOG.format(path)}") from None
            raise PrefixscopeError(f"{place}: {error}; correct the line or leave it out") from None

    def _add(self, row: _Line) -> None:
        if row.session_id is not None or row.chat_id is not None:
            raise _NotATrace("rows of a session_id or chat_id state turns, which are not read here")
        if row.input_length < 1 or not 0 <= row.output_length <= _MOST_OUTPUT_TOKENS:
            most = f"from 0 to {_MOST_OUTPUT_TOKENS:,}"
            raise _NotATrace(f"input_length must be at least 1 and output_length {most}")
        self.ids.extend(row.hash_ids)
        self.times.append(row.timestamp)
        self.prompt_tokens.append(row.input_length)
        self.output_tokens.append(row.output_length)
        self.lengths.append(len(row.hash_ids))

    def place(self, row: int) -> str:
        """Where a row stands, for a person; empty lines do not count."""
        begin = 0
        for path, end in self.ends:
            if row < end:
                return f"{path}, row {row - begin + 1}"
            begin = end
        raise IndexError(row)


def read_trace(
    paths: Sequence[Path], block_tokens: int | None = None, seconds_each: float = MILLISECONDS
) -> TraceFile:
    """Read a trace, plain or packed; several files are parts of one, by the same ids.

    `block_tokens`: tokens an id stands for; None: 512 where the rows fit that, else the only power
    of two they fit. PrefixscopeError names file, line and remedy: a line that is none, ids that do
    not fit the length, rows out of order of time, no rows.
    """
    columns = _Columns()
    for path in paths:
        columns.read(path)
    name = ", ".join(map(str, paths))
    if not columns.times:
        raise PrefixscopeError(f"{name}: there are no requests in it")
    times = np.frombuffer(columns.times, np.float64)
    _check_order(times, columns)
    arrived = (times - times[0]) * seconds_each
    _check_span(arrived, name)
    prompt_tokens = np.frombuffer(columns.prompt_tokens, np.int64)
    lengths = np.frombuffer(columns.lengths, np.int64)
    prompts = Prompts(
        arrived=arrived,
        prompt_tokens=prompt_tokens,
        output_tokens=np.frombuffer(columns.output_tokens, np.int64),
        blocks=numbered(np.frombuffer(columns.ids, np.uint64))[0],
        starts=starts_of(lengths),
        block_tokens=_block_tokens(prompt_tokens, lengths, block_tokens, columns),
    )
    return TraceFile(prompts, name, seconds_each)


def _check_order(times: Seconds, columns: _Columns) -> None:
    back = np.flatnonzero(~(np.diff(times) >= 0))
    if len(back):
        raise PrefixscopeError(
            f"{columns.place(int(back[0]) + 1)}: its timestamp is before that of the row above, as "
            f"in {len(back):,} of {len(times):,} rows: a cache sees requests in order of time, so "
            "sort the rows by timestamp"
        )


def _check_span(arrived: Seconds, name: str) -> None:
    if arrived[-1] > _MOST_SECONDS:
        raise PrefixscopeError(
            f"{name}: its requests span {arrived[-1] / 86_400:,.0f} days: is the unit of its times"
            " another one (--unit)?"
        )


def _block_tokens(prompt: Numbers, lengths: Numbers, given: int | None, columns: _Columns) -> int:
    """The block that every row fits."""
    sizes = (USUAL_BLOCK_TOKENS, *_OTHER_BLOCK_TOKENS)
    fitting = [size for size in sizes if _fits(prompt, lengths, size).all()]
    block = given or (fitting[0] if fitting else USUAL_BLOCK_TOKENS)
    fits = _fits(prompt, lengths, block)
    if fits.all():
        return block
    row = int(np.argmin(fits))
    remedy = (
        f"the rows fit blocks of {fitting[0]} tokens: give --block-tokens {fitting[0]}"
        if fitting
        else "give the tokens an id stands for with --block-tokens, or leave such rows out"
    )
    raise PrefixscopeError(
        f"{columns.place(row)}: {int(prompt[row]):,} tokens are {-(-int(prompt[row]) // block):,} "
        f"blocks of {block} tokens, and it has {int(lengths[row]):,} ids, as have "
        f"{int((~fits).sum()):,} of {len(prompt):,} rows another number; {remedy}"
    )


def _fits(prompt: Numbers, lengths: Numbers, block: int) -> Flags:
    fits: Flags = -(-prompt // block) == lengths
    return fits
