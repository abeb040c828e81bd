"""Since when a drop lasts: worked out by hand, and against steps that are known."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from queries.on_call.expected import Expected, bands
from queries.on_call.onset import Onset, onset

START = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Row = dict[str, object]


def steps(ratios: list[float | None], tokens: int = 1_000) -> list[Row]:
    """A minute each; None = no traffic, so no row."""
    return [
        {"ts": START + place * MINUTE, "token_hit_ratio": ratio, "reported_prompt_tokens": tokens}
        for place, ratio in enumerate(ratios)
        if ratio is not None
    ]


def expected(ratio: float, minutes: int = 60) -> list[Expected]:
    return [Expected(START, START + minutes * MINUTE, ratio - 0.03, ratio + 0.03, ratio)]


def test_the_first_minute_below_halfway_that_was_not_won_back() -> None:
    """Expected 0.8, now 0.4: halfway is 0.6. One bad minute loses 300 tokens of 1,000, two good
    ones win 200 each, so it does not count; the run from minute 4 on does."""
    found = onset(steps([0.8, 0.3, 0.8, 0.8, 0.4, 0.5, 0.4]), expected(0.8), 0.4)
    assert found == Onset(START + 4 * MINUTE)


def test_one_good_minute_within_the_drop_does_not_end_it() -> None:
    """From minute 1 on 400 tokens are lost, minute 3 wins 200 back."""
    found = onset(steps([0.8, 0.4, 0.4, 0.8, 0.4]), expected(0.8), 0.4)
    assert found == Onset(START + MINUTE)


def test_minutes_weigh_by_their_tokens() -> None:
    """A minute of 10,000 tokens at 0.7 wins 1,000, more than four of 1,000 at 0.4 lost: 800."""
    rows = steps([0.4, 0.4, 0.4, 0.4, 0.7, 0.4])
    rows[4]["reported_prompt_tokens"] = 10_000
    assert onset(rows, expected(0.8), 0.4) == Onset(START + 5 * MINUTE)


def test_a_drop_from_the_start_on_is_older_than_what_was_seen() -> None:
    assert onset(steps([0.4] * 5), expected(0.8), 0.4) == Onset(START, earlier=True)


def test_a_ratio_that_has_come_back_has_no_onset() -> None:
    assert onset(steps([0.4, 0.8, 0.8, 0.8]), expected(0.8), 0.5) is None


def test_t58_minutes_without_traffic_or_expectation_say_nothing() -> None:
    rows = steps([0.8, None, 0.4, 0.4])
    assert onset(rows, expected(0.8), 0.4) == Onset(START + 2 * MINUTE)
    assert onset(rows, [], 0.4) is None
    assert onset([], expected(0.8), 0.4) is None


@settings(max_examples=60)
@given(
    before=st.lists(st.floats(-0.08, 0.08), min_size=5, max_size=60),
    after=st.lists(st.floats(-0.08, 0.08), min_size=5, max_size=60),
)
def test_a_step_with_noise_below_halfway_is_found_to_the_minute(
    before: list[float], after: list[float]
) -> None:
    """Noise is less than half of the distance, so no minute lies on the wrong side of halfway."""
    ratios = [0.8 + noise for noise in before] + [0.6 + noise for noise in after]
    found = onset(steps([*ratios]), expected(0.8, 200), 0.6)
    assert found == Onset(START + len(before) * MINUTE)


def test_bands_are_the_windows_with_an_expectation_in_order() -> None:
    def judged(hour: int, ratio: float | None) -> Row:
        return {"ts": f"2026-11-29T0{hour}:05:00Z", "expected_ratio": ratio,
                "expected_low_ratio": ratio, "expected_high_ratio": ratio}  # fmt: skip

    found = bands([judged(3, 0.5), judged(2, None), judged(1, 0.7)], timedelta(hours=1))
    assert [(band.since.hour, band.until.hour, band.ratio) for band in found] == [
        (1, 2, 0.7), (3, 4, 0.5),
    ]  # fmt: skip
