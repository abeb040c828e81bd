"""What blocks hold, wherever they stand: the same content in another scope or another place."""

import numpy as np

from replay.known_blocks import GOLDEN, Blocks, mixed
from replay.traffic import Chains, Flags, Names, Numbers, Pieces, Small
from replay.ways import started_before


def prefix_names(contents: Names, blocks: Blocks) -> Names:
    """Name every block by its content and all contents before it, whatever its scope.

    Chain names have the scope in them; these are made anew from the contents: the sum of
    scattered (content, place) pairs, which no two prefixes share but by chance (64 bits).
    """
    place = blocks.places()
    steps = GOLDEN * np.arange(1, int(place.max(initial=0)) + 2, dtype=np.uint64)
    sums = np.cumsum(mixed(contents + steps[place]), dtype=np.uint64)
    begins = blocks.starts[:-1]
    before = np.zeros(len(begins), np.uint64)
    later = np.flatnonzero(begins > 0)
    before[later] = sums[begins[later] - 1]
    sums -= before[blocks.owner]
    return sums


def sorted_pieces(pieces: Pieces, order: Numbers) -> Pieces:
    """The same with the requests in another order."""
    names = Chains(pieces.names, pieces.starts, 1).sorted(order)
    ends = Chains(pieces.ends.astype(np.uint64), pieces.starts, 1).sorted(order)
    return Pieces(names.names, ends.names.astype(np.int64), names.starts)


def seen_tokens(
    pieces: Pieces,
    space: Numbers,
    kept: Flags,
    begins: Numbers,
    ends: Numbers,
    before: Flags | None = None,
) -> Numbers:
    """Of each request, how many tokens from `begins` to before `ends` lie in pieces that an
    earlier request of the same space had, at any place.

    Requests in the order of look-ups; `space` and the others have one entry for each. `before`:
    which pieces requests before all of these had.
    """
    blocks = Blocks.of(pieces.names, pieces.starts).apart(space)
    seen = np.flatnonzero(_or(started_before(blocks, kept), before))
    owner = blocks.owner[seen]
    inside = np.minimum(pieces.ends[seen], ends[owner])
    inside -= np.maximum(pieces.begins()[seen], begins[owner])
    return _sums(np.maximum(inside, 0), owner, len(space))


def seen_block_tokens(
    contents: Blocks,
    grain_tokens: int,
    kept: Flags,
    begins: Numbers,
    ends: Numbers,
    before: Flags | None = None,
) -> Numbers:
    """The same where the blocks themselves are the pieces, as nothing finer is known: a shift by
    less than a block hides what they hold."""
    seen = np.flatnonzero(_or(started_before(contents, kept), before))
    owner = contents.owner[seen]
    begin = (seen - contents.starts[owner]) * grain_tokens
    inside = np.minimum(begin + grain_tokens, ends[owner]) - np.maximum(begin, begins[owner])
    return _sums(np.maximum(inside, 0), owner, len(begins))


def _or(flags: Flags, others: Flags | None) -> Flags:
    return flags if others is None else flags | others


def _sums(tokens: Numbers, owner: Small, requests: int) -> Numbers:
    return np.bincount(owner, tokens, requests).astype(np.int64)
