"""Reuse across scopes: found where it was, to the token, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from replay.columns import Fleet
from replay.isolation import NO_SCOPE, Crossed, Scopes, paired
from replay.rules import CacheRule
from replay.traffic import NOT_REPORTED, Chains, Flags, Moments, Traffic
from tests.unit_isolation.engines_that_share import GRAIN, agreed, busy, traffic_of

SEEDS = range(10)


def crossed(
    traffic: Traffic,
    cache: CacheRule,
    fleet: Fleet,
    horizon_seconds: float,
    comparable: Flags | None = None,
) -> Crossed:
    return Scopes.of(traffic, cache, fleet).crossed(horizon_seconds, comparable)


def rule(unit_tokens: int) -> CacheRule:
    return CacheRule("test", "test", block_tokens=unit_tokens)


@pytest.mark.parametrize("unit_tokens", [1, 16, 32])
def test_an_engine_that_keeps_scopes_apart_is_never_accused(unit_tokens: int) -> None:
    for seed in SEEDS:
        engine = busy(seed, unit_tokens, keeps_apart=True)
        for grain in (1, GRAIN):
            if grain <= unit_tokens or unit_tokens == 1:
                found = crossed(traffic_of(engine.asked, grain), rule(unit_tokens), Fleet(), 0.0)
                assert not found.at_most.any()
                assert not found.cannot_tell.any()


@pytest.mark.parametrize("unit_tokens", [16, 32])
def test_what_an_engine_of_blocks_shared_is_found_to_the_token(unit_tokens: int) -> None:
    """All that no request of the scope can have supplied; where answers supplied it, no name tells
    of them, and an answer that came as long as that is believed to be the scope's own."""
    total = 0
    for seed in SEEDS:
        asked = busy(seed, unit_tokens, keeps_apart=False).asked
        found = crossed(traffic_of(asked), rule(unit_tokens), Fleet(), 0.0)
        assert (found.at_least == found.at_most).all()
        for number, one in enumerate(asked):
            own = one.own_tokens // unit_tokens * unit_tokens
            true = max(one.cached_tokens - own, 0)
            told = found.at_least[number] + found.cannot_tell[number]
            assert told == true or (told < true and _may_be_an_answer(asked[: number + 1]))
            assert found.at_least[number] <= true
            total += int(found.at_least[number])
    assert total > 1_500, "nothing was shared, so nothing was shown"


def _may_be_an_answer(asked: list) -> bool:  # type: ignore[type-arg]
    """Does the last prompt go on behind the named blocks of an earlier one of its scope?"""
    *before, last = asked
    return any(
        agreed(last.prompt, one.prompt) >= len(one.prompt) // GRAIN * GRAIN
        for one in before
        if one.scope == last.scope
    )


def test_what_goes_token_by_token_is_exact_by_names_of_tokens_and_bounded_by_names_of_blocks() -> (
    None
):
    exact = bounded = 0
    for seed in SEEDS:
        asked = busy(seed, 1, keeps_apart=False).asked
        fine = crossed(traffic_of(asked, 1), rule(1), Fleet(), 0.0)
        coarse = crossed(traffic_of(asked), rule(1), Fleet(), 0.0)
        for number, one in enumerate(asked):
            true = max(one.cached_tokens - one.own_tokens, 0)
            if not _may_be_an_answer(asked[: number + 1]):
                assert fine.at_least[number] == fine.at_most[number] == true
                exact += true
            assert coarse.at_least[number] <= true
            if coarse.at_least[number]:
                assert true <= coarse.at_most[number] < coarse.at_least[number] + GRAIN
                bounded += 1
    assert exact > 2_000
    assert bounded > 20


def two(cached: int, **columns: object) -> Traffic:
    """One prompt of 100 tokens, of scope 0 and then of scope 1; blocks of 16."""
    rows = {
        "prompt_tokens": np.array([100, 100]),
        "cached_tokens": np.array([0, cached]),
        "chains": Chains.of(
            [[1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]], 16, [[91, 92, 93, 94, 95, 96]] * 2
        ),
        "looked_up": np.array([0.0, 10.0]),
        "ready": np.array([1.0, 11.0]),
        "ended": np.array([2.0, 12.0]),
        "scope": np.array([0, 1]),
        "output_tokens": np.array([4, 4]),
    }
    return Traffic(**(rows | columns))  # type: ignore[arg-type]


