"""Prompts of one template, side by side: what its layout is told from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from replay.contents import prefix_names, sorted_pieces
from replay.known_blocks import Blocks, numbered, within
from replay.traffic import Chains, Names, Numbers, Pieces, Seconds, Small

Codes = npt.NDArray[np.int64]
_Item = TypeVar("_Item", np.int32, np.int64)
# A label that was not given.
NOT_GIVEN = -1


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """Requests of one template in the order of their start; every column has one entry for each.

    `contents`: a number for what each block holds, wherever it stands, the same for the same
    tokens; `chains`: a number for each block and all before it, scope included. Where
    `contents_known` is false the one stands for the other, and nothing is told of what lies behind
    the place where prompts part. `started`, `ready` (first token) in seconds on one clock.
    `session`, `tenant`, `scope`, `replica` are numbers, NOT_GIVEN where there is none.
    `cached_tokens` NOT_REPORTED where not known; `output_tokens` 0 where not known.
    """

    contents: Sequence[Small]
    chains: Sequence[Small]
    contents_known: bool
    grain_tokens: int
    prompt_tokens: Numbers
    cached_tokens: Numbers
    output_tokens: Numbers
    started: Seconds
    ready: Seconds
    session: Codes
    tenant: Codes
    scope: Codes
    replica: Codes
    # Where each of `contents` ends, in tokens; None: they are blocks.
    ends: Sequence[Numbers] | None = None
    # The same prompts cut where their content says so, which no shift hides; None where not known.
    pieces: Sequence[Small] | None = None
    piece_ends: Sequence[Numbers] | None = None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def unit(self) -> Codes:
        """What counts as one witness: a session, or a request that belongs to none."""
        alone = -2 - np.arange(len(self), dtype=np.int64)
        return np.where(self.session == NOT_GIVEN, alone, self.session)

    def finest(self) -> "Prompts":
        """The same prompts by their pieces where these are known, else by their blocks."""
        if self.pieces is None:
            return self
        return replace(self, contents=self.pieces, ends=self.piece_ends, contents_known=True)

    def lengths(self, row: int) -> Numbers:
        """Tokens of each of a request's `contents`."""
        if self.ends is None:
            return np.full(len(self.contents[row]), self.grain_tokens, np.int64)
        return np.diff(self.ends[row], prepend=0)

    def token_at(self, row: int, place: int) -> int:
        """The first token of one of a request's `contents`; of the place behind the last, the first
        token behind it."""
        if self.ends is None:
            return place * self.grain_tokens
        return int(self.ends[row][place - 1]) if place else 0

    @classmethod
    def of(
        cls,
        chains: Chains,
        *,
        pieces: Pieces | None = None,
        prompt_tokens: npt.ArrayLike,
        started: npt.ArrayLike,
        cached_tokens: npt.ArrayLike | None = None,
        output_tokens: npt.ArrayLike | None = None,
        ready: npt.ArrayLike | None = None,
        session: Sequence[object] | None = None,
        tenant: Sequence[object] | None = None,
        scope: Sequence[object] | None = None,
        replica: Sequence[object] | None = None,
    ) -> "Prompts":
        """From columns in any order; labels are any values, '' or None where not given.

        Rows without blocks stay: they count as requests of the template and tell nothing else.
        """
        tokens = np.asarray(prompt_tokens, np.int64)
        count = len(tokens)
        order = np.argsort(np.asarray(started, np.float64), kind="stable")
        chains = chains.sorted(order)
        names, _ = numbered(chains.names)
        known = chains.contents is not None
        held = names if chains.contents is None else numbered(chains.contents)[0]
        begun = np.asarray(started, np.float64)[order]
        cut = None if pieces is None else sorted_pieces(pieces, order)
        first = begun if ready is None else np.asarray(ready, np.float64)[order]
        return cls(
            contents=_split(held, chains.starts),
            chains=_split(names, chains.starts),
            contents_known=known,
            grain_tokens=chains.grain_tokens,
            prompt_tokens=tokens[order],
            cached_tokens=_column(cached_tokens, count, -1)[order],
            output_tokens=_column(output_tokens, count, 0)[order],
            started=begun,
            ready=np.where(np.isnan(first), begun, first),
            session=codes(session, count)[order],
            tenant=codes(tenant, count)[order],
            scope=codes(scope, count)[order],
            replica=codes(replica, count)[order],
            pieces=None if cut is None else _split(numbered(cut.names)[0], cut.starts),
            piece_ends=None if cut is None else _split(cut.ends, cut.starts),
        )

    def taken(self, rows: Numbers) -> "Prompts":
        """Only these requests, given in the order of their start."""
        return Prompts(
            contents=[self.contents[row] for row in rows.tolist()],
            chains=[self.chains[row] for row in rows.tolist()],
            contents_known=self.contents_known,
            grain_tokens=self.grain_tokens,
            prompt_tokens=self.prompt_tokens[rows],
            cached_tokens=self.cached_tokens[rows],
            output_tokens=self.output_tokens[rows],
            started=self.started[rows],
            ready=self.ready[rows],
            session=self.session[rows],
            tenant=self.tenant[rows],
            scope=self.scope[rows],
            replica=self.replica[rows],
            ends=_picked(self.ends, rows),
            pieces=_picked(self.pieces, rows),
            piece_ends=_picked(self.piece_ends, rows),
        )


