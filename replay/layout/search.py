"""The whole search: prompts in, findings with their proof out."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from replay.layout.atoms import Numbering, atoms_of
from replay.layout.candidates import Candidate, Places
from replay.layout.edits import Fix, tools_sorted
from replay.layout.findings import Finding, Proof, Quote, Report, TemplateReport
from replay.layout.frequency import Owner
from replay.layout.prompt import Prompt
from replay.layout.proof import Replay, Replayed
from replay.layout.templates import templates_of, with_sessions
from replay.layout.token_join import Joins, joins_of
from replay.layout.tokens import Encode, Tokenizer

# A place is worth a finding from so many blocks a change on, and from this share of the tokens.
_LEAST_BLOCKS = 2
_LEAST_RATIO = 0.001
_MOST_CANDIDATES = 24
_QUOTED_CHARACTERS = 60


@dataclass(frozen=True)
class Searched:
    """What was found, the requests that were compared in the order of time, the numbers of those
    of each template, their replay, and what mends all that comes always."""

    report: Report
    prompts: Sequence[Prompt]
    templates: Mapping[str, Sequence[int]]
    replays: Replay
    fixes: Sequence[Fix]


def search(
    prompts: Sequence[Prompt],
    block_tokens: int = 16,
    capacity_blocks: int | None = None,
    compared_requests: int = 500,
    encode: Encode | None = None,
) -> Report:
    """Find what breaks reuse in a log. At most so many requests are compared, those of whole
    sessions, spread over the log; without prompts the report is empty. `encode`: the model's
    tokenizer, where there is one."""
    return searched(prompts, block_tokens, capacity_blocks, compared_requests, encode).report


def searched(
    prompts: Sequence[Prompt],
    block_tokens: int = 16,
    capacity_blocks: int | None = None,
    compared_requests: int = 500,
    encode: Encode | None = None,
) -> Searched:
    """The same, and what mends it."""
    every = in_time(prompts)
    numbering = Numbering()
    atoms = [atoms_of(prompt.segments, numbering) for prompt in every]
    every = with_sessions(every, atoms)
    kept = _sampled(every, compared_requests)
    every, atoms = [every[n] for n in kept], [atoms[n] for n in kept]
    tokenizer = Tokenizer(encode)
    replays = Replay(every, tokenizer, block_tokens, capacity_blocks)
    joins = joins_of(every)
    reports, fixes = [], []
    templates = templates_of(every, atoms)
    for name, numbers in templates.items():
        searcher = _Template(name, numbers, every, replays, tokenizer, numbering, block_tokens)
        own, mended = searcher.report()
        fixes += mended
        reports.append(own)
    known = bool(every) and all(prompt.token_ids is not None for prompt in every)
    ids = Replay(every, tokenizer, block_tokens, capacity_blocks, known=True) if known else None
    if ids is not None and joins.places:
        reports = [_with_joins(report, joins, every, ids, block_tokens) for report in reports]
    together = _proof(replays.run(), replays.run(fixes), range(len(every)))
    if ids is not None and not fixes:
        together = _proof(ids.run(), ids.run((), joins.mended), range(len(every)))
    reports.sort(key=lambda report: -report.prompt_tokens)
    report = Report(
        tuple(reports), len(prompts), len(every), block_tokens, capacity_blocks,
        "ids" if known and not fixes else "approximate" if encode is None else "tokenizer",
        scale_of(every, tokenizer), all(p.at is not None for p in every), joins.unknown, together,
    )  # fmt: skip
    return Searched(report, every, templates, replays, fixes)


def in_time(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts in the order of their times, where all have one; else as they come."""
    if all(prompt.at is not None for prompt in prompts):
        return sorted(prompts, key=lambda prompt: prompt.at or 0.0)
    return list(prompts)


