"""Rows with chains as a trace that other tools read: lengths, times, and numbers for blocks.

The convention is that of Mooncake's traces: ceil(length / block) ids a request, the last block may
be partial, equal ids mean an equal prefix. The ids are numbered from 0 in the order in which blocks
appear, so that nobody, key or not, can test whether a prompt is in the trace.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exporter.errors import PrefixscopeError
from replay.byte_chunks import CHUNK_BYTES
from replay.chain_rows import (
    OF_TEXT,
    chains_of,
    codes,
    deployments_of,
    flat_of,
    grains_of,
    lengths_of,
    spaces_of,
    whole_of,
)
from replay.hashes import HASH_GRAIN_TOKENS
from replay.known_blocks import GOLDEN, mixed, numbered, within
from replay.traffic import Names, Numbers, starts_of

# The names of requests that never reached an engine's cache; they are in no trace of it.
_NOT_SERVED = ("response_cache", "no_generation")
# Labels that may stand beside a trace, as numbers from 0 too.
LABELS = ("session", "model", "route", "template", "tenant", "replica", "scope")
_NOT_TOLD = -1

TraceRow = dict[str, object]


@dataclass(frozen=True)
class HashedTrace:
    """One entry a request in the order of time. `blocks`: numbers of all blocks, those of request i
    from `starts[i]` on. `unnamed_blocks`: those without a known name, each a number of its own.
    """

    milliseconds: Numbers
    prompt_tokens: Numbers
    output_tokens: Numbers
    blocks: Numbers
    starts: Numbers
    labels: dict[str, Numbers]
    block_tokens: int
    unnamed_blocks: int
    chainless_requests: int
    approximate_requests: int
    left_out_requests: int

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def distinct_blocks(self) -> int:
        """How many different blocks there are."""
        return int(self.blocks.max(initial=-1)) + 1

    def rows(self) -> Iterator[TraceRow]:
        """As they are written. An unknown number of generated tokens is left out."""
        columns = (self.milliseconds, self.prompt_tokens, self.output_tokens, self.starts[:-1],
                   self.starts[1:])  # fmt: skip
        for when, prompt, output, begin, end in zip(*(each.tolist() for each in columns),
                                                    strict=True):  # fmt: skip
            told = {} if output == _NOT_TOLD else {"output_length": output}
            ids = self.blocks[begin:end].tolist()
            yield {"timestamp": when, "input_length": prompt, **told, "hash_ids": ids}

    def label_rows(self) -> Iterator[TraceRow]:
        """Labels of each request, in the same order; those it does not have are left out."""
        columns = {name: numbers.tolist() for name, numbers in self.labels.items()}
        for row in range(len(self)):
            yield {name: numbers[row] for name, numbers in columns.items()
                   if numbers[row] != _NOT_TOLD}  # fmt: skip


def hashed_trace(table: pa.Table, block_tokens: int) -> HashedTrace:
    """From a `request_chains` answer. PrefixscopeError where its names are of other blocks."""
    reasons = table["ineligible_reason"].to_pylist()
    served = np.array([reason not in _NOT_SERVED for reason in reasons], np.bool_)
    order = np.lexsort([whole_of(table[name], 0) for name in ("position", "batch")]
                       + [table["ts"].cast(pa.int64()).to_numpy()])  # fmt: skip
    order = order[served[order]]
    if not len(order):
        raise PrefixscopeError("there are no requests with a prompt to export")
    table = table.take(order)
    blocks = _Blocks(table, block_tokens)
    names = [blocks.of(row) for row in range(len(table))]
    micros = table["ts"].cast(pa.int64()).to_numpy()
    numbers, _ = numbered(np.concatenate(names))
    return HashedTrace(
        milliseconds=np.rint((micros - micros[0]) / 1000).astype(np.int64),
        prompt_tokens=blocks.prompt_tokens,
        output_tokens=whole_of(table["output_tokens"], _NOT_TOLD),
        blocks=numbers.astype(np.int64),
        starts=starts_of([len(each) for each in names]),
        labels={name: _labels(table, name) for name in LABELS},
        block_tokens=block_tokens,
        unnamed_blocks=blocks.unnamed,
        chainless_requests=int((blocks.grains == 0).sum()),
        approximate_requests=int((blocks.grains == OF_TEXT).sum()),
        left_out_requests=len(served) - len(order),
    )


def _labels(table: pa.Table, name: str) -> Numbers:
    """A number for each value in order of appearance, _NOT_TOLD of none."""
    told = np.array([bool(value) for value in table[name].to_pylist()])
    numbers = np.full(len(table), _NOT_TOLD)
    numbers[told] = codes(table.filter(pa.array(told)), name)
    return numbers


class _Blocks:
    """The names of the trace's blocks, request by request. What has no name gets one nobody else
    has: it is never taken for a block seen before."""

    def __init__(self, table: pa.Table, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self.prompt_tokens = whole_of(table["prompt_tokens"], 0)
        self.grains = grains_of(table)
        self.unnamed = 0
        chains = chains_of(table, HASH_GRAIN_TOKENS)
        deployment = deployments_of(table)
        self._names = within(chains.names, np.repeat(deployment, chains.lengths))
        self._starts = chains.starts
        self._pieces = flat_of(table["piece_hashes"])
        self._piece_starts = starts_of(lengths_of(table["piece_hashes"]))
        self._piece_lengths = flat_of(table["piece_lengths"]).astype(np.int64)
        self._text_bytes = whole_of(table["text_bytes"], 0)
        scopes = codes(table, "scope", "hash_scope") + spaces_of(table) * len(table)
        self._roots = mixed(GOLDEN * (scopes * len(table) + deployment + 1).astype(np.uint64))
        self._chunks_a_block = _chunks_a_block(self.prompt_tokens, self._text_bytes, block_tokens)
        self._check()

    def _check(self) -> None:
        told = sorted({int(grain) for grain in self.grains if grain > 0})
        wrong = [grain for grain in told if self._block_tokens % grain]
        if wrong:
            raise PrefixscopeError(
                f"rows name blocks of {wrong[-1]} tokens: a trace of blocks of "
                f"{self._block_tokens} cannot be made of them; give --block-tokens a multiple of "
                f"{int(np.lcm.reduce(told))}"
            )
        if (self.grains == OF_TEXT).any() and self._chunks_a_block < 1:
            raise PrefixscopeError(
                "rows are known by chunks of their text, each of some "
                f"{self._block_tokens / self._chunks_a_block:.0f} tokens: give --block-tokens more"
            )

    def of(self, row: int) -> Names:
        """The blocks of one request: as many as its length has, the last one may be partial."""
        prompt, grain = int(self.prompt_tokens[row]), int(self.grains[row])
        wanted = -(-prompt // self._block_tokens)
        chain = self._names[self._starts[row] : self._starts[row + 1]]
        ends = np.arange(1, wanted + 1)
        places = ends * max(self._block_tokens // grain, 1) - 1 if grain > 0 else ends
        if grain == OF_TEXT:
            places = (ends * self._chunks_a_block).astype(np.int64) - 1
        named = np.full(wanted, bool(grain)) & (places < len(chain))
        names = np.empty(wanted, np.uint64)
        names[named] = chain[places[named]]
        if wanted and not named[-1] and (whole := self._whole(row, chain)) is not None:
            names[-1], named[-1] = whole, True
        lacking = np.flatnonzero(~named)
        names[lacking] = mixed(GOLDEN * (self.unnamed + 1 + np.arange(len(lacking))).astype("u8"))
        self.unnamed += len(lacking)
        return names

    def _whole(self, row: int, chain: Names) -> np.uint64 | None:
        """The name of a prompt to its very end: its last block, and the pieces that the rest is in.
        None where nothing names the rest."""
        grain, prompt = int(self.grains[row]), int(self.prompt_tokens[row])
        if grain > 0 and len(chain) * grain >= prompt:
            return np.uint64(chain[-1])
        lengths = self._piece_lengths[self._piece_starts[row] : self._piece_starts[row + 1]]
        end = int(self._text_bytes[row]) if grain == OF_TEXT else prompt
        if not len(lengths) or int(lengths.sum()) != end:
            return None
        named = len(chain) * (CHUNK_BYTES if grain == OF_TEXT else grain)
        pieces = self._pieces[self._piece_starts[row] : self._piece_starts[row + 1]]
        name = chain[-1:] if len(chain) else self._roots[row : row + 1]
        for piece in pieces[np.cumsum(lengths) > named]:
            name = mixed(name * GOLDEN + piece)
        return np.uint64(name[0])


def _chunks_a_block(prompt_tokens: Numbers, text_bytes: Numbers, block_tokens: int) -> float:
    """Chunks of text that a block usually has; one number for all, so that prompts which begin
    alike have the same blocks however many tokens each was reported with."""
    of_text = text_bytes > 0
    tokens, whole = int(prompt_tokens[of_text].sum()), int(text_bytes.sum())
    return block_tokens * whole / (tokens * CHUNK_BYTES) if tokens and whole else 1.0