def codes(labels: Sequence[object] | None, count: int) -> Codes:
    """A number from 0 for each value in order of appearance, NOT_GIVEN for '' and None."""
    if labels is None:
        return np.full(count, NOT_GIVEN, np.int64)
    numbers: dict[object, int] = {}
    return np.array(
        [
            NOT_GIVEN if label in ("", None) else numbers.setdefault(label, len(numbers))
            for label in labels
        ],
        np.int64,
    ).reshape(count)


def reused_tokens(contents: Sequence[Small], space: Codes, grain_tokens: int) -> Numbers:
    """What each request would reuse at best of those before it, by whole blocks, if no block were
    ever lost: an unlimited cache in which all that came before is there. `space`: what keeps
    requests apart."""
    return reused_blocks(contents, space) * grain_tokens


def reused_blocks(contents: Sequence[Small], space: Codes) -> Numbers:
    """The same, counted in blocks or pieces."""
    lengths = np.array([len(each) for each in contents], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    if not starts[-1]:
        return np.zeros(len(contents), np.int64)
    blocks = Blocks.of(np.concatenate(contents).astype(np.uint64), starts)
    names = within(_prefixes(blocks), (space - space.min())[blocks.owner])
    number, count = numbered(names)
    first = np.empty(count, np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    seen = blocks.owner[first[number]] < blocks.owner
    leading = np.where(seen, np.iinfo(np.int32).max, blocks.places())
    depth = lengths.copy()
    np.minimum.at(depth, blocks.owner, leading.astype(np.int64))
    return depth


def beginnings(prompts: Prompts) -> tuple[Numbers, Numbers, Numbers]:
    """Of all blocks of all requests: a number for all contents up to it, whatever the scope; the
    request it is of; its place in the prompt."""
    lengths = np.array([len(each) for each in prompts.contents], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    if not starts[-1]:
        return (np.empty(0, np.int64),) * 3
    blocks = Blocks.of(np.concatenate(prompts.contents).astype(np.uint64), starts)
    numbers = numbered(_prefixes(blocks))[0].astype(np.int64)
    return numbers, blocks.owner.astype(np.int64), blocks.places().astype(np.int64)


def _prefixes(blocks: Blocks) -> Names:
    return prefix_names(blocks.block.astype(np.uint64), blocks)


def _picked(
    lists: Sequence[npt.NDArray[_Item]] | None, rows: Numbers
) -> list[npt.NDArray[_Item]] | None:
    return None if lists is None else [lists[row] for row in rows.tolist()]


def _split(numbers: npt.NDArray[_Item], starts: Numbers) -> list[npt.NDArray[_Item]]:
    return np.split(numbers, starts[1:-1]) if len(starts) > 1 else []


def _column(values: npt.ArrayLike | None, count: int, otherwise: int) -> Numbers:
    if values is None:
        return np.full(count, otherwise, np.int64)
    return np.asarray(values, np.int64)
