"""Places that may be worth a finding: what varies there, how often, and how to mend it."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replay.layout.atoms import Numbering
from replay.layout.edits import Fix, tools_sorted
from replay.layout.frequency import Frequency, Owner, frequency_of
from replay.layout.kinds import OWNED, Kind, kind_of
from replay.layout.mending import Searched, edits_of, raw_places, targets_of
from replay.layout.orders import disorders
from replay.layout.prompt import Prompt
from replay.layout.sites import Piece, Site, sites_of


@dataclass(frozen=True)
class Candidate:
    """`values` and `places` (segment, begin, end) by number of the request; a place may lie in an
    answer, behind the last segment of the prompt. `pieces` are all of it, with sets in order.
    `change`: the first request of a new version."""

    kind: Kind
    frequency: Frequency
    values: Mapping[int, Hashable]
    places: Mapping[int, Piece]
    fix: Fix
    change: int | None = None
    more_places: int = 0
    pieces: Mapping[int, tuple[Piece, ...]] = field(default_factory=dict)

    @property
    def distinct(self) -> int:
        """How many different values there are."""
        return len(set(self.values.values()))


class Places:
    """The places of a template's prompts (by number, in the order of time) that vary."""

    def __init__(
        self, prompts: Mapping[int, Prompt], owners: Sequence[Owner], numbering: Numbering
    ) -> None:
        self._prompts = prompts
        self._orders = list(_orders(prompts, owners))
        ordered = dict(prompts)
        for candidate in self._orders:
            sorting = candidate.fix.sorting
            if sorting is not None:
                ordered = {number: sorting(prompt) for number, prompt in ordered.items()}
        self._searched = Searched(ordered, owners, numbering)

    def of_template(self) -> list[Candidate]:
        """What differs in text that all of them share."""
        sites, ends = _template_sites(self._searched)
        # What was thought differs inside conversations; between them it is another conversation.
        found = [
            _candidate(site, self._searched, self._prompts, ends)
            for site in sites
            if site.looks != "thinking"
        ]
        return [*self._orders, *_merged(found)]

    def of_sessions(self, known: Sequence[Candidate]) -> list[Candidate]:
        """What differs inside conversations and is none of the known places."""
        sites = _session_sites(self._searched, known)
        return _merged_inside(sites, self._searched, self._prompts)


def _orders(prompts: Mapping[int, Prompt], owners: Sequence[Owner]) -> Iterator[Candidate]:
    for disorder in disorders(prompts):
        frequency, change = frequency_of(disorder.values, owners, by_looks=False)
        places = dict(disorder.places)
        if disorder.sorting is tools_sorted:
            places = _first_moved(prompts, disorder.values, places)
        fix = Fix({}, disorder.sorting)
        yield Candidate(disorder.kind, frequency, disorder.values, places, fix, change)


def _first_moved(
    prompts: Mapping[int, Prompt],
    values: Mapping[int, tuple[str, ...]],
    places: dict[int, Piece],
) -> dict[int, Piece]:
    """Of each request with tools the first that stands elsewhere than in the request before."""
    moved, before = dict(places), None
    for number in sorted(values):
        order = values[number]
        if before is not None and before != order:
            same = next((n for n, (a, b) in enumerate(zip(before, order, strict=False)) if a != b),
                        min(len(before), len(order)) - 1)  # fmt: skip
            segments = prompts[number].segments
            at = next(n for n, each in enumerate(segments) if each.unit == order[same])
            moved[number] = (at, 0, 0)
        before = order
    return moved


