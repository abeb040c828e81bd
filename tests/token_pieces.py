"""Pieces of prompts whose token ids a test has, as stores keep them."""

from collections.abc import Sequence

import numpy as np

from replay.pieces import placed, token_pieces
from replay.traffic import Pieces, flat, starts_of


def pieces_of(prompts: Sequence[Sequence[int]], key: str = "") -> Pieces:
    """Those of many prompts, each a list of token ids."""
    found = [token_pieces(prompt, key) for prompt in prompts]
    return placed(
        flat([names for names, _ in found]),
        np.array([length for _, lengths in found for length in lengths], np.int64),
        starts_of([len(names) for names, _ in found]),
    )
