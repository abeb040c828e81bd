"""A place that is known of some requests, found in others that begin like one of these and go on
like one behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from replay.layout_chains.places import Place
from replay.traffic import Numbers, Small

# What stands in a place may be so many times longer in a request that is not known yet.
_LONGER_FACTOR = 2


@dataclass(frozen=True)
class KnownPlace:
    """What requests with a place hold: `begins` in front of it and `whole` with it, by how many
    blocks that are; `behind`: right behind it. `usual`: how long it is in most."""

    begins: Mapping[int, set[bytes]]
    whole: Mapping[int, set[bytes]]
    behind: Numbers
    shortest: int
    longest: int
    usual: int | None

    @classmethod
    def of(cls, place: Place, contents: Sequence[Small]) -> "KnownPlace":
        begins: dict[int, set[bytes]] = {}
        whole: dict[int, set[bytes]] = {}
        behind = []
        for row, begin, end in spans_of(place):
            begins.setdefault(begin, set()).add(contents[row][:begin].tobytes())
            whole.setdefault(end, set()).add(contents[row][:end].tobytes())
            behind += contents[row][end : end + 1].tolist()
        lengths = place.ends - place.begins
        return cls(
            begins,
            dict(sorted(whole.items())),
            np.unique(behind),
            int(lengths.min()),
            _LONGER_FACTOR * int(lengths.max()),
            int(np.median(lengths)) if place.crossed else None,
        )

    def end_in(self, own: Small, begin: int) -> int | None:
        """Where the place ends that begins there: where it does in a request that is the same so
        far; else, behind a value, at the first block that stands behind another one. A set in
        another order ends where it usually does. None where it does not end."""
        for end, known in self.whole.items():
            goes_on = begin < end < len(own) and own[end] in self.behind
            if goes_on and own[:end].tobytes() in known:
                return end
        if self.usual is not None:
            return begin + self.usual if begin + self.usual <= len(own) else None
        ahead = own[begin + self.shortest : begin + self.longest + 1]
        found = np.flatnonzero(np.isin(ahead, self.behind))
        return begin + self.shortest + int(found[0]) if len(found) else None

    def span_in(self, own: Small) -> tuple[int, int] | None:
        """Where the place begins and ends in a request, None where it has none."""
        for begin, known in self.begins.items():
            if begin < len(own) and own[:begin].tobytes() in known:
                end = self.end_in(own, begin)
                if end is not None:
                    return begin, end
        return None


def spans_of(place: Place) -> list[tuple[int, int, int]]:
    """Request, first block and first block behind of all that have the place."""
    columns = (place.rows.tolist(), place.begins.tolist(), place.ends.tolist())
    return list(zip(*columns, strict=True))
