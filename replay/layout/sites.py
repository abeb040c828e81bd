"""Where the prompts of a template part, each place with what stands there in every prompt.

One prompt stands for all: the others are aligned with it. What nearly all of them have is the
skeleton; what stands between two neighbours of the skeleton, and differs, is a site.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from replay.layout.alignment import align
from replay.layout.atoms import THINKING, WILD, Atoms, Ints

# Of the prompts that could have an atom, so many have it: it is part of the skeleton.
_SKELETON_RATIO = 0.7
# So few shared atoms between long volatile stretches are words of the language, not layout.
_LEAST_ISLAND = 5
_LONG_GAP_ATOMS = 8.0
_FIXED_ROLES = ("system", "tools")

Flags = npt.NDArray[np.bool_]
Piece = tuple[int, int, int]  # segment, begin and end in its text


@dataclass
class Site:
    """One place. `looks`: clock, uuid, email or number where the values are all of such a kind,
    else words, white_space or thinking. `values` and `pieces` are by the number of the prompt."""

    looks: str
    values: dict[int, str] = field(default_factory=dict)
    pieces: dict[int, tuple[Piece, ...]] = field(default_factory=dict)

    @property
    def varies(self) -> bool:
        """Does anything differ here?"""
        return len(set(self.values.values())) > 1


@dataclass(frozen=True)
class _Star:
    """All prompts aligned with one. `maps[p, i]`: the atom of prompt p that is atom i of it."""

    atoms: Sequence[Atoms]
    numbers: Sequence[int]
    centre: int
    maps: Ints


def sites_of(
    atoms: Sequence[Atoms], numbers: Sequence[int], centre: int, growing: bool
) -> list[Site]:
    """The sites of some prompts, in the order of the prompt at `centre`.

    `numbers` are those the prompts have in the findings. `growing`: the prompts are turns of one
    conversation, so that only those which reach a place are asked what they have there.
    """
    maps = np.stack([_aligned(atoms[centre], each) for each in atoms])
    star = _Star(atoms, numbers, centre, maps)
    skeleton = _skeleton(maps, growing)
    skeleton = _without_islands(maps, skeleton)
    found = [*_wild(star, skeleton), *_gaps(star, skeleton), *_between(star, skeleton)]
    found.sort(key=lambda entry: entry[0])
    return [site for _, site in found if site.varies]


def _aligned(centre: Atoms, other: Atoms) -> Ints:
    """System prompt, tools and conversation each by itself: what a user says may repeat a passage
    of the system prompt, and is no part of it."""
    found = np.full(len(centre), -1, np.int64)
    mine, theirs = _parts(centre), _parts(other)
    for part in range(len(_FIXED_ROLES) + 1):
        own, others = np.flatnonzero(mine == part), np.flatnonzero(theirs == part)
        if len(own) and len(others):
            partner = align(centre.keys[own], other.keys[others])
            found[own] = np.where(partner >= 0, others[partner], -1)
    return found


def _parts(atoms: Atoms) -> Ints:
    roles = [each.role for each in atoms.segments]
    parts = [_FIXED_ROLES.index(r) if r in _FIXED_ROLES else len(_FIXED_ROLES) for r in roles]
    of_segment: Ints = np.array(parts, np.int64)[atoms.segment]
    return of_segment


def _skeleton(maps: Ints, growing: bool) -> Ints:
    has = maps >= 0
    could = np.full(maps.shape[1], len(maps))
    if growing:
        last = maps.shape[1] - 1 - np.argmax(has[:, ::-1], axis=1)
        reach = np.where(has.any(axis=1), last, -1)
        could = (reach[:, None] >= np.arange(maps.shape[1])[None, :]).sum(axis=0)
    enough = has.sum(axis=0) >= np.maximum(_SKELETON_RATIO * could, 2)
    return np.flatnonzero(enough)


def _without_islands(maps: Ints, skeleton: Ints) -> Ints:
    """The skeleton less short runs beside a long gap."""
    if len(skeleton) < 2:
        return skeleton
    left, right = maps[:, skeleton[:-1]], maps[:, skeleton[1:]]
    both = (left >= 0) & (right >= 0)
    widths = np.where(both, np.maximum(right - left - 1, 0), 0).sum(axis=0)
    mean = widths / np.maximum(both.sum(axis=0), 1)
    breaks = np.flatnonzero(mean > 0)
    kept = np.ones(len(skeleton), np.bool_)
    for first, second in itertools.pairwise(breaks):
        short = second - first < _LEAST_ISLAND
        if short and max(mean[first], mean[second]) >= _LONG_GAP_ATOMS:
            kept[first + 1 : second + 1] = False
    return skeleton[kept]


def _wild(star: _Star, skeleton: Ints) -> Iterator[tuple[int, Site]]:
    """Times, ids and numbers at a place of the skeleton that are not the same everywhere."""
    keys = star.atoms[star.centre].keys
    for place in skeleton[keys[skeleton] < len(WILD)].tolist():
        site = Site(WILD[int(keys[place])])
        for number, atoms, at in _having(star, place):
            piece = _piece(atoms, at)
            site.values[number] = _text(atoms, (piece,))
            site.pieces[number] = (piece,)
        yield 2 * place, site


def _having(star: _Star, place: int) -> Iterator[tuple[int, Atoms, int]]:
    for number, atoms, at in zip(
        star.numbers, star.atoms, star.maps[:, place].tolist(), strict=True
    ):
        if at >= 0:
            yield number, atoms, at


def _piece(atoms: Atoms, at: int) -> Piece:
    return int(atoms.segment[at]), int(atoms.begin[at]), int(atoms.end[at])


def _text(atoms: Atoms, pieces: Sequence[Piece]) -> str:
    return "".join(atoms.segments[segment].text[begin:end] for segment, begin, end in pieces)


def _gaps(star: _Star, skeleton: Ints) -> Iterator[tuple[int, Site]]:
    """What stands between neighbours of the skeleton where something does."""
    if len(skeleton) < 2:
        return
    left, right = star.maps[:, skeleton[:-1]], star.maps[:, skeleton[1:]]
    both = (left >= 0) & (right >= 0) & (right > left)
    filled = (both & (right - left > 1)).any(axis=0)
    for gap in np.flatnonzero(filled).tolist():
        site = Site("words")
        for row in np.flatnonzero(both[:, gap]).tolist():
            atoms, number = star.atoms[row], star.numbers[row]
            pieces = _pieces_between(atoms, int(left[row, gap]), int(right[row, gap]))
            site.values[number] = _text(atoms, pieces)
            site.pieces[number] = pieces
        yield 2 * int(skeleton[gap]) + 1, site


def _pieces_between(atoms: Atoms, before: int, behind: int) -> tuple[Piece, ...]:
    """What stands between two atoms, a piece for each segment; an empty piece for nothing."""
    if behind - before == 1:
        segment, _, end = _piece(atoms, before)
        return ((segment, end, end),)
    pieces: list[Piece] = []
    for at in range(before + 1, behind):
        segment, begin, end = _piece(atoms, at)
        if pieces and pieces[-1][0] == segment:
            pieces[-1] = (segment, pieces[-1][1], end)
        else:
            pieces.append((segment, begin, end))
    return tuple(pieces)


def _between(star: _Star, skeleton: Ints) -> Iterator[tuple[int, Site]]:
    """White space, and what a model thought, between atoms that are neighbours everywhere."""
    if len(skeleton) < 2:
        return
    places = skeleton[1:][np.diff(skeleton) == 1]
    at, before = star.maps[:, places], star.maps[:, places - 1]
    neighbours = (at >= 0) & (before >= 0) & (at - before == 1)
    texts = np.stack([each.before[np.maximum(row, 0)]
                      for each, row in zip(star.atoms, at, strict=True)])  # fmt: skip
    own = star.atoms[star.centre].before[places]
    tails = _tails(star)
    differs = (neighbours & (texts != own)).any(axis=0)
    differs |= np.isin(places, list(tails))
    for column in np.flatnonzero(differs).tolist():
        place = int(places[column])
        yield 2 * place - 1, _between_site(star, place, neighbours[:, column], tails)


def _tails(star: _Star) -> dict[int, list[int]]:
    """Prompts that end in thinking the others have not, by the place in the centre behind it."""
    tails: dict[int, list[int]] = {}
    for row, atoms in enumerate(star.atoms):
        matched = np.flatnonzero(star.maps[row] == len(atoms) - 1)
        if len(matched) and THINKING.search(atoms.tail):
            tails.setdefault(int(matched[0]) + 1, []).append(row)
    return tails


def _between_site(star: _Star, place: int, neighbours: Flags, tails: dict[int, list[int]]) -> Site:
    site = Site("white_space")
    for row in np.flatnonzero(neighbours).tolist():
        atoms, number = star.atoms[row], star.numbers[row]
        behind = int(star.maps[row, place])
        text = atoms.gap(behind)
        segment, begin = int(atoms.segment[behind]), int(atoms.begin[behind])
        site.values[number] = text
        site.pieces[number] = ((segment, begin - len(text), begin),)
    for row in tails.get(place, ()):
        atoms, number = star.atoms[row], star.numbers[row]
        segment, _, end = _piece(atoms, len(atoms) - 1)
        site.values[number] = atoms.tail
        site.pieces[number] = ((segment, end, end + len(atoms.tail)),)
    if any(THINKING.search(value) for value in site.values.values()):
        site.looks = "thinking"
    return site
