"""Pieces of a prompt cut where its content says so: a shift moves them and changes none.

Blocks are cut by counting from the start, so that one token more in front changes them all. A
piece ends where a hash of the last few tokens says; what was added or taken away in front only
changes the pieces it stands in.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b, sha256

import numpy as np

from replay.known_blocks import mixed
from replay.traffic import Numbers, Pieces, flat, starts_of

# A piece has about so many tokens: one window in so many says that it ends.
_USUAL_TOKENS = 8
_WINDOW_TOKENS = 4
_NAME_BYTES = 8


def pieces_of(prompts: Sequence[Sequence[int]], key: str = "") -> Pieces:
    """Cut prompts, each a list of token ids, into named pieces; the names are keyed hashes.

    An empty prompt has no pieces. Whatever follows the last cut is a piece too.
    """
    names: list[list[int]] = []
    ends: list[Numbers] = []
    for prompt in prompts:
        cuts = _cuts(prompt)
        ends.append(cuts)
        names.append(_names(prompt, cuts.tolist(), key))
    every = np.concatenate(ends) if ends else np.empty(0, np.int64)
    return Pieces(flat(names), every, starts_of([len(each) for each in names]))


def _cuts(prompt: Sequence[int]) -> Numbers:
    """Where pieces end, in tokens; the last at the end of the prompt."""
    if not len(prompt):
        return np.empty(0, np.int64)
    tokens = mixed(np.array(prompt, np.uint64))
    windows = np.zeros(len(tokens), np.uint64)
    for back in range(_WINDOW_TOKENS):
        # Each place in the window counts differently, so that order matters.
        windows[back:] += tokens[: len(tokens) - back] * np.uint64(2 * back + 3)
    ends = np.flatnonzero(mixed(windows) % np.uint64(_USUAL_TOKENS) == 0) + 1
    return ends if len(ends) and ends[-1] == len(prompt) else np.append(ends, len(prompt))


def _names(prompt: Sequence[int], cuts: list[int], key: str) -> list[int]:
    secret = sha256(key.encode()).digest() if key else b""
    fresh = blake2b(digest_size=_NAME_BYTES, key=secret, person=b"piece")
    names = []
    for begin, end in zip([0, *cuts], cuts, strict=False):
        piece = fresh.copy()
        piece.update(struct.pack(f"<{end - begin}Q", *prompt[begin:end]))
        names.append(int.from_bytes(piece.digest(), "big"))
    return names
