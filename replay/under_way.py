"""Requests that had not come to their first token, and answers not to their end, when a span of
traffic was over: what they bring is there at a moment yet to come.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from replay.traffic import Flags, Names, Numbers, Seconds

Array = npt.NDArray[np.generic]


class _Columns:
    """Columns of equal length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self:
        """As they were kept."""
        return cls(**{each.name: arrays[each.name] for each in fields(cls)})  # type: ignore[arg-type]

    def arrays(self) -> dict[str, Array]:
        """To be kept."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]

    def picked(self, which: Flags | Numbers) -> Self:
        """Only some of them."""
        return type(self)(**{name: column[which] for name, column in self.arrays().items()})

    def with_others(self, others: Self) -> Self:
        """Both, these first."""
        more = others.arrays()
        return type(self)(
            **{name: np.concatenate([own, more[name]]) for name, own in self.arrays().items()}
        )


@dataclass(frozen=True)
class ComingBlocks(_Columns):
    """Blocks by key that a replica has from a moment on. `is_use`: it counts for a lifetime."""

    keys: Names
    replica: Numbers
    seconds: Seconds
    is_use: Flags

    @classmethod
    def none(cls) -> "ComingBlocks":
        """None are under way."""
        return cls(
            np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
        )


@dataclass(frozen=True)
class ComingAnswers(_Columns):
    """Answers that are there from a moment on, by the key of the block their prompt ends with.
    `number`: of the request, counted from the first look-up of all."""

    keys: Names
    replica: Numbers
    seconds: Seconds
    number: Numbers
    length: Numbers
    prompt_tokens: Numbers
    output_tokens: Numbers

    @classmethod
    def none(cls) -> "ComingAnswers":
        """None are under way."""
        whole = np.empty(0, np.int64)
        return cls(np.empty(0, np.uint64), whole, np.empty(0), whole, whole, whole, whole)