def _template_sites(searched: Searched) -> tuple[list[Site], dict[int, tuple[int, int]]]:
    atoms = searched.cut()
    numbers = list(atoms)
    if len(numbers) < 2:
        return [], {}
    by_length = sorted(range(len(numbers)), key=lambda place: len(atoms[numbers[place]]))
    centre = by_length[len(numbers) // 4]
    return sites_of([atoms[n] for n in numbers], numbers, centre, growing=False)


def _session_sites(searched: Searched, known: Sequence[Candidate]) -> list[Site]:
    atoms = searched.cut(with_answers=True)
    sessions: dict[str, list[int]] = {}
    for number, prompt in searched.prompts.items():
        if prompt.session is not None:
            sessions.setdefault(prompt.session, []).append(number)
    covered: dict[int, list[Piece]] = {}
    for candidate in known:
        for number, pieces in candidate.pieces.items():
            covered.setdefault(number, []).extend(pieces)
    found: list[Site] = []
    for numbers in sessions.values():
        if len(numbers) > 1:
            lengths = [len(atoms[number]) for number in numbers]
            centre = lengths.index(max(lengths))
            inside, _ = sites_of([atoms[n] for n in numbers], numbers, centre, growing=True)
            found += [site for site in inside if not _is_covered(site, covered)]
    return found


def _is_covered(site: Site, covered: Mapping[int, Sequence[Piece]]) -> bool:
    hits = sum(
        any(_overlap(piece, other) for piece in pieces for other in covered.get(number, ()))
        for number, pieces in site.pieces.items()
    )
    return 2 * hits >= len(site.pieces)


def _overlap(one: Piece, other: Piece) -> bool:
    return one[0] == other[0] and one[1] <= other[2] and other[1] <= one[2]


def _candidate(
    site: Site,
    searched: Searched,
    prompts: Mapping[int, Prompt],
    ends: Mapping[int, tuple[int, int]],
) -> Candidate:
    numbers = sorted(site.values)
    kind = kind_of(site.looks, [site.values[number] for number in numbers])
    frequency, change = frequency_of(site.values, searched.owners, by_looks=kind in OWNED)
    if frequency == "once" and kind not in ("white_space", "thinking_removed"):
        kind = "template_version"
    places = {number: pieces[0] for number, pieces in site.pieces.items()}
    targets = {} if frequency == "request" else targets_of(ends, searched, prompts)
    fix = Fix(edits_of(site, kind, searched, prompts, targets))
    raw = raw_places(places, searched, prompts)
    return Candidate(kind, frequency, site.values, raw, fix, change, pieces=dict(site.pieces))


def _merged(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One for all places that change with a new version, and for white space that changes alike."""
    found: dict[Hashable, Candidate] = {}
    for number, candidate in enumerate(candidates):
        key: Hashable = number
        if candidate.frequency == "once":
            key = "once"
        elif candidate.kind == "white_space":
            key = _partition(candidate.values)
        found[key] = _joined(found[key], candidate) if key in found else candidate
    return list(found.values())


def _partition(values: Mapping[int, Hashable]) -> Hashable:
    """Which requests have the same value, whatever it is."""
    numbers: dict[Hashable, int] = {}
    return tuple((n, numbers.setdefault(values[n], len(numbers))) for n in sorted(values))


def _joined(first: Candidate, second: Candidate) -> Candidate:
    edits = {n: list(each) for n, each in first.fix.edits.items()}
    for number, more in second.fix.edits.items():
        edits.setdefault(number, []).extend(more)
    kind = first.kind if first.kind == second.kind else "template_version"
    if first.frequency != "once":
        kind = first.kind
    return replace(
        first,
        kind=kind,
        fix=Fix(edits),
        values={**second.values, **first.values},
        places={**second.places, **first.places},
        more_places=first.more_places + 1,
        pieces={
            number: (*first.pieces.get(number, ()), *second.pieces.get(number, ()))
            for number in {*first.pieces, *second.pieces}
        },
    )


def _merged_inside(
    sites: Sequence[Site], searched: Searched, prompts: Mapping[int, Prompt]
) -> list[Candidate]:
    """One for each kind and part of the conversation, over all sessions."""
    found: dict[tuple[Kind, str], Candidate] = {}
    for site in sites:
        candidate = _candidate(site, searched, prompts, {})
        if candidate.frequency == "once" or candidate.kind == "template_version":
            kind = kind_of(site.looks, [site.values[n] for n in sorted(site.values)])
            fix = Fix(edits_of(site, kind, searched, prompts, {}))
            candidate = replace(candidate, kind=kind, frequency="request", fix=fix, change=None)
        segment = "" if candidate.kind == "thinking_removed" else _segment(candidate, prompts)
        key = (candidate.kind, segment)
        found[key] = _joined(found[key], candidate) if key in found else candidate
    return [replace(each, frequency="request") for each in found.values()]


def _segment(candidate: Candidate, prompts: Mapping[int, Prompt]) -> str:
    number = min(candidate.places)
    place = candidate.places[number][0]
    segments = prompts[number].segments + prompts[number].answer
    return segments[place].name
