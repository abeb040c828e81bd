"""Differences of arms: their resamples, against resamples that are really drawn."""

from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.differences import Resamples
from replay.serving import Outcome, Times
from replay.traffic import Numbers, Seconds

PERCENTS = (50, 90, 99)


def outcome(prefill: list[float], ttft: list[float], refused: Collection[int] = ()) -> Outcome:
    count = len(prefill)
    nothing = np.zeros(count, np.int64)
    return Outcome(
        nothing, nothing, nothing.astype(np.int32),
        np.array([request in refused for request in range(count)]), nothing,
        times=Times(np.array(ttft), np.array(prefill)),
    )  # fmt: skip


def drawn(count: int, seed: int) -> list[Numbers]:
    """The requests of each resample, written out: whole stretches, as often as they are drawn."""
    stretches = min(100, count)
    label = np.arange(count) * stretches // count
    times = np.random.default_rng(seed).multinomial(stretches, [1 / stretches] * stretches, 200)
    members = [np.flatnonzero(label == each) for each in range(stretches)]
    return [
        np.concatenate([members[each] for each in np.repeat(np.arange(stretches), row)])
        for row in times
    ]


def percentile(values: Seconds, percent: int) -> float:
    """The least with so many of a hundred not above it."""
    return float(np.sort(values)[-(-len(values) * percent // 100) - 1])


@settings(max_examples=8, deadline=None)
@given(st.integers(10, 400), st.integers(0, 99))
def test_differences_are_those_of_resamples_that_are_written_out(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    mine, theirs = (random.exponential(1.0, (2, count)).round(1) for _ in range(2))
    resamples = Resamples(np.ones(count, np.bool_), seed)
    told = {each.figure: each for each in resamples.differences(
        "mine", outcome(*mine.tolist()), "theirs", outcome(*theirs.tolist()))}  # fmt: skip
    samples = drawn(count, seed)
    sums = [float((mine[0] - theirs[0])[each].sum()) for each in samples]
    prefill = told["prefill_seconds"]
    assert prefill.change == pytest.approx(float((mine[0] - theirs[0]).sum()))
    assert (prefill.low, prefill.high) == pytest.approx(tuple(np.percentile(sums, (2.5, 97.5))))
    for percent in PERCENTS:
        changes = [percentile(mine[1][each], percent) - percentile(theirs[1][each], percent)
                   for each in samples]  # fmt: skip
        ttft = told[f"ttft_p{percent}_seconds"]
        assert ttft.change == pytest.approx(
            percentile(mine[1], percent) - percentile(theirs[1], percent)
        )
        assert (ttft.low, ttft.high) == pytest.approx(tuple(np.percentile(changes, (2.5, 97.5))))


def test_only_requests_that_both_served_are_compared_and_a_few_tell_nothing() -> None:
    """Of 12 requests each arm refuses one: ten are left, which take a second more each."""
    one, two = outcome([3.0] * 12, [1.0] * 12, {0}), outcome([2.0] * 12, [1.0] * 12, {5})
    resamples = Resamples(np.ones(12, np.bool_), 1)
    prefill = resamples.differences("one", one, "two", two)[0]
    assert (prefill.change, prefill.low, prefill.high) == (10.0, 10.0, 10.0)
    nine = Resamples(np.arange(12) >= 1, 1)
    assert nine.differences("one", one, "two", outcome([2.0] * 12, [1.0] * 12, {5, 6})) == []
