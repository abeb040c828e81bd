"""What a capacity curve found: for people, or for programs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console

from prefixscope.consoles import terminal
from prefixscope.tables import Column, formatter, print_rows
from replay.counted import counted

if TYPE_CHECKING:
    from replay.curve import Curve

_GIB = 1 << 30
# What counts as nearly as good as an unlimited cache.
_NEARLY_ALL = 0.95
# From so many points on their fractions say nothing.
_WHOLE_POINTS = 10
_MOST_GROUPS, _MOST_CAPACITIES = 20, 6

Row = dict[str, int | float | str | None]


@dataclass(frozen=True)
class CurveGroup:
    """What has a cache of its own, and its curve."""

    name: str
    requests: int
    curve: "Curve"


@dataclass(frozen=True, kw_only=True)
class CurveShown:
    """A curve and what its figures are of. `caches`: how many there are side by side, each of the
    capacity told; `by`: what each of them is of, where `groups` has their curves. `token_bytes`
    None: nobody knows what KV weighs."""

    curve: "Curve"
    requests: int
    block_tokens: int
    rule: str
    caches: int
    token_bytes: int | None = None
    by: str | None = None
    groups: list[CurveGroup] = field(default_factory=list)

    def rows(self, sizes: Sequence[int]) -> list[Row]:
        """One for each capacity, smallest first, over all caches. `gained_tokens_per_gib`: from the
        capacity before on."""
        return self._rows(self.curve, sizes, self.caches)

    def _rows(self, curve: "Curve", sizes: Sequence[int], caches: int) -> list[Row]:
        rows: list[Row] = []
        before = 0
        for size in sorted(set(sizes)):
            row: Row = {
                "capacity_blocks": size,
                "capacity_tokens": size * self.block_tokens,
                "token_hit_ratio": curve.ratio_at(size),
                "of_unlimited_ratio": _of_unlimited(curve, size),
            }
            if (gib := self.gib(size)) is not None:
                gained = curve.tokens_at(size) - curve.tokens_at(before)
                row["capacity_gib"] = gib
                row["gained_tokens_per_gib"] = gained / ((gib - (self.gib(before) or 0)) * caches)
            before = size
            rows.append(row)
        return rows

    def all_rows(self, sizes: Sequence[int]) -> list[Row]:
        """Those of the sum, and behind them those of each group by its name."""
        if self.by is None:
            return self.rows(sizes)
        rows: list[Row] = [{self.by: "(sum)", **row} for row in self.rows(sizes)]
        for group in self.groups:
            rows += [{self.by: group.name, **row} for row in self._rows(group.curve, sizes, 1)]
        return rows

    def gib(self, blocks: int) -> float | None:
        """Of KV in so many blocks; None where nobody knows."""
        if self.token_bytes is None:
            return None
        return blocks * self.block_tokens * self.token_bytes / _GIB

    def worth(self) -> dict[str, int | float | None] | None:
        """Where memory begins to win less than on average, and what it wins to there and beyond;
        None where nothing is won."""
        knee, enough = self.curve.knee_blocks(), self.curve.enough_blocks
        to_there, all_of_it = self.curve.ratio_at(knee), self.curve.ratio_at(enough)
        if not knee or to_there is None or all_of_it is None:
            return None
        return {
            "capacity_blocks": knee,
            "capacity_gib": self.gib(knee),
            "won_ratio": to_there,
            "beyond_ratio": all_of_it - to_there,
        }

    def as_json(self, sizes: Sequence[int]) -> dict[str, object]:
        """`unlimited` is the ratio no capacity exceeds, `enough_blocks` where it is reached."""
        told: dict[str, object] = {
            "rule": self.rule,
            "block_tokens": self.block_tokens,
            "caches": self.caches,
            "requests": self.requests,
            **_bounds(self.curve),
            "worth": self.worth(),
            "curve": self.rows(sizes),
        }
        if self.by is None:
            told["replicas"] = self.caches
        else:
            told["by"] = self.by
            told["groups"] = [
                {"name": group.name, "requests": group.requests, **_bounds(group.curve),
                 "curve": self._rows(group.curve, sizes, 1)}
                for group in self.groups
            ]  # fmt: skip
        return told


def _bounds(curve: "Curve") -> dict[str, object]:
    return {
        "prompt_tokens": curve.prompt_tokens,
        "unlimited": curve.ratio_at(curve.enough_blocks),
        "enough_blocks": curve.enough_blocks,
    }


def _of_unlimited(curve: "Curve", blocks: int) -> float | None:
    best = curve.tokens_at(curve.enough_blocks)
    return curve.tokens_at(blocks) / best if best else None


_SIZE = ("capacity_blocks", formatter("capacity_blocks"))
_COLUMNS: tuple[Column, ...] = tuple(
    (heading, name, formatter(name))
    for heading, name in (
        ("tokens", "capacity_tokens"),
        ("GiB", "capacity_gib"),
        ("token hit ratio", "token_hit_ratio"),
        ("of an unlimited cache's", "of_unlimited_ratio"),
        ("tokens won per GiB more", "gained_tokens_per_gib"),
    )
)


def print_curve(shown: CurveShown, sizes: Sequence[int]) -> None:
    """A line a capacity, those of each group, and which memory is worth it in a sentence."""
    console = terminal()
    rows = shown.rows(sizes)
    size: Column = (f"capacity in blocks of {counted(shown.block_tokens, 'token')}", *_SIZE)
    told = [column for column in _COLUMNS if column[1] in rows[0]]
    print_rows(console, [size, *told], rows)
    if shown.by is not None:
        _print_groups(console, shown, sizes, shown.by)
    for line in _words(shown):
        console.print(line, style="dim", markup=False)


def _print_groups(console: Console, shown: CurveShown, sizes: Sequence[int], by: str) -> None:
    """A line each, those with most prompt tokens first; the others together."""
    from replay.curve import summed  # noqa: PLC0415 - compiled code

    groups = shown.groups[:_MOST_GROUPS]
    if rest := shown.groups[_MOST_GROUPS:]:
        whole = summed([each.curve for each in rest])
        requests = sum(each.requests for each in rest)
        groups = [*groups, CurveGroup(f"({len(rest):,} others)", requests, whole)]
    capacities = _spread(sorted(set(sizes)))
    columns: list[Column] = [
        (by, "name", formatter("name")),
        ("requests", "requests", formatter("requests")),
        ("prompt tokens", "prompt_tokens", formatter("tokens")),
        *((counted(size, "block"), f"{size}_ratio", formatter("ratio")) for size in capacities),
        ("unlimited", "unlimited_ratio", formatter("ratio")),
        ("enough blocks", "enough_blocks", formatter("blocks")),
    ]
    console.print()
    console.print(f"Token hit ratio of each {by}, with a cache of its own:", markup=False)
    print_rows(console, columns, [_group_row(group, capacities) for group in groups])


def _spread(sizes: Sequence[int]) -> list[int]:
    """Some of many, first and last among them."""
    if len(sizes) <= _MOST_CAPACITIES:
        return list(sizes)
    step = (len(sizes) - 1) / (_MOST_CAPACITIES - 1)
    return [sizes[round(place * step)] for place in range(_MOST_CAPACITIES)]


def _group_row(group: CurveGroup, capacities: Sequence[int]) -> Row:
    curve = group.curve
    return {
        "name": group.name,
        "requests": group.requests,
        "prompt_tokens": curve.prompt_tokens,
        **{f"{size}_ratio": curve.ratio_at(size) for size in capacities},
        "unlimited_ratio": curve.ratio_at(curve.enough_blocks),
        "enough_blocks": curve.enough_blocks,
    }


def _words(shown: CurveShown) -> list[str]:
    """Which memory wins most, where more of it wins nothing, and what the figures leave out."""
    found = shown.curve
    if not found.enough_blocks:
        return ["No prompt shares a block with an earlier one: no capacity would hit."]
    each = f" of each {shown.by or 'replica'}" if shown.caches > 1 else ""
    most = found.blocks_for(_NEARLY_ALL)
    nothing_more = (
        f"From {counted(found.enough_blocks, 'block')}{each} on more memory wins nothing; "
        f"{most:,} {'wins' if most == 1 else 'win'} {_NEARLY_ALL:.0%} of that. An upper bound: "
        "requests in their order, without a clock."
    )
    return [*_words_of_worth(shown, each), nothing_more]


def _words_of_worth(shown: CurveShown, each: str) -> list[str]:
    """In points of the token hit ratio, by the GiB where it is known, else by blocks."""
    worth = shown.worth()
    if worth is None:
        return []
    knee, enough = shown.curve.knee_blocks(), shown.curve.enough_blocks
    per, unit = 1.0, "GiB"
    to_there, to_all = shown.gib(knee), shown.gib(enough)
    if to_there is None or to_all is None:
        per, unit = 1000.0, "blocks"
        to_there, to_all = float(knee), float(enough)
    wins = "wins" if (unit, knee) == ("blocks", 1) else "win"
    won, beyond = (100 * float(worth[name] or 0) for name in ("won_ratio", "beyond_ratio"))
    told = (
        f"The first {_size(to_there, unit)}{each} {wins} {won:.1f} points of the token hit ratio, "
        f"{_rate(won / to_there * per, per, unit)}"
    )
    if knee == enough:
        return [f"{told}; more wins nothing."]
    rate = _rate(beyond / (to_all - to_there) * per, per, unit)
    return [f"{told}; from there to {_size(to_all, unit)} it is {beyond:.1f} more, {rate}."]


def _size(amount: float, unit: str) -> str:
    return counted(round(amount), "block") if unit == "blocks" else f"{amount:,.1f} {unit}"


def _rate(points: float, per: float, unit: str) -> str:
    of = "a GiB" if unit == "GiB" else f"each {counted(per, 'block')}"
    told = f"{points:,.0f}" if points >= _WHOLE_POINTS else f"{points:.2g}"
    return f"{told} {of}"
