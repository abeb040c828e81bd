"""Templates found from chains, against templates that are known and against a slow reference."""

from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.prefix_groups import (
    MIN_CALLERS,
    MIN_EXTENSION_SHARE,
    MIN_UNKNOWN_CALLERS,
    PrefixGroups,
    prefix_groups,
    scope_free,
)
from replay.prefix_heirs import heirs
from replay.traffic import Chains
from tests.unit_templates.known_templates import Kind, World, adjusted_rand_index, days, made

WORLDS = {
    "plain": (Kind(), 1),
    "conversations": (Kind(turns=4, long_conversations=3), 2),
    "families": (Kind(families=4), 3),
    "one house preamble": (Kind(families=1), 2),
    "short": (Kind(shortest_tokens=24, longest_tokens=400, turns=4), 1),
    "extensions of each other": (Kind(extended=5), 2),
    "popular questions": (Kind(popular_share=0.4, turns=3), 3),
    "salts": (Kind(scopes=20), 2),
    "everything at once": (
        Kind(turns=4, long_conversations=3, families=4, extended=3, shortest_tokens=40,
             retried_share=0.1),
        2,
    ),
}  # fmt: skip


@cache
def _world(name: str) -> tuple[World, PrefixGroups]:
    world = made(*WORLDS[name])
    return world, prefix_groups(scope_free(world.chains), world.session, world.prompt_tokens)


@pytest.mark.parametrize("name", WORLDS)
def test_found_templates_are_the_known_ones(name: str) -> None:
    world, groups = _world(name)
    assert adjusted_rand_index(world.known, groups.of) >= 0.95
    for known in np.unique(world.known).tolist():
        own = world.known == known
        if own.mean() >= 0.01 and len(np.unique(world.session[own])) >= 10:
            of = groups.of[own]
            assert (of >= 0).mean() > 0.5, f"a template of {own.sum()} requests was not found"


def test_without_conversations_known() -> None:
    world = made(Kind(requests=6_000, turns=4, long_conversations=5, retried_share=0.1), 3)
    nobody = -1 - np.arange(len(world.started))
    groups = prefix_groups(world.chains, nobody, world.prompt_tokens)
    assert adjusted_rand_index(world.known, groups.of) >= 0.95


def test_versions_have_heirs_and_no_strangers() -> None:
    counts = [_heirs_of(name) for name in WORLDS]
    found, expected, strangers = (sum(column) for column in zip(*counts, strict=True))
    assert strangers <= 0.02 * found
    assert found >= 0.85 * expected


def _heirs_of(name: str) -> tuple[int, int, int]:
    """Of the versions found whose earlier one was found too: those told so, all, and strangers."""
    world, groups = _world(name)
    heir_of = heirs(world.chains, groups, world.started, [world.tenant, world.route]).tolist()
    owned = [world.known[groups.of == place] for place in range(len(groups.found))]
    known = [int(np.bincount(own).argmax()) for own in owned]
    told = {known[new]: known[old] for new, old in enumerate(heir_of) if old >= 0}
    right = {one: one - 1 for one in known if one % 10 == 1 and one - 1 in known}
    both = told.items() & right.items()
    return len(both), len(right), len(told) - len(both)


def test_another_day_and_another_sample_find_the_same() -> None:
    first, second = days(Kind(turns=3, families=2), 5, 2)
    half = second.rows(np.flatnonzero(np.arange(len(second.started)) % 2 == 0))
    ends = [_ends(world) for world in (first, second, half)]
    # One of few requests may be found in one sample and not in another, but never differently.
    for found in ends[1:]:
        both = ends[0].keys() & found.keys()
        assert [ends[0][one] for one in both] == [found[one] for one in both]
        assert len(both) >= 10


def _ends(world: World) -> dict[int, list[tuple[int, int]]]:
    """Known template -> blocks and name of the last block of each prefix that was found for it.

    What several rare templates have in common may be found too, which is nobody's.
    """
    groups = prefix_groups(world.chains, world.session, world.prompt_tokens)
    found = defaultdict(list)
    for place, one in enumerate(groups.found):
        template, counts = np.unique(world.template[groups.of == place], return_counts=True)
        if counts.max() >= 0.9 * counts.sum():
            end = (one.blocks, _last(world.chains, one.member, one.blocks))
            found[int(template[counts.argmax()])].append(end)
    return found


def _last(chains: Chains, member: int, blocks: int) -> int:
    return int(chains.names[chains.starts[member] + blocks - 1])


def _found(rows: list[list[int]], caller: list[int], tokens: list[int] | None = None) -> set[int]:
    """Rows of block names -> lengths of what was found."""
    prompt = tokens or [len(row) * 16 for row in rows]
    groups = prefix_groups(Chains.of(rows, 16), np.array(caller), np.array(prompt))
    return {one.blocks for one in groups.found}


def test_no_requests_and_no_chains() -> None:
    assert _found([], []) == set()
    assert _found([[]] * 20, [*range(20)]) == set()


