"""Recorded traffic as plain columns: what the causes of missed tokens are worked out from.

Columns instead of objects, so that millions of blocks fit into memory and are compared at once.
Nothing here holds token ids or text: a prompt is known by the names of its blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Names = npt.NDArray[np.uint64]
Seconds = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# The cached count of a request that reports none. Never the same as 0.
NOT_REPORTED = -1


@dataclass(frozen=True)
class Pieces:
    """Pieces of prompts named by their own tokens, wherever they stand, request behind request.

    `ends`: where each ends, in tokens from the start of its prompt. A piece begins where the one
    before ends.
    """

    names: Names
    ends: Numbers
    starts: Numbers

    def begins(self) -> Numbers:
        """Where each piece begins, in tokens."""
        begins = np.roll(self.ends, 1)
        begins[self.starts[:-1][np.diff(self.starts) > 0]] = 0
        return begins


@dataclass(frozen=True)
class Chains:
    """The blocks of prompts, request behind request: those of request i stand from `starts[i]`
    to before `starts[i + 1]`.

    `names` are chain hashes, one each `grain_tokens`; whatever bounds reuse (salt, adapter) is
    part of them. `contents` names the same blocks by their own tokens only, None where not
    known.
    """

    names: Names
    starts: Numbers
    grain_tokens: int
    contents: Names | None = None

    @classmethod
    def of(
        cls,
        chains: Sequence[Sequence[int]],
        grain_tokens: int,
        contents: Sequence[Sequence[int]] | None = None,
    ) -> "Chains":
        """From a list for each request; an empty one for a request without a chain."""
        return cls(
            flat(chains),
            starts_of([len(chain) for chain in chains]),
            grain_tokens,
            None if contents is None else flat(contents),
        )

    @property
    def lengths(self) -> Numbers:
        """Blocks of each request."""
        return np.diff(self.starts)

    def cut(self, blocks: Numbers) -> "Chains":
        """At most so many blocks of each request."""
        if (self.lengths <= blocks).all():
            return self
        kept = np.minimum(self.lengths, blocks)
        places = ranges(self.starts[:-1], kept)
        contents = None if self.contents is None else self.contents[places]
        return Chains(self.names[places], starts_of(kept), self.grain_tokens, contents)

    def sorted(self, order: Numbers) -> "Chains":
        """The same with the requests in another order."""
        lengths = self.lengths[order]
        places = ranges(self.starts[:-1][order], lengths)
        contents = None if self.contents is None else self.contents[places]
        return Chains(self.names[places], starts_of(lengths), self.grain_tokens, contents)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Requests in any order; every column has one entry for each.

    `cached_tokens`: observed or modelled, NOT_REPORTED where neither is known. `looked_up`: when
    the cache was asked (start, and queue time if known), `ready`: first token (else the end),
    `ended`, all in seconds on one clock; without `looked_up` requests follow each other as they
    stand and `concurrent` does not exist. `replica`, `deployment` (model and its version) and
    `scope` are numbers from 0. `ineligible`: nothing could be served from a cache. `kept`: its
    blocks were put into a cache. `eligible_tokens`: as much of each prompt as may be cached (up to
    the last breakpoint of a hosted cache). `output_tokens`: None where answers are not to count as
    cached: bare traces go by prompts alone.
    """

    prompt_tokens: Numbers
    cached_tokens: Numbers
    chains: Chains
    looked_up: Seconds | None = None
    ready: Seconds | None = None
    ended: Seconds | None = None
    replica: Numbers | None = None
    deployment: Numbers | None = None
    scope: Numbers | None = None
    ineligible: Flags | None = None
    kept: Flags | None = None
    output_tokens: Numbers | None = None
    eligible_tokens: Numbers | None = None
    pieces: Pieces | None = None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def with_cached(self, cached_tokens: Numbers) -> "Traffic":
        """The same requests with other cached counts."""
        return replace(self, cached_tokens=cached_tokens)


@dataclass(frozen=True)
class Moments:
    """Things that happened to replicas: number of the replica, and when."""

    replica: Numbers = field(default_factory=lambda: np.empty(0, np.int64))
    seconds: Seconds = field(default_factory=lambda: np.empty(0, np.float64))

    @classmethod
    def of(cls, moments: Sequence[tuple[int, float]]) -> "Moments":
        """From (replica, seconds)."""
        return cls(
            np.array([replica for replica, _ in moments], np.int64),
            np.array([seconds for _, seconds in moments], np.float64),
        )


@dataclass(frozen=True)
class Stays:
    """What caches held and when, as their events told: a block by its chain name was on a
    replica from `since` until before `until` (infinity: still there). `deployment` as in
    `Traffic`.
    """

    names: Names
    replica: Numbers
    since: Seconds
    until: Seconds
    deployment: Numbers


def flat(lists: Sequence[Sequence[int]]) -> Names:
    """Lists of unsigned numbers, one behind the other."""
    return np.array([number for each in lists for number in each], np.uint64)


def starts_of(lengths: Sequence[int] | npt.NDArray[Any]) -> Numbers:
    """Where each begins, and where the last one ends."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def ranges(begins: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Numbers:
    """The numbers from each begin on, `lengths` of them, one range behind the other."""
    starts = starts_of(lengths)
    return np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)
