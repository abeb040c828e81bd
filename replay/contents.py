"""What blocks hold, wherever they stand: the same content in another scope or another place."""

import numpy as np

from replay.known_blocks import Blocks, mixed, numbered, within
from replay.traffic import Chains, Flags, Names, Numbers, Pieces
from replay.ways import started_before

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def prefix_names(chains: Chains) -> Names:
    """Name every block by its content and all contents before it, whatever its scope.

    Chain names have the scope in them; these are made anew from the contents: the sum of
    scattered (content, place) pairs, which no two prefixes share but by chance (64 bits).
    """
    contents = chains.contents
    if contents is None:
        raise ValueError("prefixes of content need content hashes")
    owner = np.repeat(np.arange(len(chains.lengths)), chains.lengths)
    place = np.arange(len(contents)) - chains.starts[owner]
    sums = np.cumsum(mixed(contents + _GOLDEN * (place + 1).astype(np.uint64)), dtype=np.uint64)
    before = np.zeros(len(chains.lengths), np.uint64)
    behind_first = np.flatnonzero(chains.starts[:-1] > 0)
    before[behind_first] = sums[chains.starts[:-1][behind_first] - 1]
    return sums - before[owner]


def pieces_of_blocks(chains: Chains) -> Pieces | None:
    """The blocks themselves as pieces, where nothing finer is known: a shift by less than a
    block hides them. None without content hashes."""
    if chains.contents is None:
        return None
    owner = np.repeat(np.arange(len(chains.lengths)), chains.lengths)
    place = np.arange(len(chains.contents)) - chains.starts[owner]
    return Pieces(chains.contents, (place + 1) * chains.grain_tokens, chains.starts)


def sorted_pieces(pieces: Pieces, order: Numbers) -> Pieces:
    """The same with the requests in another order."""
    names = Chains(pieces.names, pieces.starts, 1).sorted(order)
    ends = Chains(pieces.ends.astype(np.uint64), pieces.starts, 1).sorted(order)
    return Pieces(names.names, ends.names.astype(np.int64), names.starts)


def seen_tokens(
    pieces: Pieces, space: Numbers, kept: Flags, begins: Numbers, ends: Numbers
) -> Numbers:
    """Of each request, how many tokens from `begins` to before `ends` lie in pieces that an
    earlier request of the same space had, at any place.

    Requests in the order of look-ups; `space` and the others have one entry for each.
    """
    lengths = np.diff(pieces.starts)
    owner = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    names = within(pieces.names, space[owner]) if space.any() else pieces.names
    numbers, count = numbered(names)
    seen = started_before(Blocks(numbers, owner, pieces.starts, count), kept)
    inside = np.minimum(pieces.ends, ends[owner]) - np.maximum(pieces.begins(), begins[owner])
    tokens = np.where(seen, np.maximum(inside, 0), 0)
    return np.bincount(owner, tokens, len(lengths)).astype(np.int64)
