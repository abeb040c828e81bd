"""Pieces of a prompt cut where its content says so: a shift moves them and changes none.

Blocks are cut by counting from the start, so that one token more in front changes them all. A
piece ends where a hash of the last few tokens is larger than those around it; what was added or
taken away in front only changes the pieces it stands in and next to. Text without tokens is cut by
its bytes in the same way.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256

import numpy as np

from replay.known_blocks import mixed
from replay.traffic import Flags, Names, Numbers, Pieces

# A longer piece is cut all the same, so that a length is stored in one byte.
LONGEST = 255
_NAME_BYTES = 8


@dataclass(frozen=True)
class _Cutting:
    """The hash at a place is that of the last `window` units; it ends a piece if it is the largest
    within `reach` places on both sides, so that pieces are longer than that and usually twice as
    long. A unit is written in `unit_bytes`."""

    reach: int
    window: int
    unit_bytes: int


_OF_TOKENS = _Cutting(reach=8, window=4, unit_bytes=8)
_OF_BYTES = _Cutting(reach=32, window=16, unit_bytes=1)


def token_pieces(token_ids: Sequence[int], key: str = "") -> tuple[list[int], list[int]]:
    """The names of the pieces of a prompt, keyed hashes, and how many tokens each has.

    An empty prompt has none. Whatever follows the last cut is a piece too. Raises ValueError for
    what cannot be a token id, without repeating it.
    """
    try:
        packed = struct.pack(f"<{len(token_ids)}Q", *token_ids)
    except struct.error:
        raise ValueError("token ids must be whole numbers from 0 to 2^64 - 1") from None
    return _pieces(packed, _OF_TOKENS, key)


def text_pieces(text: bytes, key: str = "") -> tuple[list[int], list[int]]:
    """The same of a text, lengths in bytes."""
    return _pieces(text, _OF_BYTES, key)


def placed(names: Names, lengths: Numbers, starts: Numbers) -> Pieces:
    """Pieces by where they end in their prompts; `starts`: where those of each prompt begin."""
    ends = np.cumsum(lengths)
    before = np.concatenate([[0], ends])[starts[:-1]]
    return Pieces(names, ends - np.repeat(before, np.diff(starts)), starts)


def _pieces(packed: bytes, cutting: _Cutting, key: str) -> tuple[list[int], list[int]]:
    ends = _cuts(packed, cutting)
    lengths = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    return _names(packed, ends, cutting.unit_bytes, key), lengths


def _cuts(packed: bytes, cutting: _Cutting) -> list[int]:
    """Where pieces end, in units; the last at the end of the prompt."""
    if not packed:
        return []
    units = np.frombuffer(packed, "<u8" if cutting.unit_bytes == 8 else np.uint8)
    scattered = mixed(units.astype(np.uint64))
    windows = np.zeros(len(scattered), np.uint64)
    for back in range(cutting.window):
        # Each place in the window counts differently, so that order matters.
        windows[back:] += scattered[: max(len(scattered) - back, 0)] * np.uint64(2 * back + 3)
    ends: list[int] = (np.flatnonzero(_peaks(mixed(windows), cutting.reach)) + 1).tolist()
    if not ends or ends[-1] != len(units):
        ends.append(len(units))
    return _at_most(LONGEST, ends)


def _peaks(hashes: Names, reach: int) -> Flags:
    """Which are larger than all within reach before them and as large as all behind them."""
    peaks = np.ones(len(hashes), np.bool_)
    for apart in range(1, min(reach, len(hashes) - 1) + 1):
        later_wins = hashes[apart:] > hashes[:-apart]
        peaks[apart:] &= later_wins
        peaks[:-apart] &= ~later_wins
    return peaks


def _at_most(longest: int, ends: list[int]) -> list[int]:
    """The same with cuts between those that are further apart."""
    found = []
    for begin, end in zip([0, *ends], ends, strict=False):
        found += [*range(begin + longest, end, longest), end]
    return found


def _names(packed: bytes, ends: list[int], unit_bytes: int, key: str) -> list[int]:
    secret = sha256(key.encode()).digest() if key else b""
    fresh = blake2b(digest_size=_NAME_BYTES, key=secret, person=b"piece")
    names = []
    for begin, end in zip([0, *ends], ends, strict=False):
        piece = fresh.copy()
        piece.update(packed[begin * unit_bytes : end * unit_bytes])
        names.append(int.from_bytes(piece.digest(), "big"))
    return names
