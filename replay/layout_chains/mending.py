"""Prompts of one template as if what was found in them had been mended: with as many blocks as
before, what changes moved behind what stays the same, sets in one order, history as it was.

By the same steps as `gain` tells what that wins, so that a replay of these prompts in a cache that
never loses a block finds that much more. Findings are of a sample of the requests; in all others
the place is where they begin like one of the sample and go on like one behind it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from replay.contents import prefix_names
from replay.known_blocks import Blocks, numbered
from replay.layout_chains.findings import Found
from replay.layout_chains.gain import common_run, fixed_at, hidden_turns
from replay.layout_chains.known_place import KnownPlace, spans_of
from replay.layout_chains.places import Place
from replay.layout_chains.prompts import NOT_GIVEN, Prompts
from replay.layout_chains.turns import Turns, pairs_of, turns_of
from replay.traffic import Numbers, Small, starts_of

# So many earlier requests are looked through for one that this one goes on.
_LOOKED_BACK = 8
# Requests that tell how long what lies behind a place is the same.
_COMPARED_ROWS = 100


@dataclass(frozen=True)
class MendedTemplate:
    """`contents`: for each request a number for every block. `next_turns`: where turns were mended,
    the request that goes on each, so that its answer comes back too; -1 where none does."""

    contents: list[Small]
    next_turns: Numbers


@dataclass(frozen=True)
class _Moved:
    """What was taken out of requests, by request: what stood there, and from where on. `to_end`: it
    goes to the end of the prompt; else behind what all have in common."""

    values: Mapping[int, Small]
    begins: Mapping[int, int]
    to_end: bool


def recurring(found: Iterable[Found]) -> list[Found]:
    """What there is to be mended: it comes always and something is to be won."""
    return [each for each in found if each.finding.frequency != "once" and each.finding.gain_tokens]


def mended_template(
    prompts: Prompts, sample: Numbers, found: Sequence[Found], first_free: int
) -> MendedTemplate:
    """Requests of one template mended. `found`: of those of `sample`, places in ascending order;
    `first_free`: the first number that stands for no block anywhere."""
    whole = _Mending(prompts, sample, first_free, any(each.by_pieces for each in found))
    places = [each for each in found if isinstance(each.where, Place)]
    for each in places:
        whole.mend_place(each)
    kinds = {each.where.kind for each in found if isinstance(each.where, Turns)}
    next_turns = np.full(len(prompts), -1, np.int64)
    if kinds and not whole.by_pieces:
        whole.mend_turns([way for way in turns_of(prompts) if way.kind in kinds])
        pairs = pairs_of(prompts)
        next_turns[pairs.before[::-1]] = pairs.row[::-1]
    return MendedTemplate(whole.blocks(), next_turns)


@dataclass
class _Mending:
    """All requests of a template while they are mended place by place. `contents`: what is left of
    each, in blocks or pieces, with `lengths` in tokens."""

    prompts: Prompts
    sample: Numbers
    first_free: int
    by_pieces: bool
    contents: list[Small] = field(default_factory=list)
    lengths: list[Numbers] = field(default_factory=list)
    _moved: list[_Moved] = field(default_factory=list)
    # Of each request, what was taken out so far: where it began once, and how much; and where its
    # first place begins.
    _taken: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _first: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cut = self.prompts.finest() if self.by_pieces else self.prompts
        self.contents = list(self._cut.contents)
        self.lengths = [self._cut.lengths(row) for row in range(len(self._cut))]

    def mend_place(self, found: Found) -> None:
        """Put right what is a place of prompts."""
        assert isinstance(found.where, Place)
        always = found.finding.frequency == "request"
        place = self._everywhere(self._here(found.where), not always)
        if not place.crossed:
            self._take_out(place, always)
        now = replace(self._cut, contents=self.contents)
        self.contents, self.lengths = fixed_at(now, place, self.lengths, self.first_free)
        self.first_free = 1 + max(
            self.first_free, *(int(own.max(initial=0)) for own in self.contents)
        )
        for row, begin, _ in spans_of(place):
            self._first.setdefault(row, begin)
        if not self.by_pieces:
            grain = now.grain_tokens
            hidden = hidden_turns(now, place, self.lengths)
            self._go_on({row: (before, had // grain) for row, (before, had) in hidden.items()})

    def _here(self, place: Place) -> Place:
        """The place of requests of the sample in what is left of them."""
        rows = self.sample[place.rows]
        begins, ends = (
            [self._left_of(row, at) for row, at in zip(rows.tolist(), column.tolist(), strict=True)]
            for column in (place.begins, place.ends)
        )
        return replace(place, rows=rows, begins=np.array(begins), ends=np.array(ends))

    def _left_of(self, row: int, at: int) -> int:
        """Where a block stands in what is left of a request."""
        taken = self._taken.get(row, ())
        return at - sum(min(count, max(at - begin, 0)) for begin, count in taken)

    def _everywhere(self, place: Place, is_kept: bool) -> Place:
        """The place as it is in all requests: also in those that are not in the sample. `is_kept`:
        what stands there comes again, and ends where it did in another request."""
        known = KnownPlace.of(place, self.contents)
        ends = place.ends
        if is_kept:
            again = [known.end_in(self.contents[row], begin) for row, begin, _ in spans_of(place)]
            ends = np.array([new or old for new, old in zip(again, ends.tolist(), strict=True)])
        others = np.setdiff1d(np.arange(len(self.prompts)), place.rows).tolist()
        found = [(row, *span) for row in others if (span := known.span_in(self.contents[row]))]
        rows, begins, other_ends = np.array(found, np.int64).reshape(len(found), 3).T
        return replace(
            place,
            rows=np.concatenate([place.rows, rows]),
            begins=np.concatenate([place.begins, begins]),
            ends=np.concatenate([ends, other_ends]),
        )

    def _take_out(self, place: Place, to_end: bool) -> None:
        values, begins = {}, {}
        for row, begin, end in spans_of(place):
            values[row], begins[row] = self.contents[row][begin:end], begin
            taken = self._taken.setdefault(row, [])
            once = begin
            for other, count in sorted(taken):
                once += count if other <= once else 0
            taken.append((once, end - begin))
        self._moved.append(_Moved(values, begins, to_end))

    def mend_turns(self, ways: Sequence[Turns]) -> None:
        """Later turns go on where the prompt before them ended."""
        following = {}
        for way in ways:
            for row, before in zip(way.rows.tolist(), way.before.tolist(), strict=True):
                following[row] = before, min(self._end_of(before), self._end_of(row))
        self._go_on(following)

    def _end_of(self, row: int) -> int:
        """Whole blocks that are left of a request, or pieces that are in no doubt."""
        own = self.contents[row]
        if self.by_pieces:
            return max(len(own) - 1, 0)
        whole = int(self.prompts.prompt_tokens[row]) // self.prompts.grain_tokens
        return len(own) - max(len(self.prompts.contents[row]) - whole, 0)

    def _go_on(self, following: Mapping[int, tuple[int, int]]) -> None:
        """Give requests so many first blocks of the one before, and those that went on like such a
        one what it has now."""
        if not following:
            return
        were, changed = list(self.contents), dict[int, list[int]]()
        for row, session in enumerate(self.prompts.session.tolist()):
            earlier = changed.setdefault(session, []) if session != NOT_GIVEN else []
            before, blocks = following.get(row) or _goes_on(were, row, earlier)
            now = np.concatenate([self.contents[before][:blocks], were[row][blocks:]])
            if not np.array_equal(now, were[row]):
                self.contents[row] = now
                earlier.append(row)

    def blocks(self) -> list[Small]:
        """Every request with what was taken out at its new place, in blocks."""
        inserted: dict[int, list[tuple[int, Small]]] = {}
        for moved in self._moved:
            for row, at in self._places(moved).items():
                inserted.setdefault(row, []).append((at, moved.values[row]))
        mended = [
            _with(own, sorted(inserted.get(row, ()), key=lambda each: each[0]))
            for row, own in enumerate(self.contents)
        ]
        return self._of_pieces(mended) if self.by_pieces else mended

    def _places(self, moved: _Moved) -> dict[int, int]:
        """Where it goes: where the same went in an earlier prompt that this one begins like, so
        that turns stay alike; else to the end, or behind what is the same in all."""
        behind = {} if moved.to_end else self._same_behind(moved.begins)
        places: dict[int, int] = {}
        known: dict[bytes, list[int]] = {}
        for row in sorted(moved.values):
            own, end = self.contents[row], self._end_of(row)
            earlier = known.setdefault(moved.values[row].tobytes(), [])
            for other in reversed(earlier[-_LOOKED_BACK:]):
                at = places[other]
                if at <= end and np.array_equal(own[:at], self.contents[other][:at]):
                    places[row] = at
                    break
            else:
                places[row] = min(behind.get(row, end), end)
            earlier.append(row)
        return places

    def _same_behind(self, begins: Mapping[int, int]) -> dict[int, int]:
        """How far these requests are the same behind a place, as those that go on like them."""
        ways: dict[int, list[int]] = {}
        for row, begin in begins.items():
            own = self.contents[row]
            ways.setdefault(int(own[begin]) if begin < len(own) else -1, []).append(row)
        found = {}
        for rows in ways.values():
            tails = [self.contents[row][begins[row] :] for row in rows[:_COMPARED_ROWS]]
            run = common_run(tails)
            found.update({row: begins[row] + run for row in rows})
        return found

    def _of_pieces(self, mended: Sequence[Small]) -> list[Small]:
        """Prompts that were mended by pieces in blocks: one is known by the piece in which it ends
        and all before it, and as before where nothing was mended yet."""
        lengths = self._lengths_of(mended)
        names = _numbered_prefixes(mended)
        grain, found = self.prompts.grain_tokens, list(self.prompts.contents)
        for row, first in self._first.items():
            begin = int(lengths[row][:first].sum()) // grain
            last_tokens = np.arange(begin, len(found[row])) * grain + grain
            ends = np.cumsum(lengths[row])
            pieces = np.searchsorted(ends, np.minimum(last_tokens, ends[-1]))
            own = self.first_free + names[row][pieces]
            found[row] = np.concatenate([found[row][:begin], own.astype(found[row].dtype)])
        return found

    def _lengths_of(self, mended: Sequence[Small]) -> list[Numbers]:
        """Tokens of each piece of mended prompts: the same piece is always as long."""
        known: dict[int, int] = {}
        for row, own in enumerate(self._cut.contents):
            known.update(zip(own.tolist(), self._cut.lengths(row).tolist(), strict=True))
        for own, tokens in zip(self.contents, self.lengths, strict=True):
            known.update(zip(own.tolist(), tokens.tolist(), strict=True))
        return [np.array([known[piece] for piece in own.tolist()], np.int64) for own in mended]


def _goes_on(contents: Sequence[Small], row: int, earlier: Sequence[int]) -> tuple[int, int]:
    """The earlier request that this one has most in common with, and how many blocks; itself and
    none where there is none."""
    best = row, 0
    for other in earlier[-_LOOKED_BACK:]:
        length = min(len(contents[row]), len(contents[other]))
        differs = contents[row][:length] != contents[other][:length]
        common = int(differs.argmax()) if differs.any() else length
        best = (other, common) if common >= max(best[1], 1) else best
    return best


def _with(own: Small, inserted: Sequence[tuple[int, Small]]) -> Small:
    """A list with others put in at places in ascending order."""
    parts, done = [], 0
    for at, value in inserted:
        parts += [own[done:at], value]
        done = at
    return np.concatenate([*parts, own[done:]]).astype(own.dtype)


def _numbered_prefixes(contents: Sequence[Small]) -> list[Small]:
    """A number for each and all before it."""
    starts = starts_of([len(own) for own in contents])
    blocks = Blocks.of(np.concatenate(contents).astype(np.uint64), starts)
    numbers = numbered(prefix_names(blocks.block.astype(np.uint64), blocks))[0]
    return np.split(numbers, starts[1:-1])
