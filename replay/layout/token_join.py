"""Text that comes back the same and is cut into other tokens: known where the log has token ids.

An engine keeps the ids it generated. A client sends the text back, and encoding it anew may join
tokens differently: the text is equal, the prefix is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from replay.layout.alignment import align
from replay.layout.prompt import Prompt


@dataclass(frozen=True)
class Joins:
    """`places`: of each request whose ids part while its text goes on, the index of the token and
    of the character (in all of its text). `mended`: ids of prompt and answer as they would be if
    ids were sent back, by request. `unknown`: requests that repeat an answer whose ids no log has.
    """

    places: Mapping[int, tuple[int, int]]
    mended: Mapping[int, tuple[Sequence[int], Sequence[int]]]
    unknown: int


def joins_of(prompts: Sequence[Prompt]) -> Joins:
    """Compare every request with the one before it in its session, in the order of time."""
    places: dict[int, tuple[int, int]] = {}
    mended: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
    last: dict[str, int] = {}
    unknown = 0
    for number, prompt in enumerate(prompts):
        if prompt.session is None:
            continue
        before = last.get(prompt.session)
        last[prompt.session] = number
        if before is None or not _goes_on(prompts[before], prompt):
            continue
        held = _held(prompts[before], mended.get(before))
        if held is None or prompt.token_ids is None:
            unknown += bool(prompts[before].answer)
            continue
        shared = _shared(held, prompt.token_ids)
        if shared >= len(held):
            continue
        mended[number] = (_mended(held, prompt.token_ids), prompt.answer_ids or ())
        first = _shared(_own(prompts[before]), prompt.token_ids)
        places[number] = (first, _character(prompts[before], first))
    return Joins(places, mended, unknown)


def text_of(prompt: Prompt, answer: bool = False) -> str:
    """All text of a prompt as rendered, with the answer behind it."""
    segments = prompt.segments + (prompt.answer if answer else ())
    return "".join(segment.lead + segment.text for segment in segments)


def _goes_on(before: Prompt, prompt: Prompt) -> bool:
    return text_of(prompt).startswith(text_of(before, answer=True))


def _own(prompt: Prompt) -> Sequence[int]:
    return (*(prompt.token_ids or ()), *(prompt.answer_ids or ()))


def _held(
    prompt: Prompt, mended: tuple[Sequence[int], Sequence[int]] | None
) -> Sequence[int] | None:
    """What the engine keeps of a request; None where its ids are not known to the end."""
    if prompt.token_ids is None or (prompt.answer and prompt.answer_ids is None):
        return None
    if mended is not None:
        return (*mended[0], *mended[1])
    return _own(prompt)


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    least = min(len(left), len(right))
    differs = np.array(left[:least]) != np.array(right[:least])
    return int(differs.argmax()) if differs.any() else least


def _mended(held: Sequence[int], ids: Sequence[int]) -> Sequence[int]:
    """The prompt with what is held in front, and of its own ids those behind that."""
    partner = align(np.array(held, np.int64), np.array(ids, np.int64))
    known = np.flatnonzero(partner >= 0)
    if not len(known):
        return ids
    last = int(known[-1])
    return (*held, *ids[int(partner[last]) + len(held) - last :])


def _character(before: Prompt, token_index: int) -> int:
    """About where in the text a token stands: by its share of the tokens of the request before."""
    prompt_tokens = len(before.token_ids or ())
    text = len(text_of(before))
    if token_index < prompt_tokens or not before.answer:
        return text * token_index // max(prompt_tokens, 1)
    answer = sum(len(segment.lead) + len(segment.text) for segment in before.answer)
    behind = token_index - prompt_tokens
    return text + answer * behind // max(len(before.answer_ids or ()), 1)
