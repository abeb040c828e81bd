"""Which found template is the next version of which.

An edit makes another prefix of a template. What tells that it is the same template still: it comes
when the other one goes, and the two are nearer kin than either is to any that runs beside them. Kin
are those that begin alike, that hold the same blocks in other places, or that the same tenants and
routes ask for. What all share (a house preamble, the only tenant) makes nobody kin.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from replay.prefix_groups import PrefixGroups
from replay.traffic import Chains, Flags, Names, Numbers, Seconds

# The old one goes when the new one comes: this share of its requests is over before this share of
# the other's began. Callers move one after the other, and some never do.
MOVED_SHARE = 0.9
# And comes soon: between the two lies at most this share of the longer one's time.
LONGEST_GAP_SHARE = 0.5
# Callers are much the same at this cosine, and more so by this factor than those of any other.
MIN_COSINE = 0.5
MIN_LEAD = 1.25
# Tenants or routes that are compared, so that a million of them take no memory.
MOST_CALLERS = 2_000

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Times:
    """When most requests of each group had come, and when the first few had."""

    first: Seconds
    last: Seconds

    def succeeds(self) -> Flags:
        """[a, b]: b comes when a goes."""
        gap = self.first[None, :] - self.last[:, None]
        span = self.last - self.first
        longest = LONGEST_GAP_SHARE * np.maximum(span[None, :], span[:, None])
        soon: Flags = (gap >= 0) & (gap <= longest)
        return soon

    def beside(self) -> Flags:
        """[a, b]: both run at the same time."""
        both: Flags = (self.first[None, :] < self.last[:, None]) & (
            self.first[:, None] < self.last[None, :]
        )
        return both & ~np.eye(len(self.first), dtype=np.bool_)


def heirs(
    chains: Chains, groups: PrefixGroups, started: Seconds, circles: Sequence[Numbers]
) -> Numbers:
    """For each found group the place of the one it took over from, -1 where there is none.

    `circles`: columns of who asks (tenant, route), numbers from 0, below 0 where not known.
    """
    count = len(groups.found)
    heir_of = np.full(count, -1, np.int64)
    if not count:
        return heir_of
    times = _times(groups, started)
    succeeds, beside = times.succeeds(), times.beside()
    kinship = [_by_blocks(_shared_heads(_prefixes(chains.names, chains, groups)), beside)]
    kinship += [_by_callers(_cosines(groups, circle), beside) for circle in circles]
    if chains.contents is not None:
        prefixes = _prefixes(chains.contents, chains, groups)
        kinship.append(_by_blocks(_shared_contents(prefixes), beside))
    closest = np.max(kinship, axis=0)
    closest[~succeeds] = 0.0
    for place in np.argsort(-closest, axis=None, kind="stable").tolist():
        old, new = divmod(place, count)
        if closest[old, new] == 0.0:
            break
        if heir_of[new] < 0 and old not in heir_of:
            heir_of[new] = old
    return heir_of


def _times(groups: PrefixGroups, started: Seconds) -> _Times:
    own = [started[groups.of == place] for place in range(len(groups.found))]
    # A group of which every request went on to a longer one has no time of its own.
    return _Times(
        np.array([np.quantile(each, 1 - MOVED_SHARE) if len(each) else np.inf for each in own]),
        np.array([np.quantile(each, MOVED_SHARE) if len(each) else -np.inf for each in own]),
    )


def _nearest(kinship: Matrix, beside: Flags) -> Matrix:
    """[a, b]: the most that either has in common with any other that runs beside one of them."""
    nearest = np.zeros_like(kinship)
    for place in range(len(kinship)):
        near = beside[place] | beside
        near[:, place] = False
        np.fill_diagonal(near, False)
        nearest[place] = np.where(near, np.maximum(kinship[place], kinship), 0.0).max(axis=1)
    return nearest


def _by_blocks(shared: Matrix, beside: Flags) -> Matrix:
    """Of the blocks of the shorter prefix that are not shared by others too, the share that the
    longer one has."""
    nearest = _nearest(shared, beside)
    own = np.minimum.outer(np.diag(shared), np.diag(shared)) - nearest
    share: Matrix = np.maximum(shared - nearest, 0.0) / np.maximum(own, 1.0)
    return share


def _by_callers(cosines: Matrix, beside: Flags) -> Matrix:
    leads = (cosines >= MIN_COSINE) & (cosines >= MIN_LEAD * _nearest(cosines, beside))
    return np.where(leads, cosines, 0.0)


def _shared_heads(prefixes: Sequence[Names]) -> Matrix:
    """Blocks that two prefixes begin with alike; of one with itself, all."""
    shared = np.diag([float(len(prefix)) for prefix in prefixes])
    for one, first in enumerate(prefixes):
        for other, second in enumerate(prefixes[:one]):
            least = min(len(first), len(second))
            # Names of a chain differ from the first block that differs.
            alike = np.count_nonzero(first[:least] == second[:least])
            shared[one, other] = shared[other, one] = alike
    return shared


def _shared_contents(prefixes: Sequence[Names]) -> Matrix:
    """Different blocks that two prefixes have, wherever they stand."""
    sets = [set(prefix.tolist()) for prefix in prefixes]
    return np.array([[float(len(one & other)) for other in sets] for one in sets])


def _prefixes(column: Names, chains: Chains, groups: PrefixGroups) -> list[Names]:
    begins = chains.starts[[group.member for group in groups.found]].tolist()
    pairs = zip(begins, groups.found, strict=True)
    return [column[begin : begin + group.blocks] for begin, group in pairs]


def _cosines(groups: PrefixGroups, circle: Numbers) -> Matrix:
    """How alike the callers of two templates are, from 0 to 1; by those who ask most."""
    told = (groups.of >= 0) & (circle >= 0)
    asking, often = np.unique(circle[told], return_counts=True)
    most = np.sort(asking[np.argsort(-often, kind="stable")[:MOST_CALLERS]])
    told &= np.isin(circle, most)
    counts = np.zeros((len(groups.found), len(most)))
    np.add.at(counts, (groups.of[told], np.searchsorted(most, circle[told])), 1)
    unit = counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)
    cosines: Matrix = unit @ unit.T
    return cosines
