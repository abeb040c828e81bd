"""What is left of an interval that another origin has told in part: every increase, once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.records import EngineSample
from exporter.store.remainder import GAUGES, INCREASES
from exporter.store.samples import append_samples
from exporter.store.store import Store

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTES = 60
FOUND = f"SELECT * FROM engine_samples WHERE origin = 'scrape' AND ts > TIMESTAMP '{NOON:%F %T}'"


def sample(origin: str, begin: float, end: float, **values: object) -> EngineSample:
    """An interval in minutes after noon."""
    return EngineSample.model_validate({
        "target": origin, "replica": "gpu-0", "engine": "vllm", "model": "m",
        "since": NOON + timedelta(minutes=begin), "ts": NOON + timedelta(minutes=end),
        "origin": origin, "gap": origin == "scrape", **values,
    })  # fmt: skip


def kept(store: Store, *samples: EngineSample) -> list[dict[str, Any]]:
    """What the store has of our own scrapes after each sample came by itself."""
    for one in samples:
        with store.write() as cursor:
            append_samples(cursor, [one])
    cursor = store.cursor().execute(f"{FOUND} ORDER BY ts")
    columns = [column[0] for column in cursor.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def test_every_measure_is_an_increase_or_a_gauge() -> None:
    """A field added to the record must be placed among them."""
    rest = set(EngineSample.model_fields) - set(INCREASES) - set(GAUGES)
    assert rest == {
        "target", "replica", "engine", "observer", "exported_by", "version", "model", "tenant",
        "route", "role", "since", "ts", "reset", "gap", "provenance", "origin", "origin_name",
        "count_unit",
    }  # fmt: skip
    assert INCREASES[-1] == "block_reuse_gap_buckets"


def test_times_and_histograms_are_set_right_too(new_store: Callable[[], Store]) -> None:
    told = sample("backfill", 0, 10, prompt_tokens=100, queue_seconds=1.5, preemptions=None,
                  ttft_sum_seconds=4.0, ttft_buckets={0.5: 2, float("inf"): 5},
                  evicted={"device/blocks": 3}, running_requests=7)  # fmt: skip
    ours = sample("scrape", 0, 60, prompt_tokens=600, queue_seconds=6.0, preemptions=12,
                  ttft_sum_seconds=20.0, ttft_buckets={0.5: 10, float("inf"): 30},
                  evicted={"device/blocks": 9, "host/blocks": 6}, running_requests=2)  # fmt: skip
    (left,) = kept(new_store(), told, ours)
    assert (left["prompt_tokens"], left["queue_seconds"], left["ttft_sum_seconds"]) == (
        500, 4.5, 16.0,
    )  # fmt: skip
    assert left["ttft_buckets"] == {0.5: 8, float("inf"): 25}
    # Not told by the other, or by other names: by time, five sixths.
    assert left["preemptions"] == 10
    assert left["evicted"] == {"device/blocks": 8, "host/blocks": 5}
    assert left["running_requests"] == 2


def test_gauges_are_of_the_end_and_histograms_stay_whole(new_store: Callable[[], Store]) -> None:
    told = [
        sample("backfill", 10, 20, prompt_tokens=100, ttft_buckets={0.5: 1, float("inf"): 1}),
        sample("backfill", 50, 60, prompt_tokens=100, ttft_buckets={0.5: 1, float("inf"): 2}),
    ]
    ours = sample("scrape", 0, 60, prompt_tokens=600, running_requests=2,
                  ttft_buckets={0.5: 5, float("inf"): 9})  # fmt: skip
    first, second = kept(new_store(), *told, ours)
    assert [one["prompt_tokens"] for one in (first, second)] == [100, 300]
    assert [one["running_requests"] for one in (first, second)] == [None, None]
    assert first["ttft_buckets"] is None
    assert second["ttft_buckets"] == {0.5: 3, float("inf"): 6}


@pytest.mark.parametrize("other", [{"model": "renamed"}, {"provenance": "finish/once/tokens"}])
def test_counts_of_another_basis_are_not_subtracted(
    new_store: Callable[[], Store], other: dict[str, object]
) -> None:
    """Ten minutes of sixty were told: five sixths by time, whatever the other counted then."""
    told = sample("backfill", 0, 10, prompt_tokens=450, **other)
    (left,) = kept(new_store(), told, sample("scrape", 0, 60, prompt_tokens=600))
    assert left["prompt_tokens"] == 500


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    pace=st.lists(st.integers(0, 1000), min_size=MINUTES, max_size=MINUTES),
    borders=st.lists(st.integers(0, MINUTES), unique=True, max_size=8).map(sorted),
)
def test_told_and_left_are_what_was_counted(
    new_store: Callable[[], Store], pace: list[int], borders: list[int]
) -> None:
    """Any traffic by the minute, of which another told every other stretch between borders."""
    spans = list(zip(borders[::2], borders[1::2], strict=False))
    told = [sample("backfill", a, b, prompt_tokens=sum(pace[a:b])) for a, b in spans]
    store = new_store()
    left = kept(store, *told, sample("scrape", 0, MINUTES, prompt_tokens=sum(pace)))
    assert sum(one["prompt_tokens"] for one in left) == sum(pace) - sum(
        sum(pace[a:b]) for a, b in spans
    )
    minutes = sum((one["ts"] - one["since"]).total_seconds() for one in left) / 60
    assert minutes == MINUTES - sum(b - a for a, b in spans)
