"""What a fix does to a prompt: take text away, put it at the end, replace it, or sort it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from replay.layout.prompt import Prompt, Segment


@dataclass(frozen=True)
class Edit:
    """Replace the text from `begin` to `end` of a segment. What is `moved` goes to the end of the
    prompt, or to `to` (segment and place in it), which is behind what the template's prompts share.

    `old` is what stands there; where sorting shifted it, the only place that has it is taken.
    """

    segment: int
    begin: int
    end: int
    old: str
    new: str = ""
    moved: bool = False
    to: tuple[int, int] | None = None


# Puts a prompt in order as a whole; of edits at places there may be several in one prompt.
Sorting = Callable[[Prompt], Prompt]


@dataclass(frozen=True)
class Fix:
    """What one finding asks for: edits by number of the prompt, or an order for all prompts."""

    edits: Mapping[int, Sequence[Edit]]
    sorting: Sorting | None = None


def fixed(prompt: Prompt, number: int, fixes: Sequence[Fix]) -> Prompt:
    """The prompt after all of some fixes. The edits go first: an order would move their places."""
    edits = [edit for fix in fixes for edit in fix.edits.get(number, ())]
    if edits:
        prompt = _edited(prompt, edits)
    for fix in fixes:
        if fix.sorting is not None:
            prompt = fix.sorting(prompt)
    return prompt


def _edited(prompt: Prompt, edits: Sequence[Edit]) -> Prompt:
    texts: dict[int, str] = {}
    moved: list[Edit] = []
    border: dict[int, int] = {}
    for edit in sorted(_with_inserts(edits), key=lambda e: (e.segment, -e.end, -e.begin)):
        text = texts.get(edit.segment, prompt.segments[edit.segment].text)
        begin = _place_of(edit, text)
        if begin is None or begin + len(edit.old) > border.get(edit.segment, len(text)):
            continue  # not there, or inside one that is done
        texts[edit.segment] = text[:begin] + edit.new + text[begin + len(edit.old) :]
        border[edit.segment] = begin
        if edit.moved and edit.old and edit.to is None:
            moved.append(edit)
    prompt = prompt.with_texts(texts)
    if not moved:
        return prompt
    moved.sort(key=lambda edit: (edit.segment, edit.begin))
    tail = "".join(f"\n{edit.old}" for edit in moved)
    last = prompt.segments[-1]
    segments = (*prompt.segments[:-1], replace(last, text=last.text + tail))
    return replace(prompt, segments=segments)


def _with_inserts(edits: Sequence[Edit]) -> list[Edit]:
    """The edits, with one more for each place that text is moved to."""
    told: dict[tuple[int, int], list[Edit]] = {}
    for edit in sorted(edits, key=lambda each: (each.segment, each.begin)):
        if edit.moved and edit.old and edit.to is not None:
            told.setdefault(edit.to, []).append(edit)
    return [*edits, *(_insert(place, each) for place, each in told.items())]


def _insert(place: tuple[int, int], edits: Sequence[Edit]) -> Edit:
    segment, at = place
    lines = [edit.old for edit in edits]
    # In front of a text a line ends behind it, in the middle of one a line begins.
    new = "".join(f"\n{line}" for line in lines) if at else "".join(f"{x}\n" for x in lines)
    return Edit(segment, at, at, "", new)


def _place_of(edit: Edit, text: str) -> int | None:
    if text[edit.begin : edit.end] == edit.old:
        return edit.begin
    return text.index(edit.old) if edit.old and text.count(edit.old) == 1 else None


def tools_sorted(prompt: Prompt) -> Prompt:
    """The prompt with its tools in the order of their names."""
    tools = [segment for segment in prompt.segments if segment.unit]
    if not tools:
        return prompt
    begin = prompt.segments.index(tools[0])
    units: dict[str, list[Segment]] = {}
    for segment in tools:
        units.setdefault(segment.unit, []).append(segment)
    ordered = tuple(segment for unit in sorted(units) for segment in units[unit])
    before, behind = prompt.segments[:begin], prompt.segments[begin + len(tools) :]
    return replace(prompt, segments=before + ordered + behind)
