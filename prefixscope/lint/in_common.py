"""Whether two logs have anything in common, so that "parts nowhere" is not said of strangers."""

from collections.abc import Sequence

from replay.layout.atoms import Numbering, atoms_of
from replay.layout.prompt import Prompt
from replay.layout.search import in_time
from replay.layout.templates import templates_of

# As many of each as are looked at for the place where they part.
_ASKED_REQUESTS = 60


def have_template_in_common(new: Sequence[Prompt], old: Sequence[Prompt]) -> bool:
    """Is a template of the first new prompts, or a whole prompt, among the last old ones?"""
    before, after = in_time(old)[-_ASKED_REQUESTS:], in_time(new)[:_ASKED_REQUESTS]
    every, first_new = [*before, *after], len(before)
    numbering = Numbering()
    atoms = [atoms_of(prompt.segments, numbering) for prompt in every]
    whole = [tuple(each.keys.tolist()) for each in atoms]
    return not set(whole[:first_new]).isdisjoint(whole[first_new:]) or any(
        min(numbers) < first_new <= max(numbers) for numbers in templates_of(every, atoms).values()
    )