def scale_of(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> float | None:
    """Reported ÷ approximate prompt tokens, over the requests that report any."""
    told = [prompt for prompt in prompts if prompt.reported_tokens]
    approximate = sum(len(tokenizer.prompt(prompt)) for prompt in told)
    return sum(p.reported_tokens or 0 for p in told) / approximate if approximate else None


def _sampled(prompts: Sequence[Prompt], most: int) -> list[int]:
    """Numbers of whole sessions, evenly chosen, until there are enough."""
    if len(prompts) <= most:
        return list(range(len(prompts)))
    sessions: dict[Hashable, list[int]] = {}
    for number, prompt in enumerate(prompts):
        sessions.setdefault(prompt.session or number, []).append(number)
    every = list(sessions.values())
    step = len(prompts) / most
    chosen: list[int] = []
    for place in range(int(len(every) / step) + 1):
        if len(chosen) < most and int(place * step) < len(every):
            chosen += every[int(place * step)]
    return sorted(chosen[:most] if len(chosen) > 2 * most else chosen)


class _Template:
    """Searches the prompts of one template."""

    def __init__(
        self,
        name: str,
        numbers: Sequence[int],
        prompts: Sequence[Prompt],
        replays: Replay,
        tokenizer: Tokenizer,
        numbering: Numbering,
        block_tokens: int,
    ) -> None:
        self._name = name
        self._numbers = numbers
        self._prompts = prompts
        self._replays = replays
        self._tokenizer = tokenizer
        self._numbering = numbering
        self._block_tokens = block_tokens

    def report(self) -> tuple[TemplateReport, list[Fix]]:
        """The findings, and what mends all of them that can be mended."""
        plain = self._replays.run()
        whole = sum(plain.prompt_tokens[n] for n in self._numbers)
        candidates, gains = self._worth_it(whole)
        fixes = [candidate.fix for candidate in candidates]
        lasting = [each.fix for each in candidates if each.frequency != "once"]
        together = _proof(plain, self._replays.run(lasting), self._numbers)
        findings = [
            self._finding(candidate, gain, plain, fixes)
            for candidate, gain in zip(candidates, gains, strict=True)
        ]
        findings.sort(key=lambda each: (each.frequency == "once", -each.won_tokens))
        report = TemplateReport(self._name, len(self._numbers), whole, tuple(findings), together)
        return report, lasting

    def _worth_it(self, prompt_tokens: int) -> tuple[list[Candidate], list[int]]:
        """The candidates that are worth mending where all others are, and what each then wins.

        First those of the whole template: what stands inside them is no place of its own.
        """
        owners = [Owner(each.session, each.user, each.at) for each in self._prompts]
        own = {number: self._prompts[number] for number in self._numbers}
        places = Places(own, owners, self._numbering)
        known, gains = self._sieved(places.of_template(), prompt_tokens)
        inside = places.of_sessions(known)
        return self._sieved([*known, *inside], prompt_tokens) if inside else (known, gains)

    def _sieved(
        self, candidates: Sequence[Candidate], prompt_tokens: int
    ) -> tuple[list[Candidate], list[int]]:
        left = sorted(candidates, key=lambda each: -each.distinct)[:_MOST_CANDIDATES]
        while True:
            gains = self._gains(left)
            least = [
                max(_LEAST_BLOCKS * self._block_tokens * (each.distinct - 1),
                    _LEAST_RATIO * prompt_tokens)
                for each in left
            ]  # fmt: skip
            missing = [gain - least[n] for n, gain in enumerate(gains)]
            failing = sorted(n for n in range(len(gains)) if missing[n] < 0)
            if not failing:
                return left, gains
            # Mending the wrong place harms others: the worst go first, and the rest is asked again.
            worst = sorted(failing, key=lambda n: missing[n])[: -(-len(failing) // 3)]
            left = [each for n, each in enumerate(left) if n not in worst]

    def _gains(self, candidates: Sequence[Candidate]) -> list[int]:
        fixes = [candidate.fix for candidate in candidates]
        best = self._cached(fixes)
        return [best - self._cached(fixes[:n] + fixes[n + 1 :]) for n in range(len(fixes))]

    def _cached(self, fixes: Sequence[Fix]) -> int:
        cached = self._replays.run(fixes).cached_tokens
        return sum(cached[number] for number in self._numbers)

    def _finding(
        self, candidate: Candidate, gain: int, plain: Replayed, fixes: Sequence[Fix]
    ) -> Finding:
        first, second = self._neighbours(candidate)
        segment, begin, _ = candidate.places[second]
        prompt = self._prompts[second]
        own = prompt.segments[segment]
        alone = self._replays.run([candidate.fix])
        finding = Finding(
            candidate.kind, candidate.frequency, self._named(candidate, own.name),
            self._tokenizer.before(prompt, segment, begin), second, begin,
            self._parted_ratio(candidate), gain, _proof(plain, alone, self._numbers),
            self._quotes(candidate, first, second), candidate.more_places,
        )  # fmt: skip
        if candidate.frequency != "once":
            return finding
        return self._with_loss(finding, candidate, fixes)

    def _named(self, candidate: Candidate, segment: str) -> str:
        if candidate.fix.sorting is tools_sorted:
            return segment.partition(".")[0]
        return segment

    def _with_loss(self, finding: Finding, candidate: Candidate, fixes: Sequence[Fix]) -> Finding:
        """What a change that comes once cost, with everything else mended."""
        rest = [fix for fix in fixes if fix is not candidate.fix]
        never, as_it_was = self._replays.run(fixes), self._replays.run(rest)
        lost = {
            number: never.cached_tokens[number] - as_it_was.cached_tokens[number]
            for number in self._numbers
        }
        # Beyond the first request of the new version only what was lost late counts.
        late = [n for n in self._numbers if lost[n] > 0 and n >= (candidate.change or 0)]
        warm = next((n for n in self._numbers if late and n > late[-1]), None)
        at = None if warm is None else self._prompts[warm].at
        return replace(finding, lost_tokens=sum(lost.values()), warm_at=at)

    def _neighbours(self, candidate: Candidate) -> tuple[int, int]:
        """Two requests that part here, one right after the other if any do; places in answers are
        no places in prompts."""
        numbers = [
            n for n in sorted(candidate.values)
            if candidate.places[n][0] < len(self._prompts[n].segments)
        ]  # fmt: skip
        if candidate.change is not None and candidate.change in numbers[1:]:
            return numbers[numbers.index(candidate.change) - 1], candidate.change
        session = [self._prompts[n].session for n in numbers]
        pairs = [
            (first, second)
            for place, (first, second) in enumerate(itertools.pairwise(numbers))
            if candidate.values[first] != candidate.values[second]
            and (candidate.frequency != "request" or session[place] == session[place + 1])
        ]
        if pairs:
            return pairs[0]
        others = (n for n in numbers if candidate.values[n] != candidate.values[numbers[0]])
        return numbers[0], next(others, numbers[-1])

    def _parted_ratio(self, candidate: Candidate) -> float:
        numbers = sorted(candidate.values)
        pairs = itertools.pairwise(numbers)
        parted = sum(candidate.values[a] != candidate.values[b] for a, b in pairs)
        return parted / max(len(self._numbers) - 1, 1)

    def _quotes(self, candidate: Candidate, first: int, second: int) -> tuple[Quote, ...]:
        return tuple(
            quote_of(self._prompts[number], candidate.places[number], candidate.values[number])
            for number in (first, second)
        )


def quote_of(prompt: Prompt, place: tuple[int, int, int], value: Hashable) -> Quote:
    """The text of a place with a little around it."""
    segment, begin, end = place
    text = prompt.segments[segment].text
    if isinstance(value, tuple):
        return Quote("", ", ".join(map(str, value)), "", prompt.source)
    before = text[max(begin - _QUOTED_CHARACTERS, 0) : begin]
    behind = text[end : end + _QUOTED_CHARACTERS]
    return Quote(before, text[begin:end], behind, prompt.source)


def _proof(before: Replayed, after: Replayed, numbers: Sequence[int]) -> Proof:
    return Proof(
        sum(before.prompt_tokens[n] for n in numbers),
        sum(before.cached_tokens[n] for n in numbers),
        sum(after.prompt_tokens[n] for n in numbers),
        sum(after.cached_tokens[n] for n in numbers),
    )


def _with_joins(
    report: TemplateReport, joins: Joins, prompts: Sequence[Prompt], ids: Replay, block_tokens: int
) -> TemplateReport:
    """The report with the finding that tokens are joined otherwise, if its template has any."""
    own = [number for number, prompt in enumerate(prompts) if number in joins.places]
    if not own:
        return report
    mended: Mapping[int, tuple[Sequence[int], Sequence[int]]] = joins.mended
    proof = _proof(ids.run(), ids.run((), mended), range(len(prompts)))
    if proof.won_tokens < _LEAST_BLOCKS * block_tokens:
        return report
    number = own[0]
    token_index, offset = joins.places[number]
    segment, offset = _at_character(prompts[number], offset)
    finding = Finding(
        "tokenizer_join", "request", prompts[number].segments[segment].name, token_index, number,
        offset, len(own) / max(report.requests - 1, 1), proof.won_tokens, proof,
    )  # fmt: skip
    return replace(report, findings=(*report.findings, finding))


def _at_character(prompt: Prompt, offset: int) -> tuple[int, int]:
    """Segment and place in it of a character of the rendered prompt."""
    for number, segment in enumerate(prompt.segments):
        length = len(segment.lead) + len(segment.text)
        if offset < length:
            return number, max(offset - len(segment.lead), 0)
        offset -= length
    return len(prompt.segments) - 1, len(prompt.segments[-1].text)
