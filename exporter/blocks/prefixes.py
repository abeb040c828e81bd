"""Which prefixes hold most of what is resident.

Blocks of prompts that begin alike form a tree. A block where prompts part is the end of a shared
prefix; it stands for the blocks before it that lead to no other end, and for all that only
continue it. So every block belongs to exactly one prefix, and sums over prefixes are true.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from exporter.blocks.ages import Seconds
from replay.hash_table import Keys

if TYPE_CHECKING:
    from exporter.blocks.contents import Holding

Numbers = npt.NDArray[np.int64]


class Prefix(NamedTuple):
    """`name`: chain hash of its last block; `replicas`: that hold this block; `touched`: the last
    known use of any of its blocks, seconds."""

    name: int
    prefix_tokens: int
    blocks: int
    tokens: int
    replicas: int
    touched: float


@dataclass(frozen=True)
class Forest:
    """The different blocks of several caches. Arrays of one length, places in them as links;
    `parents`: -1 = none."""

    names: Keys
    parents: Numbers
    prefix_tokens: Numbers
    blocks: Numbers
    tokens: Numbers
    replicas: Numbers
    touched: Seconds

    @classmethod
    def of(cls, holdings: Sequence["Holding"]) -> "Forest":
        """From at least one cache with at least one block."""
        every = np.concatenate([holding.names for holding in holdings])
        names, first, place = np.unique(every, return_index=True, return_inverse=True)
        copies = np.concatenate([holding.copies for holding in holdings])
        sizes = np.concatenate(
            [np.full(len(holding.names), holding.block_size) for holding in holdings]
        )
        depths = np.concatenate([holding.depths for holding in holdings])
        touched = np.zeros(len(names))
        np.maximum.at(touched, place, np.concatenate([each.touched for each in holdings]))
        # A parent may be gone from one cache and not from another.
        parents = np.full(len(names), -1, np.int64)
        np.maximum.at(parents, place, _places(names, holdings))
        return cls(
            names=names,
            parents=parents,
            prefix_tokens=(depths * sizes)[first].astype(np.int64),
            blocks=np.bincount(place, copies, len(names)).astype(np.int64),
            tokens=np.bincount(place, copies * sizes, len(names)).astype(np.int64),
            replicas=np.bincount(place, minlength=len(names)),
            touched=touched,
        )

    def largest(self, count: int) -> list[Prefix]:
        """The prefixes that hold most blocks, at most `count`, the largest first. The blocks of
        those left out belong to the longest listed prefix they continue, if there is one."""
        owners = self._owners()
        held = np.bincount(owners, self.blocks, len(self.names))
        listed = np.argsort(-held, kind="stable")[:count]
        listed = listed[held[listed] > 0]
        is_listed = np.zeros(len(self.names), bool)
        is_listed[listed] = True
        inherited = _jump(np.where(is_listed, np.arange(len(self.names)), self.parents))
        owners = np.where(is_listed[owners], owners, inherited)
        owned = owners >= 0
        blocks = np.bincount(owners[owned], self.blocks[owned], len(self.names))
        tokens = np.bincount(owners[owned], self.tokens[owned], len(self.names))
        touched = np.zeros(len(self.names))
        np.maximum.at(touched, owners[owned], self.touched[owned])
        return [
            Prefix(
                int(self.names[place]), int(self.prefix_tokens[place]), int(blocks[place]),
                int(tokens[place]), int(self.replicas[place]), float(touched[place]),
            )
            for place in listed[np.argsort(-blocks[listed], kind="stable")].tolist()
        ]  # fmt: skip

    def _owners(self) -> Numbers:
        """The place of the prefix every block belongs to."""
        places = np.arange(len(self.names))
        has_parent = self.parents >= 0
        children = np.bincount(self.parents[has_parent], minlength=len(self.names))
        parts = children > 1
        onward = places.copy()
        single = has_parent & (children[self.parents] == 1)
        onward[self.parents[single]] = places[single]
        ends = _jump(onward)
        above = _jump(np.where(parts, places, self.parents))
        return np.where(parts[ends] | (above < 0), ends, above)


def _places(names: Keys, holdings: Sequence["Holding"]) -> Numbers:
    parents = np.concatenate([holding.parents for holding in holdings])
    place = np.searchsorted(names, parents).clip(max=len(names) - 1)
    return np.where((names[place] == parents) & (parents != 0), place, -1).astype(np.int64)


def _jump(links: Numbers) -> Numbers:
    """Follow links to where they stay; -1 where they lead nowhere. Each step doubles the way."""
    links = np.append(links, -1)  # a link of -1 reads this one
    for _ in range(len(links).bit_length()):
        further = links[links]
        if np.array_equal(further, links):
            break
        links = further
    return links[:-1]