def test_the_other_scope_is_named() -> None:
    found = crossed(two(99), rule(1), Fleet(), 0.0)
    assert found.at_least.tolist() == found.at_most.tolist() == [0, 99]
    assert found.other_scope.tolist() == [NO_SCOPE, 0]
    pairs = paired(np.array([0, 1]), found.other_scope, found.at_least, np.arange(2))
    columns = (pairs.scope, pairs.other_scope, pairs.tokens, pairs.requests)
    assert [column.tolist() for column in columns] == [[1], [0], [99], [1]]


@pytest.mark.parametrize(
    ("resets", "horizon", "told"),
    [
        ([], 10.0, True),  # the log had told of the replica for the horizon
        ([], 10.1, False),
        ([(0, 5.0)], 3600.0, True),  # a reset since it began to: what was there is known
        ([(0, -5.0)], 3600.0, False),  # a reset before it began: not what came in between
        ([(1, 5.0)], 3600.0, False),  # of another replica
        ([(0, 10.5)], 3600.0, False),  # only after the look-up
    ],
)
def test_a_log_too_young_cannot_tell(
    resets: list[tuple[int, float]], horizon: float, told: bool
) -> None:
    found = crossed(two(99), rule(1), Fleet(resets=Moments.of(resets)), horizon)
    assert found.at_least.tolist() == [0, 99 if told else 0]
    assert found.cannot_tell.tolist() == [0, 0 if told else 99]


def test_what_nobody_in_the_log_had_cannot_be_told() -> None:
    """Two blocks are shared, and 64 tokens were cached: the log leaves somebody out."""
    chains = Chains.of([[1, 2], [11, 12, 13, 14, 15, 16]], 16, [[91, 92], list(range(91, 97))])
    found = crossed(
        two(64, chains=chains, prompt_tokens=np.array([32, 100])), rule(16), Fleet(), 0.0
    )
    # The first answered 4 tokens: no third block.
    assert found.at_least.tolist() == [0, 32]
    assert found.cannot_tell.tolist() == [0, 32]


def test_an_answer_of_the_own_scope_is_no_others_prompt() -> None:
    """Both scopes hold the same conversation; the second turn of the second reuses its own first
    answer, which stands in a prompt of the first scope too."""
    first, second = [1, 2], [1, 2, 3, 4]
    contents = [[90 + n for n in each] for each in (first, second, first, second)]
    chains = [*(first, second), *([10 + n for n in each] for each in (first, second))]
    turns = Traffic(
        prompt_tokens=np.array([40, 70, 40, 70]),
        cached_tokens=np.array([0, 48, 0, 48]),
        chains=Chains.of(chains, 16, contents),
        looked_up=np.arange(4.0),
        scope=np.array([0, 0, 1, 1]),
        output_tokens=np.array([20, 20, 20, 20]),
    )
    found = crossed(turns, rule(16), Fleet(), 0.0)
    assert not found.at_most.any()
    assert not found.cannot_tell.any()
    # With an answer of 8 tokens, 47 were there: the third block is not of its own.
    short = replace(turns, output_tokens=np.array([20, 20, 8, 20]))
    assert crossed(short, rule(16), Fleet(), 0.0).at_least.tolist() == [0, 0, 0, 16]
    # How long it was is not known: it may have been.
    unknown = replace(turns, output_tokens=np.array([20, 20, 0, 20]))
    assert not crossed(unknown, rule(16), Fleet(), 0.0).at_most.any()


def test_a_request_of_the_scope_without_a_chain_may_have_had_it() -> None:
    """Its prompt of 60 tokens and 4 of an answer could have supplied 63."""
    rows = Traffic(
        prompt_tokens=np.array([100, 60, 100]),
        cached_tokens=np.array([0, 0, 96]),
        chains=Chains.of(
            [[1, 2, 3, 4, 5, 6], [], [11, 12, 13, 14, 15, 16]],
            16,
            [list(range(91, 97)), [], list(range(91, 97))],
        ),
        looked_up=np.arange(3.0),
        scope=np.array([0, 1, 1]),
        output_tokens=np.array([4, 4, 4]),
    )
    assert crossed(rows, rule(16), Fleet(), 0.0).at_least.tolist() == [0, 0, 96 - 48]
    assert crossed(rows, rule(1), Fleet(), 0.0).at_least.tolist() == [0, 0, 96 - 63]


