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

# What so many prompts have is usual; a prompt with less than half of that is another thing.
_USUAL_RATIO = 0.7
_LEAST_SHARED_RATIO = 0.5
# Of the others so many have an atom of the skeleton.
_SKELETON_RATIO = 0.98
# So few shared atoms between long volatile stretches are words of the language, not layout.
_LEAST_ISLAND = 5
_LONG_GAP_ATOMS = 8.0
# Between two long ones so many of their atoms are what passages share: headings, marks, a phrase.
_ISLAND_RATIO = 0.5
_MOST_ISLAND = 50
# So many shared atoms in a row are worth standing behind.
_SHARED_RUN = 16
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
) -> tuple[list[Site], dict[int, tuple[int, int]]]:
    """The sites of some prompts, in the order of the prompt at `centre`, and of each prompt the
    place (segment, character) where what all share ends.

    `numbers` are those the prompts have in the findings. `growing`: the prompts are turns of one
    conversation, so that only those which reach a place are asked what they have there.
    """
    maps = np.stack([_aligned(atoms[centre], each) for each in atoms])
    star = _Star(atoms, numbers, centre, maps)
    skeleton = _skeleton(maps, growing)
    skeleton = _without_islands(maps, skeleton)
    found = [*_wild(star, skeleton), *_gaps(star, skeleton), *_between(star, skeleton)]
    found.sort(key=lambda entry: entry[0])
    return [site for _, site in found if site.varies], _shared_ends(star, skeleton)


def _shared_ends(star: _Star, skeleton: Ints) -> dict[int, tuple[int, int]]:
    """Behind the last long run of the skeleton; nothing for a prompt that does not have its end."""
    if not len(skeleton):
        return {}
    breaks = np.flatnonzero(np.diff(skeleton) > 1)
    begins, ends = np.append(0, breaks + 1), np.append(breaks, len(skeleton) - 1)
    long = np.flatnonzero(ends - begins >= _SHARED_RUN)
    if not len(long):
        return {}
    place = int(skeleton[ends[long[-1]]])
    found = {}
    for number, atoms, at in _having(star, place):
        segment, _, end = _piece(atoms, at)
        found[number] = (segment, end)
    return found


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
    """Atoms that all have. What some lack is no part of it, so that what they have there instead is
    seen; prompts that lack most of what the others share are not asked."""
    has = maps >= 0
    usual = np.flatnonzero(_enough(has, growing, _USUAL_RATIO))
    if not growing and len(usual):
        has = has[has[:, usual].mean(axis=1) >= _LEAST_SHARED_RATIO]
    return np.flatnonzero(_enough(has, growing, _SKELETON_RATIO))


def _enough(has: Flags, growing: bool, ratio: float) -> Flags:
    could = np.full(has.shape[1], len(has))
    if growing:
        last = has.shape[1] - 1 - np.argmax(has[:, ::-1], axis=1)
        reach = np.where(has.any(axis=1), last, -1)
        could = (reach[:, None] >= np.arange(has.shape[1])[None, :]).sum(axis=0)
    lacking = np.floor((1 - ratio) * could)
    enough: Flags = has.sum(axis=0) >= np.maximum(could - lacking, 2)
    return enough


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
        least, most = sorted((mean[first], mean[second]))
        short = _LEAST_ISLAND if most >= _LONG_GAP_ATOMS else 0.0
        if least >= _LONG_GAP_ATOMS:
            short = max(short, min(_ISLAND_RATIO * least, _MOST_ISLAND))
        if second - first < short:
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
        rows = np.flatnonzero(both[:, gap]).tolist()
        stretches = [
            _Stretch.of(star.atoms[row], int(left[row, gap]), int(right[row, gap])) for row in rows
        ]
        site = Site("words")
        for row, pieces in zip(rows, _without_common_space(stretches), strict=True):
            site.values[star.numbers[row]] = _text(star.atoms[row], pieces)
            site.pieces[star.numbers[row]] = pieces
        yield 2 * int(skeleton[gap]) + 1, site


@dataclass(frozen=True)
class _Stretch:
    """What stands between two atoms of a prompt: a piece for each segment, an empty one for
    nothing, and the white space in front of it and behind."""

    pieces: tuple[Piece, ...]
    before: str
    behind: str

    @classmethod
    def of(cls, atoms: Atoms, left: int, right: int) -> "_Stretch":
        first, _, end = _piece(atoms, left)
        last, begin, _ = _piece(atoms, right)
        if right - left == 1:
            text = atoms.segments[first].text
            space = text[end : begin if first == last else len(text)]
            return cls(((first, end + len(space), end + len(space)),), space, "")
        pieces: list[Piece] = []
        for at in range(left + 1, right):
            segment, start, stop = _piece(atoms, at)
            if pieces and pieces[-1][0] == segment:
                pieces[-1] = (segment, pieces[-1][1], stop)
            else:
                pieces.append((segment, start, stop))
        (head, start, _), (tail, _, stop) = pieces[0], pieces[-1]
        text = atoms.segments[tail].text
        before = atoms.segments[head].text[end if head == first else 0 : start]
        return cls(tuple(pieces), before, text[stop : begin if tail == last else len(text)])


def _without_common_space(stretches: Sequence[_Stretch]) -> list[tuple[Piece, ...]]:
    """The pieces with the white space around them that only some have: it moves with them."""
    before = _common([each.before for each in stretches])
    behind = _common([each.behind[::-1] for each in stretches if each.behind])
    found = []
    for each in stretches:
        (head, start, stop), *others = each.pieces
        pieces = [(head, start - (len(each.before) - before), stop), *others]
        if each.behind:
            tail, start, stop = pieces[-1]
            pieces[-1] = (tail, start, stop + len(each.behind) - behind)
        found.append(tuple(pieces))
    return found


def _common(texts: Sequence[str]) -> int:
    """How many leading characters all have; 0 without any."""
    if not texts:
        return 0
    least, most = min(texts), max(texts)
    return next((n for n, sign in enumerate(least) if sign != most[n : n + 1]), len(least))


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
