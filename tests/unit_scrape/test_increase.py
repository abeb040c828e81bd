"""Increases from pages: baselines, resets, gaps, new series, and exporter restarts."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.records import EngineSample
from exporter.sources.engines.reading import read_page
from exporter.sources.increase import advance
from exporter.sources.target_state import TargetIdentity, TargetState

TEXT = "text/plain"
TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC).timestamp()
MINUTE = 60.0
WHO = TargetIdentity("target", "replica", interval_seconds=MINUTE)


def counter(value: float, rank: str = "0", name: str = "prompt_tokens_total") -> str:
    return f'vllm:{name}{{engine="{rank}",model_name="m"}} {value}\n'


def started(unix: float) -> str:
    return f"process_start_time_seconds {unix}\n"


def take(
    pages: Sequence[tuple[float, str]], state: TargetState | None = None
) -> list[EngineSample]:
    state = state or TargetState()
    return [
        sample
        for unix, text in pages
        for sample in advance(state, read_page(text.encode(), TEXT, None, state.ranked), unix, WHO)
    ]


def prompts(samples: Sequence[EngineSample]) -> list[int | None]:
    return [sample.prompt_tokens for sample in samples]


def test_t14_t53_the_first_page_is_a_baseline() -> None:
    first = take([(TEN, counter(10_000_000))])[0]
    assert first.prompt_tokens is None
    assert first.since is None
    assert not first.reset


def test_t14_warm_up_before_the_first_page_is_no_traffic() -> None:
    hits, asked = "prefix_cache_hits_total", "prefix_cache_queries_total"
    pages = [
        (TEN, counter(0, name=hits) + counter(50_000, name=asked)),
        (TEN + 60, counter(900, name=hits) + counter(51_000, name=asked)),
    ]
    last = take(pages)[-1]
    assert (last.lookup_hit_tokens, last.lookup_tokens) == (900, 1000)


def test_t53_a_new_series_on_a_known_target_counts_from_zero() -> None:
    pages = [
        (TEN, counter(100)),
        (TEN + 60, counter(100) + counter(15, rank="0", name="request_success_total")),
        (TEN + 120, counter(130) + counter(15, rank="0", name="request_success_total")),
    ]
    samples = take(pages)
    assert [s.finished_requests for s in samples] == [None, 15, 0]
    assert prompts(samples) == [None, 0, 30]


def test_t53_a_process_younger_than_our_first_try_counts_from_zero() -> None:
    state = TargetState()
    state.fail(TEN)
    sample = take([(TEN + 60, started(TEN + 30) + counter(15))], state)[0]
    assert sample.prompt_tokens == 15
    assert sample.since == datetime.fromtimestamp(TEN, UTC)
    older = TargetState()
    older.fail(TEN)
    baseline = take([(TEN + 60, started(TEN - 30) + counter(15))], older)[0]
    assert baseline.prompt_tokens is None


def test_t53_with_a_creation_time_inside_the_window_count_from_zero() -> None:
    state = TargetState()
    state.fail(TEN)
    created = f'vllm:prompt_tokens_created{{engine="0",model_name="m"}} {TEN + 30}\n'
    assert take([(TEN + 60, counter(15) + created)], state)[0].prompt_tokens == 15


def test_t53_a_series_a_newer_table_reads_is_a_baseline() -> None:
    state = TargetState()
    take([(TEN, counter(5000))], state)
    state.table = "a table that read fewer names"
    newly_read = counter(5010) + counter(700, name="generation_tokens_total")
    sample = take([(TEN + 60, newly_read)], state)[0]
    assert (sample.prompt_tokens, sample.output_tokens) == (10, None)


def test_t57_a_fall_is_a_reset_and_never_negative() -> None:
    minutes = [(TEN, 5000, 1), (TEN + 300, 300, 2), (TEN + 360, 900, 2)]
    pages = [(unix, started(TEN - 900 + 1000 * n) + counter(v)) for unix, v, n in minutes]
    samples = take(pages)
    assert prompts(samples) == [None, 300, 600]
    assert [sample.reset for sample in samples] == [False, True, False]


def test_t57_a_start_time_tells_of_a_reset_that_values_hide() -> None:
    pages = [
        (TEN, started(TEN - 900) + counter(5000)),
        (TEN + 60, started(TEN + 30) + counter(6000)),
    ]
    sample = take(pages)[-1]
    assert (sample.prompt_tokens, sample.reset) == (6000, True)


def test_t57_a_creation_time_tells_it_too() -> None:
    def created(unix: float) -> str:
        return f'vllm:prompt_tokens_created{{engine="0",model_name="m"}} {unix}\n'

    pages = [
        (TEN, counter(5000) + created(TEN - 900)),
        (TEN + 60, counter(6000) + created(TEN + 30)),
    ]
    assert take(pages)[-1].prompt_tokens == 6000


def test_t57_a_clock_correction_is_no_restart() -> None:
    pages = [
        (TEN, started(TEN - 900) + counter(5000)),
        (TEN + 60, started(TEN - 899.3) + counter(5010)),
    ]
    sample = take(pages)[-1]
    assert (sample.prompt_tokens, sample.reset) == (10, False)


def test_t57_a_gap_is_marked_with_its_whole_increase() -> None:
    pages = [(TEN, started(1) + counter(5000)), (TEN + 3600, started(1) + counter(9000))]
    sample = take(pages)[-1]
    assert (sample.prompt_tokens, sample.gap, sample.reset) == (4000, True, False)
    assert (sample.ts - (sample.since or sample.ts)).total_seconds() == 3600


def test_t57_a_failed_scrape_makes_a_gap() -> None:
    state = TargetState()
    take([(TEN, counter(1))], state)
    state.fail(TEN + 60)
    samples = take([(TEN + 120, counter(2)), (TEN + 180, counter(3))], state)
    assert [sample.gap for sample in samples] == [True, False]


def test_without_an_interval_the_usual_distance_tells_a_gap() -> None:
    state = TargetState()
    unhurried = TargetIdentity("target", "replica")
    seconds = [0, 300, 600, 900, 2400, 2700]
    gaps = [
        advance(state, read_page(counter(n).encode(), TEXT), TEN + second, unhurried)[0].gap
        for n, second in enumerate(seconds)
    ]
    assert gaps == [False, False, False, False, True, False]


def test_a_restart_is_seen_in_series_that_already_passed_their_old_value() -> None:
    names = ("prompt_tokens_total", "generation_tokens_total", "request_success_total")
    before = "".join(counter(v, name=n) for n, v in zip(names, (5000, 800, 10), strict=True))
    after = "".join(counter(v, name=n) for n, v in zip(names, (6000, 700, 9), strict=True))
    sample = take([(TEN, before), (TEN + 60, after)])[-1]
    assert sample.reset
    assert (sample.prompt_tokens, sample.output_tokens, sample.finished_requests) == (6000, 700, 9)


def test_one_counter_that_dips_does_not_bring_back_all_the_others() -> None:
    names = ("prompt_tokens_total", "generation_tokens_total", "request_success_total")
    before = "".join(counter(v, name=n) for n, v in zip(names, (5000, 800, 10), strict=True))
    after = "".join(counter(v, name=n) for n, v in zip(names, (5100, 820, 9), strict=True))
    sample = take([(TEN, before), (TEN + 60, after)])[-1]
    assert not sample.reset
    assert (sample.prompt_tokens, sample.output_tokens, sample.finished_requests) == (100, 20, 9)


def test_an_engine_that_shows_no_counters_after_its_restart() -> None:
    gauge = 'sglang:num_running_reqs{model_name="m"} 0\n'

    def prompt(value: int) -> str:
        return f'sglang:prompt_tokens_total{{model_name="m"}} {value}\n'

    pages = [(TEN, gauge + prompt(300)), (TEN + 60, gauge), (TEN + 120, gauge + prompt(400))]
    samples = take(pages)
    assert prompts(samples) == [None, None, 400]
    assert [sample.reset for sample in samples] == [False, True, False]


def test_a_series_that_was_away_goes_on_where_it_was() -> None:
    output = counter(7, name="generation_tokens_total")
    pages = [(TEN, counter(100) + output), (TEN + 60, output), (TEN + 120, counter(130) + output)]
    assert prompts(take(pages)) == [None, None, 30]


def test_t9_increases_are_taken_per_rank_first() -> None:
    def page(values: dict[str, tuple[int, int]]) -> str:
        hits, asked = "prefix_cache_hits_total", "prefix_cache_queries_total"
        return "".join(
            counter(h, rank, hits) + counter(q, rank, asked) for rank, (h, q) in values.items()
        )

    pages = [
        (TEN, page({"0": (100, 200), "1": (1000, 4000)})),
        (TEN + 60, page({"0": (180, 300), "1": (1100, 4400)})),
    ]
    later = [sample for sample in take(pages) if sample.since]
    assert {s.replica: s.lookup_hit_tokens for s in later} == {"replica/0": 80, "replica/1": 100}
    assert sum(s.lookup_hit_tokens or 0 for s in later) == 180
    assert sum(s.lookup_tokens or 0 for s in later) == 500


def test_t9_shares_of_ranks_are_never_summed() -> None:
    usage = "vllm:kv_cache_usage_perc"
    text = "".join(f'{usage}{{engine="{r}",model_name="m"}} {v}\n' for r, v in ((0, 0.2), (1, 0.8)))
    assert [sample.kv_usage_ratio for sample in take([(TEN, text)])] == [0.2, 0.8]


def test_ranks_keep_their_names_when_one_is_not_on_the_page() -> None:
    pages = [
        (TEN, counter(1, "0") + counter(1, "1")),
        (TEN + 60, counter(2, "0")),
    ]
    assert take(pages)[-1].replica == "replica/0"


def test_t11_t25_the_window_counts_not_the_life() -> None:
    hits, asked = "prefix_cache_hits_total", "prefix_cache_queries_total"

    def page(hit: int, looked_up: int) -> str:
        return counter(hit, name=hits) + counter(looked_up, name=asked)

    idle = take([(TEN, page(9_000_000, 10_000_000)), (TEN + 300, page(9_000_000, 10_050_000))])[-1]
    assert (idle.lookup_hit_tokens, idle.lookup_tokens) == (0, 50_000)
    late = take([(TEN, page(0, 900_000)), (TEN + 60, page(100_000, 1_000_000))])[-1]
    assert (late.lookup_hit_tokens, late.lookup_tokens) == (100_000, 100_000)


def test_pages_seen_before_change_nothing() -> None:
    state = TargetState()
    take([(TEN, counter(1)), (TEN + 60, counter(5))], state)
    before = state.to_json()
    assert take([(TEN, counter(1)), (TEN + 60, counter(5))], state) == []
    assert state.to_json() == before


def histogram(counts: dict[str, int], seconds: float) -> str:
    name, labels = "vllm:time_to_first_token_seconds", 'engine="0",model_name="m"'
    lines = [f'{name}_bucket{{{labels},le="{le}"}} {n}\n' for le, n in counts.items()]
    return "".join(lines) + f"{name}_sum{{{labels}}} {seconds}\n"


def test_a_histogram_is_one_counter() -> None:
    pages = [
        (TEN, histogram({"1.0": 90, "+Inf": 100}, 50.0)),
        (TEN + 60, histogram({"1.0": 91, "+Inf": 103}, 54.0)),
        (TEN + 120, histogram({"1.0": 95, "+Inf": 99}, 53.0)),  # began anew, a bucket is higher
        (TEN + 180, histogram({"2.0": 96, "+Inf": 99}, 53.0)),  # other bounds: began anew
    ]
    samples = take(pages)
    infinity = float("inf")
    assert [s.ttft_buckets for s in samples] == [
        None,
        {1.0: 1, infinity: 3},
        {1.0: 95, infinity: 99},
        {2.0: 96, infinity: 99},
    ]
    assert [s.ttft_sum_seconds for s in samples] == [None, 4.0, 53.0, 53.0]


def test_t18_ten_equal_pages_look_frozen_and_running_requests_prove_it() -> None:
    running = 'vllm:num_requests_running{engine="0",model_name="m"} 2\n'
    state = TargetState()
    for n in range(10):
        assert not state.looks_frozen
        take([(TEN + 60 * n, counter(5) + running)], state)
    assert state.looks_frozen
    assert state.busy_meanwhile
    take([(TEN + 600, counter(6) + running)], state)
    assert not state.looks_frozen


def test_t18_an_idle_engine_is_not_busy() -> None:
    state = TargetState()
    idle = 'vllm:num_requests_running{engine="0",model_name="m"} 0\n'
    take([(TEN + 60 * n, counter(5) + idle) for n in range(20)], state)
    assert state.looks_frozen
    assert not state.busy_meanwhile


# --------------------------------------------------------------------- properties

NAMES = ("prompt_tokens_total", "prompt_tokens_cached_total", "generation_tokens_total")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["traffic", "restart", "down"]),
        st.lists(st.integers(0, 50), min_size=6, max_size=6),
    ),
    min_size=1,
    max_size=12,
)


def pages_of(
    steps: list[tuple[str, list[int]]],
) -> tuple[list[tuple[float, str | None]], int]:
    """Pages of an engine with two ranks, and the prompt tokens a scraper can know of.

    Start times are on the page, so that every restart is visible.
    """
    pages: list[tuple[float, str | None]] = []
    values = [0] * 6
    began, known, first = TEN - 100, 0, True
    pending = 0
    for turn, (kind, rises) in enumerate(steps):
        unix = TEN + 60 * turn
        if kind == "restart":
            values, began, pending = [0] * 6, unix - 5, 0
        values = [value + rise for value, rise in zip(values, rises, strict=True)]
        pending += rises[0] + rises[3]
        if kind == "down":
            pages.append((unix, None))
            continue
        seen_from_start = not first or (began > TEN and pages[0][1] is None)
        known += pending if seen_from_start else 0
        first, pending = False, 0
        text = started(began) + "".join(
            counter(values[3 * rank + n], str(rank), name)
            for rank in (0, 1)
            for n, name in enumerate(NAMES)
        )
        pages.append((unix, text))
    return pages, known


def run(
    pages: list[tuple[float, str | None]], state: TargetState, restarts: set[int]
) -> list[EngineSample]:
    samples: list[EngineSample] = []
    for turn, (unix, text) in enumerate(pages):
        if turn in restarts:
            state = TargetState.from_json(state.to_json())
        if text is None:
            state.fail(unix)
        else:
            samples += take([(unix, text)], state)
    return samples


@given(STEPS, st.sets(st.integers(0, 12)))
def test_exporter_restarts_at_any_moment_change_nothing(
    steps: list[tuple[str, list[int]]], restarts: set[int]
) -> None:
    pages, known = pages_of(steps)
    whole = run(pages, TargetState(), set())
    assert run(pages, TargetState(), restarts) == whole
    assert sum(sample.prompt_tokens or 0 for sample in whole) == known


@given(
    st.lists(
        st.lists(st.none() | st.integers(0, 1000), min_size=6, max_size=6), min_size=1, max_size=10
    )
)
def test_increases_are_never_negative_whatever_the_page_says(
    pages: list[list[int | None]],
) -> None:
    state = TargetState()
    for turn, values in enumerate(pages):
        text = "".join(
            counter(value, str(n // 3), NAMES[n % 3])
            for n, value in enumerate(values)
            if value is not None
        )
        if not text:
            continue
        for sample in take([(TEN + 60 * turn, text)], state):
            assert (sample.prompt_tokens or 0) >= 0
            assert (sample.cached_tokens or 0) >= 0
            assert (sample.output_tokens or 0) >= 0


@given(STEPS)
def test_reading_any_pages_again_adds_nothing(steps: list[tuple[str, list[int]]]) -> None:
    pages, _ = pages_of(steps)
    state = TargetState()
    run(pages, state, set())
    assert run(pages, state, set()) == []


@pytest.mark.parametrize("text", [None, ""])
def test_no_stored_state_is_a_fresh_one(text: str | None) -> None:
    assert TargetState.from_json(text) == TargetState()