def test_a_request_beside_it_may_have_been_first() -> None:
    """Of the same scope, started later by the log but before the first token: as it may have waited
    in the queue for longer, it may have been served from it."""
    rows = two(96, scope=np.array([0, 1]))
    three = Traffic(
        prompt_tokens=np.array([100, 100, 100]),
        cached_tokens=np.array([0, 96, 0]),
        chains=Chains.of(
            [[1, 2, 3, 4, 5, 6], *[[11, 12, 13, 14, 15, 16]] * 2], 16, [list(range(91, 97))] * 3
        ),
        looked_up=np.array([0.0, 10.0, 10.5]),
        ready=np.array([1.0, 11.0, 11.5]),
        ended=np.array([2.0, 12.0, 12.5]),
        scope=np.array([0, 1, 1]),
        output_tokens=np.array([4, 4, 4]),
    )
    assert crossed(rows, rule(16), Fleet(), 0.0).at_least.tolist() == [0, 96]
    assert not crossed(three, rule(16), Fleet(), 0.0).at_most.any()
    later = replace(three, looked_up=np.array([0.0, 10.0, 11.5]))
    assert crossed(later, rule(16), Fleet(), 0.0).at_least.tolist() == [0, 96, 0]


def test_without_contents_or_comparable_names_nothing_is_said() -> None:
    bare = two(96)
    bare = replace(bare, chains=replace(bare.chains, contents=None))
    found = crossed(bare, rule(16), Fleet(), 0.0)
    assert not found.at_most.any()
    assert found.cannot_tell.tolist() == [0, 96]
    partly = crossed(two(96), rule(16), Fleet(), 0.0, comparable=np.array([True, False]))
    assert partly.at_least.tolist() == [0, 0]
    assert partly.cannot_tell.tolist() == [0, 96]


def test_requests_that_report_nothing_or_that_no_cache_was_asked_for_are_not_judged() -> None:
    silent = crossed(two(NOT_REPORTED), rule(16), Fleet(), 0.0)
    skipped = crossed(two(96, ineligible=np.array([False, True])), rule(16), Fleet(), 0.0)
    for found in (silent, skipped):
        assert not found.at_most.any()
        assert not found.cannot_tell.any()


@pytest.mark.parametrize("unit_tokens", [1, 16, 32])
def test_what_scopes_keep_from_being_shared(unit_tokens: int) -> None:
    """Counted by loops over raw tokens: whole blocks that another scope's prompt had and none of
    the own. The sum is what one scope for all would share."""
    for seed in SEEDS:
        asked = busy(seed, unit_tokens, keeps_apart=True).asked
        found = Scopes.of(traffic_of(asked), rule(unit_tokens)).merged()
        assert found is not None
        expected: dict[tuple[int, int], int] = {}
        for number, one in enumerate(asked):
            names = len(one.prompt) // GRAIN * GRAIN
            for end in range(GRAIN, names + 1, GRAIN):
                had = [a for a in asked[:number] if _had(a.prompt, one.prompt, end)]
                if had and all(a.scope != one.scope for a in had):
                    pair = one.scope, had[0].scope
                    most = (len(one.prompt) - 1) // unit_tokens * unit_tokens
                    gained = min(end // unit_tokens * unit_tokens, most)
                    gained -= min((end - GRAIN) // unit_tokens * unit_tokens, most)
                    expected[pair] = expected.get(pair, 0) + gained
        told = zip(found.scope.tolist(), found.other_scope.tolist(), found.tokens.tolist(),
                   strict=True)  # fmt: skip
        assert {(a, b): tokens for a, b, tokens in told} == {k: v for k, v in expected.items() if v}


def _had(one: list[int], other: list[int], end: int) -> bool:
    return len(one) // GRAIN * GRAIN >= end and one[:end] == other[:end]


def test_nothing_is_nothing() -> None:
    empty = traffic_of([])
    found = crossed(empty, rule(16), Fleet(), 0.0)
    assert len(found.at_least) == 0
    merged = Scopes.of(empty, rule(16)).merged()
    assert merged is not None
    assert len(merged.tokens) == 0
