"""Layout findings of one template, from hashes of its prompts: where, how often, what it costs.

What stands at a place cannot be read from hashes, so a finding says what can be told, and `lint`
shows the text. A cause's size is not what a fix would win; only replay says that: the gain of a
finding is what the same requests would reuse with the blocks of the place left out, in a cache that
never loses a block, less what they would reuse as they are. It is an upper bound.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from replay.layout_chains.gain import gain_tokens, shared_blocks
from replay.layout_chains.places import Place, places_of
from replay.layout_chains.prompts import Prompts
from replay.layout_chains.sequence import Change, change_of
from replay.layout_chains.turns import Turns, turns_of
from replay.layout_chains.verdicts import Verdict, verdict_of
from replay.rules import CacheRule
from replay.traffic import Numbers

# Of all prompt tokens: less is no finding where it is lost with every request, or now and then.
_MIN_GAIN_RATIO, _MIN_RARE_GAIN_RATIO = 0.01, 0.001
# Each time the value changes, so much must have been lost.
_MIN_EACH_TOKENS, _MIN_EACH_RATIO = 64, 0.02


@dataclass(frozen=True, kw_only=True)
class LayoutFinding:
    """One finding; of `requests` of the template. Its `kind` is that of a place (words shared with
    `lint`), which comes with a `frequency`, or that of a verdict, which has none.

    `from_token`, `until_token`: the whole blocks within which prompts part, the second being the
    first behind them; of the request in the middle where they differ. `rejoins`: what lies
    behind is the same again. `lost_tokens`: of these requests, tokens behind the place that
    came before and were not reusable; of a change that came once, what must be computed anew
    by all replicas together. `gain_tokens`: upper bound by replay. `since`, `warm_again_by`:
    seconds on the clock of the requests, of a change that came once. `changes`: how often the
    value, or the key, became another one.
    """

    kind: str
    frequency: str
    from_token: int
    until_token: int
    requests: int
    template_requests: int
    lost_tokens: int
    gain_tokens: int
    rejoins: bool = True
    since: float | None = None
    warm_again_by: float | None = None
    changes: int = 0
    in_turns: bool = False

    def scaled(self, scale: Callable[[int], int]) -> "LayoutFinding":
        """The same with its counts of tokens brought to another unit."""
        return replace(
            self,
            from_token=scale(self.from_token),
            until_token=scale(self.until_token),
            lost_tokens=scale(self.lost_tokens),
            gain_tokens=scale(self.gain_tokens),
        )


def layout_findings(
    prompts: Prompts, rule: CacheRule, is_hosted: bool = False
) -> list[LayoutFinding]:
    """Findings of the prompts of one template, what a fix would win most first.

    `rule`: of the cache that serves them, `is_hosted`: its memory is its provider's. Of one prompt,
    or of none, nothing is found.
    """
    if len(prompts) < 2:
        return []
    found = [each.finding for each in found_in(prompts)]
    verdict = verdict_of(prompts, rule, is_hosted)
    if verdict is not None:
        found.append(_of_verdict(prompts, verdict))
    return sorted(found, key=lambda each: (-each.gain_tokens, each.from_token))


@dataclass(frozen=True)
class Found:
    """A finding and the place in prompts, or the turns, that it is of. `by_pieces`: the place
    counts in pieces."""

    finding: LayoutFinding
    where: Place | Turns
    by_pieces: bool


def found_in(prompts: Prompts) -> list[Found]:
    """What prompts hold that keeps them from being reused, in the order in which it is met."""
    if len(prompts) < 2:
        return []
    found = _in_prompts(prompts, prompts)
    # What shifts by less than a block hides from blocks, pieces show.
    if not found and prompts.pieces is not None:
        found = _in_prompts(prompts.finest(), prompts)
    return found


def _in_prompts(cut: Prompts, prompts: Prompts) -> list[Found]:
    """Findings of prompts by their blocks, or `cut` into pieces."""
    places, by_pieces = places_of(cut), cut.ends is not None
    found = [Found(_of_place(cut, place), place, by_pieces) for place in places]
    found += [
        Found(_of_turns(prompts, turns), turns, by_pieces=False)
        for turns in _apart(turns_of(prompts), places, cut)
    ]
    return [each for each in found if _is_worth(each.finding, prompts)]


def _is_worth(found: LayoutFinding, prompts: Prompts) -> bool:
    """What changes with every request and wins next to nothing is none."""
    if found.frequency == "once":
        return found.rejoins or found.lost_tokens >= _MIN_EACH_TOKENS
    always = found.frequency == "request" and not found.in_turns
    each = max(_MIN_EACH_TOKENS, _MIN_EACH_RATIO * float(np.median(prompts.prompt_tokens)))
    if not found.in_turns and found.gain_tokens < each * found.changes:
        return False
    least = _MIN_GAIN_RATIO if always else _MIN_RARE_GAIN_RATIO
    return found.gain_tokens >= least * int(prompts.prompt_tokens.sum())


def _of_place(prompts: Prompts, place: Place) -> LayoutFinding:
    length = int(np.median(place.ends - place.begins))
    change = (
        change_of(prompts, place.rows, place.values, place.classes, length)
        if place.agrees
        else Change("once", _since(prompts, place))
    )
    kind = "tool_order" if place.crossed else "unknown"
    if change.frequency == "once":
        kind = kind if place.crossed else "template_version"
        return _once(prompts, place, kind, change)
    gain = gain_tokens(prompts, place)
    labels = {"user": prompts.tenant, "session": prompts.session}.get(change.frequency)
    values = place.values if labels is None else labels[place.rows]
    return LayoutFinding(
        kind=kind,
        frequency=change.frequency,
        from_token=_tokens_at(prompts, place.rows, place.begins),
        until_token=_tokens_at(prompts, place.rows, np.maximum(place.ends, place.begins + 1)),
        requests=len(place.rows),
        template_requests=len(prompts),
        lost_tokens=gain,
        gain_tokens=gain,
        since=change.since,
        changes=len(np.unique(values)) - 1,
    )


def _tokens_at(prompts: Prompts, rows: Numbers, places: Numbers) -> int:
    """The token at which a place stands, in the request in the middle where they differ."""
    tokens = [
        prompts.token_at(row, min(place, len(prompts.contents[row])))
        for row, place in zip(rows.tolist(), places.tolist(), strict=True)
    ]
    return int(np.median(tokens))


def _since(prompts: Prompts, place: Place) -> float:
    """When the newest way was first taken."""
    started = prompts.started[place.rows]
    newest = place.values[started.argmax()]
    return float(started[place.values == newest].min())


def _once(prompts: Prompts, place: Place, kind: str, change: Change) -> LayoutFinding:
    """A change of the template itself: what all replicas must compute anew, and by when each that
    had served the template before had done so."""
    newest = place.values == place.values[prompts.started[place.rows].argmax()]
    rows, begins = place.rows[newest], place.begins[newest]
    shared = shared_blocks(prompts, rows, begins)
    replicas = np.unique(prompts.replica[rows])
    served_before = np.unique(prompts.replica[place.rows[~newest]])
    firsts = [rows[prompts.replica[rows] == one].min() for one in replicas if one in served_before]
    warm = float(max(prompts.ready[row] for row in firsts)) if firsts else None
    begin = _tokens_at(prompts, rows, begins)
    tokens = _tokens_at(prompts, rows, begins + shared) - begin
    return LayoutFinding(
        kind=kind,
        frequency="once",
        from_token=begin,
        until_token=begin + max(tokens, prompts.grain_tokens),
        requests=len(rows),
        template_requests=len(prompts),
        lost_tokens=tokens * len(replicas),
        gain_tokens=0,
        rejoins=place.agrees,
        since=change.since,
        warm_again_by=warm,
    )


def _apart(found: list[Turns], places: list[Place], prompts: Prompts) -> list[Turns]:
    """Turns that part for another reason than a place already found."""
    return [turns for turns in found if not _within_places(turns, places, prompts)]


def _within_places(turns: Turns, places: list[Place], prompts: Prompts) -> bool:
    begins = dict(zip(turns.rows.tolist(), turns.begins_tokens.tolist(), strict=True))
    inside: set[int] = set()
    for place in places:
        for row, begin, end in zip(
            place.rows.tolist(), place.begins.tolist(), place.ends.tolist(), strict=True
        ):
            at = begins.get(row, -1)
            first = prompts.token_at(row, begin) - prompts.grain_tokens
            if first <= at <= prompts.token_at(row, end):
                inside.add(row)
    return len(inside) > len(begins) // 2


def _of_turns(prompts: Prompts, turns: Turns) -> LayoutFinding:
    lost = turns.lost_tokens
    middle = int(np.median(turns.begins_tokens))
    nearest = int(np.abs(turns.begins_tokens - middle).argmin())
    return LayoutFinding(
        kind=turns.kind,
        frequency="request",
        from_token=int(turns.begins_tokens[nearest]),
        until_token=int(turns.ends_tokens[nearest]),
        requests=len(turns.rows),
        template_requests=len(prompts),
        lost_tokens=lost,
        gain_tokens=lost,
        rejoins=False,
        in_turns=True,
    )


def _of_verdict(prompts: Prompts, verdict: Verdict) -> LayoutFinding:
    return LayoutFinding(
        kind=verdict.kind,
        frequency="",
        from_token=0,
        until_token=verdict.shared_tokens,
        requests=len(verdict.rows),
        template_requests=len(prompts),
        lost_tokens=verdict.lost_tokens,
        gain_tokens=0,
        rejoins=False,
        changes=verdict.changes,
    )
