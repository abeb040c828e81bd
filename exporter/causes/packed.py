"""Arrays as bytes, to lie in a column of the store."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def packed(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Not compressed: keyed hashes would not get smaller."""
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]  # its other parameter is a flag
    return out.getvalue()


def unpacked(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """What was packed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
