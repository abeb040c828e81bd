"""A log with the text of prompts as recorded traffic, and as if its layout had been mended."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from replay.known_blocks import mixed, numbered
from replay.layout.edits import Fix
from replay.layout.findings import Finding, Report
from replay.layout.prompt import Prompt
from replay.layout.proof import Replay
from replay.layout.search import in_time, searched
from replay.layout.tokens import Tokenizer
from replay.prompts import Prompts
from replay.recorded import Labels, Recorded
from replay.traffic import Names, Numbers, Seconds, starts_of

NOTHING_FOUND = "lint finds nothing that comes always: there is nothing to mend"
_WHOLE_64_BITS = (1 << 64) - 1


def recorded_of(prompts: Sequence[Prompt], block_tokens: int, mends: bool) -> Recorded:
    """Requests in the order of their times, a second apart where not all have one; their tokens are
    approximate. ValueError without prompts.

    With `mends` they are mended too as `lint` does it in its proof: in the text, at all places that
    change always. That takes some milliseconds a request.
    """
    if not prompts:
        raise ValueError("a log without prompts is no traffic")
    if not mends:
        own = in_time(prompts)
        replays = Replay(own, Tokenizer(), block_tokens)
        return _recorded(own, replays, block_tokens, [each.label for each in own])
    found = searched(prompts, block_tokens, None, len(prompts))
    templates = [""] * len(found.prompts)
    for name, numbers in found.templates.items():
        for number in numbers:
            templates[number] = name
    recorded = _recorded(found.prompts, found.replays, block_tokens, templates)
    if not found.fixes:
        return replace(recorded, mended_words=[NOTHING_FOUND])
    mended = _replayable(found.prompts, found.replays, block_tokens, found.fixes)
    return replace(recorded, mended=mended, mended_words=list(_words(found.report)))


def _recorded(
    prompts: Sequence[Prompt], replays: Replay, block_tokens: int, templates: Sequence[str]
) -> Recorded:
    sessions = _labels([each.session for each in prompts])
    return Recorded(
        prompts=_replayable(prompts, replays, block_tokens),
        sessions=None if sessions is None else _conversations(sessions),
        template=_labels(templates),
        tenant=_labels([each.user for each in prompts]),
    )


def _replayable(
    prompts: Sequence[Prompt], replays: Replay, block_tokens: int, fixes: Sequence[Fix] = ()
) -> Prompts:
    lengths, chains, answers = [], [], []
    for length, chain, answer in replays.every(fixes):
        lengths.append(length)
        chains.append([*chain, *answer])
        answers.append(len(answer))
    output = [replays.answer_tokens(number) for number in range(len(prompts))]
    names = np.array([name & _WHOLE_64_BITS for chain in chains for name in chain], np.uint64)
    return Prompts(
        arrived=_arrived(prompts),
        prompt_tokens=np.array(lengths, np.int64),
        output_tokens=np.array(output, np.int64),
        blocks=numbered(mixed(names))[0],
        starts=starts_of([len(chain) for chain in chains]),
        block_tokens=block_tokens,
        answer_blocks=np.array(answers, np.int64),
    )


def has_times(prompts: Iterable[Prompt]) -> bool:
    """Do all requests tell when they came?"""
    return all(each.at is not None for each in prompts)


def _arrived(prompts: Sequence[Prompt]) -> Seconds:
    if not has_times(prompts):
        return np.arange(len(prompts), dtype=np.float64)
    moments: Seconds = np.array([each.at for each in prompts], np.float64)
    moments -= moments[0]
    return moments


def _labels(values: Sequence[str | None]) -> Labels | None:
    """None where no request has one."""
    names = list(dict.fromkeys(value for value in values if value))
    if not names:
        return None
    place = {name: number for number, name in enumerate(names)}
    return Labels(np.array([place.get(value or "", -1) for value in values], np.int64), names)


def _conversations(sessions: Labels) -> Names:
    """A scattered number for each; a request of an unknown one is one by itself."""
    own: Numbers = len(sessions.names) + np.arange(len(sessions.codes))
    return mixed(np.where(sessions.codes >= 0, sessions.codes, own).astype(np.uint64))


def _words(report: Report) -> Iterable[str]:
    for template in report.templates:
        for each in template.findings:
            if each.frequency != "once" and each.kind != "tokenizer_join":
                yield _said(template.name, each)


def _said(template: str, found: Finding) -> str:
    place = f"{template}: {found.kind} in {found.segment} at token {found.token_index:,}"
    return f"{place}, which changes with every {found.frequency}, as lint mends it"
