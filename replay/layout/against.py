"""A new version of a prompt beside the old one: what it costs once, and what it serves then."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replay.layout.atoms import Numbering, atoms_of
from replay.layout.candidates import Candidate, Places
from replay.layout.findings import Finding, Quote, Report
from replay.layout.frequency import Owner
from replay.layout.prompt import Prompt
from replay.layout.proof import Replay, Replayed
from replay.layout.search import in_time, quote_of, search
from replay.layout.templates import templates_of, with_sessions
from replay.layout.tokens import Encode, Tokenizer

# Enough of each to see where they part.
_ASKED_REQUESTS = 60
# A ratio that falls by less is noise of the sample.
_WORSE_RATIO = 0.005


@dataclass(frozen=True)
class Parting:
    """The first place where new prompts part from old ones, as it is in a new one."""

    segment: str
    token_index: int
    quotes: tuple[Quote, ...]


@dataclass(frozen=True)
class Comparison:
    """`old_ratio`, `new_ratio`: token hit ratio of the later half of each log, the earlier one
    having warmed the cache; None for a single request. `cold_tokens`: what several new sessions
    share and no old one left in the cache; each replica computes it once. `parting` None: the new
    ones part from the old nowhere that a version explains. `added`: findings only the new log has.
    """

    old: Report
    new: Report
    old_ratio: float | None
    new_ratio: float | None
    cold_tokens: int
    parting: Parting | None
    added: tuple[Finding, ...]

    @property
    def is_worse(self) -> bool:
        """Does the new version serve less from cache, or break reuse where the old did not?"""
        fell = (
            self.old_ratio is not None
            and self.new_ratio is not None
            and self.new_ratio < self.old_ratio - _WORSE_RATIO
        )
        return fell or bool(self.added)


def compare(
    new: Sequence[Prompt],
    old: Sequence[Prompt],
    block_tokens: int = 16,
    capacity_blocks: int | None = None,
    compared_requests: int = 500,
    encode: Encode | None = None,
) -> Comparison:
    """Hold a new log against an old one; see `Comparison`."""
    asked = (block_tokens, capacity_blocks, compared_requests, encode)
    reports = [search(old, *asked), search(new, *asked)]
    before, after = in_time(old), in_time(new)
    tokenizer = Tokenizer(encode)
    ratios = [
        _steady_ratio(Replay(each, tokenizer, block_tokens, capacity_blocks).run())
        for each in (before, after)
    ]
    known = {(each.kind, each.segment) for each in reports[0].findings}
    added = tuple(
        each for each in reports[1].findings
        if each.frequency != "once" and (each.kind, each.segment) not in known
    )  # fmt: skip
    return Comparison(
        reports[0], reports[1], ratios[0], ratios[1],
        _cold_tokens(before, after, tokenizer, block_tokens), _parting(before, after, tokenizer),
        added,
    )  # fmt: skip


def _steady_ratio(replayed: Replayed) -> float | None:
    half = len(replayed.prompt_tokens) // 2
    if not half:
        return None
    return Replayed(replayed.prompt_tokens[half:], replayed.cached_tokens[half:]).token_hit_ratio


def _cold_tokens(
    old: Sequence[Prompt], new: Sequence[Prompt], tokenizer: Tokenizer, block_tokens: int
) -> int:
    both = Replay([*old, *new], tokenizer, block_tokens)
    there = {block for number in range(len(old)) for block in both.names(number)}
    users: dict[int, set[str]] = {}
    for number, prompt in enumerate(_of("new", new, Numbering())):
        for block in both.names(len(old) + number):
            if block not in there:
                users.setdefault(block, set()).add(prompt.session or "")
    return sum(len(sessions) > 1 for sessions in users.values()) * block_tokens


def _parting(old: Sequence[Prompt], new: Sequence[Prompt], tokenizer: Tokenizer) -> Parting | None:
    """What changes once, with the first of the new requests."""
    numbering = Numbering()
    every = _of("old", old[-_ASKED_REQUESTS:], numbering)
    every += _of("new", new[:_ASKED_REQUESTS], numbering)
    first_new = min(len(old), _ASKED_REQUESTS)
    atoms = [atoms_of(prompt.segments, numbering) for prompt in every]
    owners = [Owner(prompt.session, prompt.user, None) for prompt in every]
    found: list[tuple[int, Parting]] = []
    for numbers in templates_of(every, atoms).values():
        own = {number: every[number] for number in numbers}
        change = next((number for number in numbers if number >= first_new), None)
        if change is None or change == numbers[0]:
            continue
        before = numbers[numbers.index(change) - 1]
        found += [
            _placed(candidate, every, before, change, tokenizer)
            for candidate in Places(own, owners, numbering).of_template()
            if _is_new(candidate, first_new) and {before, change} <= set(candidate.places)
        ]
    return min(found, key=lambda each: each[0])[1] if found else None


def _of(which: str, prompts: Sequence[Prompt], numbering: Numbering) -> list[Prompt]:
    atoms = [atoms_of(prompt.segments, numbering) for prompt in prompts]
    named = with_sessions(prompts, atoms)
    return [replace(prompt, session=f"{which} {prompt.session}") for prompt in named]


def _is_new(candidate: Candidate, first_new: int) -> bool:
    """Do all old requests have one thing here and no new one, or all new ones one and no old?"""
    old = {value for number, value in candidate.values.items() if number < first_new}
    new = {value for number, value in candidate.values.items() if number >= first_new}
    return bool(old and new) and old.isdisjoint(new) and 1 in (len(old), len(new))


def _placed(
    candidate: Candidate, prompts: Sequence[Prompt], before: int, change: int, tokenizer: Tokenizer
) -> tuple[int, Parting]:
    segment, begin, _ = candidate.places[change]
    prompt = prompts[change]
    index = tokenizer.before(prompt, segment, begin)
    quotes = tuple(
        quote_of(prompts[number], candidate.places[number], candidate.values[number])
        for number in (before, change)
    )
    return index, Parting(prompt.segments[segment].name, index, quotes)
