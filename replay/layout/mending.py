"""How prompts are mended at a place, in the text as it was logged."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replay.layout.atoms import THINKING, Atoms, Numbering, atoms_of
from replay.layout.edits import Edit
from replay.layout.frequency import Owner
from replay.layout.kinds import Kind
from replay.layout.prompt import Prompt
from replay.layout.sites import Piece, Site

# How templates of models open what a user says.
_USER_MARK = re.compile(
    r"\s*(?:<\|(?:im_start\|>|start_header_id\|>)?user\b|<start_of_turn>user\b|<｜User｜>|\[INST\])"
    r"|\n\s*(?:User|Human):"
)
_NEAR_CHARACTERS = 400
_DETERMINISTIC: frozenset[Kind] = frozenset({"white_space", "thinking_removed"})


@dataclass
class Searched:
    """The prompts of one template as the search sees them: with sets put in order already, so that
    what differs otherwise stands out."""

    prompts: dict[int, Prompt]
    owners: Sequence[Owner]
    numbering: Numbering

    def cut(self, with_answers: bool = False) -> dict[int, Atoms]:
        """The atoms of every prompt, with its answer behind it if asked for."""
        return {
            number: atoms_of(
                prompt.segments + (prompt.answer if with_answers else ()), self.numbering
            )
            for number, prompt in self.prompts.items()
        }


def targets_of(
    ends: Mapping[int, tuple[int, int]], searched: Searched, prompts: Mapping[int, Prompt]
) -> dict[int, tuple[int, int]]:
    """Where what changes seldom may stand: behind what all share, in the prompts as logged. In
    front of the conversation where the shared part ends before it."""
    found = {}
    for number, end in ends.items():
        own = searched.prompts[number].segments
        place = _before_user(own[end[0]].text, end)
        if any(each.role in ("system", "tools") for each in own):
            behind = (n for n, each in enumerate(own) if each.role not in ("system", "tools"))
            place = next(behind, len(own) - 1), 0
        names = [each.name for each in prompts[number].segments]
        found[number] = (names.index(own[place[0]].name), place[1])
    return found


def _before_user(text: str, end: tuple[int, int]) -> tuple[int, int]:
    """In front of the mark of the user's turn where one stands at the end of what is shared: in
    plain text the conversation begins there."""
    segment, at = end
    marks = [mark.start() for mark in _USER_MARK.finditer(text, max(at - _NEAR_CHARACTERS, 0), at)]
    return (segment, marks[-1]) if marks else end


def raw_places(
    places: Mapping[int, Piece], searched: Searched, prompts: Mapping[int, Prompt]
) -> dict[int, Piece]:
    """Places in the prompts as they were logged: sorting may have moved the segments."""
    found = {}
    for number, (segment, begin, end) in places.items():
        own = searched.prompts[number].segments
        if segment < len(own):
            names = [each.name for each in prompts[number].segments]
            found[number] = (names.index(own[segment].name), begin, end)
        else:
            found[number] = (segment, begin, end)
    return found


def edits_of(
    site: Site,
    kind: Kind,
    searched: Searched,
    prompts: Mapping[int, Prompt],
    targets: Mapping[int, tuple[int, int]],
) -> dict[int, list[Edit]]:
    """How each prompt is mended here."""
    edits: dict[int, list[Edit]] = {}
    wanted = None
    if kind == "template_version":
        wanted = site.values[max(site.values)]
    elif kind in _DETERMINISTIC:
        wanted = _kept_value(site)
    for number, pieces in site.pieces.items():
        own = searched.prompts[number].segments
        names = {each.name: place for place, each in enumerate(prompts[number].segments)}
        for count, (segment, begin, end) in enumerate(pieces):
            if segment >= len(own):
                continue  # in the answer, which stays as it was generated
            old = own[segment].text[begin:end]
            new = "" if wanted is None or count else wanted
            if wanted is None or old != new:
                place, moved = names[own[segment].name], wanted is None
                edit = Edit(place, begin, end, old, new, moved, targets.get(number))
                edits.setdefault(number, []).append(edit)
    return edits


def _kept_value(site: Site) -> str:
    """What all should have: what was thought, where it is there at all, else what came first."""
    ordered = [site.values[number] for number in sorted(site.values)]
    return next((value for value in ordered if THINKING.search(value)), ordered[0])