def test_a_conversation_is_no_template() -> None:
    turns = [[1, 2, *range(10, 10 + turn)] for turn in range(40)]
    assert _found(turns, [0] * 40) == set()
    assert _found(turns, [*range(-40, 0)]) == set(), "where nothing tells that it is one"
    forks = [[*turn, 1_000 + number] for number, turn in enumerate(turns * 2)]
    assert _found(forks, [0] * 80) == set(), "one caller who begins anew at every turn"


def test_a_retried_request_is_no_template() -> None:
    assert _found([[1, 2, 3]] * 500, [*range(500)]) == set()


def test_prompts_that_end_within_the_next_block_are_told_apart_by_their_tokens() -> None:
    assert _found([[1, 2]] * 12, [*range(12)], [32 + number for number in range(12)]) == {2}


def test_templates_that_begin_alike_are_two() -> None:
    rows = [[1, 2, 3 + number % 2, 100 + number] for number in range(20)]
    assert _found(rows, [*range(20)]) == {3}
    assert _found(rows[:9], [*range(9)]) == {3}, "five of one; four of the other are too few"


def test_the_longest_one_that_fits_is_a_request_s_own() -> None:
    rows = [[1, 100 + number] for number in range(8)] + [[1, 2, 200 + n] for n in range(8)]
    groups = prefix_groups(Chains.of(rows, 16), np.arange(16), np.full(16, 64))
    assert [groups.found[place].blocks for place in groups.of.tolist()] == [1] * 8 + [2] * 8


def _reference(
    rows: list[tuple[int, ...]], caller: list[int], tokens: list[int]
) -> set[tuple[int, ...]]:
    """The same from the definition, prefix by prefix, for worlds in which no share is too small."""
    parting: dict[tuple[int, ...], int] = {}
    loose: dict[tuple[int, ...], set[int]] = {}
    prefixes = {row[:length] for row in rows for length in range(len(row) + 1)}
    for prefix in sorted(prefixes, key=len, reverse=True):
        loose[prefix] = set()
        for way, members in _ways(prefix, rows, tokens).items():
            if any(found[: len(way)] == way for found in parting):
                loose[prefix] |= loose[way]
            else:
                loose[prefix].add(caller[min(members, key=lambda number: (rows[number], number))])
        unknown = sum(one < 0 for one in loose[prefix])
        known = len(loose[prefix]) - unknown
        if prefix and known / MIN_CALLERS + unknown / MIN_UNKNOWN_CALLERS >= 1:
            parting[prefix], loose[prefix] = len(loose[prefix]), set()
    kept: dict[tuple[int, ...], int] = {}
    for prefix in sorted(parting, key=len):
        outer = max((one for one in kept if prefix[: len(one)] == one), key=len, default=None)
        if outer is None or parting[prefix] >= MIN_EXTENSION_SHARE * kept[outer]:
            kept[prefix] = parting[prefix]
    return set(kept)


def _ways(
    prefix: tuple[int, ...], rows: list[tuple[int, ...]], tokens: list[int]
) -> dict[tuple[int, ...], list[int]]:
    """Requests by how they go on behind a prefix; those that end there by their tokens."""
    ways: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        if row[: len(prefix)] == prefix:
            ends = len(row) == len(prefix)
            ways[(*row, -tokens[number]) if ends else row[: len(prefix) + 1]].append(number)
    return ways


_ROWS = st.lists(
    st.tuples(st.lists(st.integers(1, 4), max_size=4), st.integers(0, 30), st.integers(0, 12)),
    max_size=60,
)


@given(_ROWS)
@settings(max_examples=60)
def test_as_a_slow_reference_finds_them(drawn: list[tuple[list[int], int, int]]) -> None:
    # Tails of all kinds behind few heads: a tail of its own makes a way of its own.
    rows = [tuple(head) + ((tail + 10,) if tail % 3 else ()) for head, tail, _ in drawn]
    caller = [one if one > 6 else -1 - number for number, (_, _, one) in enumerate(drawn)]
    tokens = [len(row) * 16 + tail % 2 for row, (_, tail, _) in zip(rows, drawn, strict=True)]
    named = Chains.of([_chained(row) for row in rows], 16)
    groups = prefix_groups(named, np.array(caller, np.int64), np.array(tokens, np.int64))
    found = {rows[one.member][: one.blocks] for one in groups.found}
    assert found == _reference(rows, caller, tokens)


def _chained(row: tuple[int, ...]) -> list[int]:
    """A name for each block that depends on all before it."""
    names, name = [], 0
    for block in row:
        name = name * 64 + block
        names.append(name)
    return names


def test_scope_free_names_are_the_same_in_every_scope() -> None:
    """Where two prompts hold the same blocks up to a place, and only there."""
    world = made(Kind(scopes=20, requests=300), 4)
    contents, free = world.chains.contents, scope_free(world.chains)
    assert contents is not None
    starts = world.chains.starts.tolist()
    heads = {tuple(contents[begin : begin + 5].tolist()) for begin in starts[:-1]}
    assert len({int(free.names[begin + 4]) for begin in starts[:-1]}) == len(heads)
    assert len({int(world.chains.names[begin + 4]) for begin in starts[:-1]}) > len(heads)
    with pytest.raises(ValueError, match="no names beyond their scope"):
        scope_free(Chains.of([[1]], 16))
