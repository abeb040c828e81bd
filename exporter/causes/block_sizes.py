"""Which block sizes rows state, to know those of rows that state none."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from replay.traffic import Numbers

_EVERYWHERE = ""


@dataclass
class BlockSizes:
    """How many rows of each place (a model on a replica) stated which block size."""

    rows: dict[str, Counter[int]] = field(default_factory=dict)

    def fill(self, sizes: Numbers, places: Sequence[str]) -> None:
        """Count the sizes that rows state, and put in for those that are not known (0 or less) what
        most rows of the place have, else most of all."""
        for (place, size), rows in Counter(zip(places, sizes.tolist(), strict=True)).items():
            for where in (place, _EVERYWHERE) if size > 0 else ():
                self.rows.setdefault(where, Counter())[size] += rows
        for row in np.flatnonzero(sizes <= 0).tolist():
            counted = self.rows.get(places[row]) or self.rows.get(_EVERYWHERE)
            if counted:
                sizes[row] = counted.most_common(1)[0][0]

    def kept(self) -> dict[str, list[tuple[int, int]]]:
        """As JSON takes it."""
        return {place: list(counted.items()) for place, counted in self.rows.items()}

    @classmethod
    def from_kept(cls, kept: Mapping[str, Sequence[tuple[int, int]]]) -> "BlockSizes":
        """As it was."""
        return cls({place: Counter(dict(each)) for place, each in kept.items()})
