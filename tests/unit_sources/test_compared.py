"""Log against counters, two names of one process: both values and their difference."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from exporter.sources.page_files import RecordedPage
from exporter.sources.pages import PageIntake, PagesSummary
from exporter.sources.target_state import TargetIdentity
from exporter.store.retention import retain
from exporter.store.samples import append_samples, upsert_targets
from exporter.store.store import Store
from tests.log_path import NOON, Row, ask, hit_ratio, load
from tests.unit_sources.conftest import BEGAN, page, take

NewStore = Callable[[], Store]
# Ten minutes from noon: 500 prompt and 300 cached tokens a minute by the log.
ROWS: list[Row] = [
    {"request_id": f"r-{n}", "ts": f"2026-03-02T12:{n:02d}:00Z", "model": "m",
     "prompt_tokens": 500, "cached_tokens": 300}
    for n in range(11)
]  # fmt: skip


def test_log_and_counters_are_compared_over_the_time_both_tell_of(new_store: NewStore) -> None:
    """The counters begin two minutes later, and say 6,000 tokens over ten minutes."""
    store = new_store()
    load(store, ROWS, "gateway")
    load(store, [{**ROWS[0], "request_id": "x", "model": "hosted"}], "gateway")
    who = TargetIdentity("t", "gpu-0", None, 120)
    take(store, who, [(120 + 120 * n, 1_000 + 1_200 * n, 400 + 720 * n) for n in range(6)])
    (pair,) = ask(store, "source_pairs")
    assert (pair["kind"], pair["model"], pair["added"]) == ("log_and_engine", "m", False)
    assert (pair["first_source"], pair["second_source"]) == ("gateway", "scrape")
    assert (pair["since"], pair["until"]) == ("2026-03-02T12:02:00Z", "2026-03-02T12:10:00Z")
    # Eight rows from 12:02 on, without the one at 12:10; four of the five intervals.
    assert (pair["first_prompt_tokens"], pair["second_prompt_tokens"]) == (4_000, 4_800)
    assert (pair["difference_tokens"], pair["difference_ratio"]) == (800, 0.2)
    assert (pair["first_cached_tokens"], pair["second_cached_tokens"]) == (2_400, 2_880)
    # And no figure has the sum of the two.
    assert hit_ratio(store, model="m")["prompt_tokens"] == 5_500
    assert ask(store, "source_pairs", since="2026-03-02T12:06:00Z") == []


def polled(store: Store, target: str, replica: str, started: float, tokens: int = 900) -> None:
    """As the scraper leaves it: samples, and a target with its state."""
    intake = PageIntake(TargetIdentity(target, replica, None, 15), None, PagesSummary())
    pages = [RecordedPage(target, BEGAN + 15 * n, None, text=page(tokens * n, 300 * n, started))
             for n in range(3)]  # fmt: skip
    samples = [sample for one in pages for sample in intake.take(one)]
    with store.write() as cursor:
        append_samples(cursor, samples)
        upsert_targets(cursor, intake.rows())


def test_one_process_under_two_names_is_told(new_store: NewStore) -> None:
    """Its service and its pod are both listed; nothing but its start gives it away."""
    store = new_store()
    polled(store, "engine.svc:8000", "engine.svc:8000", 1_772_400_000.25)
    polled(store, "10.0.0.5:8000", "gpu-0", 1_772_400_000.25)
    polled(store, "10.0.0.6:8000", "gpu-1", 1_772_400_000.75)
    polled(store, "10.0.0.7:8000", "gpu-2", 1_772_400_000.25, tokens=920)
    (pair,) = ask(store, "source_pairs")
    assert (pair["kind"], pair["added"]) == ("one_process", True)
    assert (pair["first_source"], pair["second_source"]) == ("gpu-0", "engine.svc:8000")
    assert (pair["first_prompt_tokens"], pair["second_prompt_tokens"]) == (1_800, 1_800)


@pytest.mark.parametrize("replica", [None, "gpu-0"])
def test_counters_are_told_by_the_way_they_came(new_store: NewStore, replica: str | None) -> None:
    store = new_store()
    counts = [(0, 0, 0), (60, 900, 300), (120, 1_800, 600)]
    take(store, TargetIdentity("t", "gpu-0", None, 60), counts)
    take(store, TargetIdentity("u", "gpu-1", None, 60), counts)
    old = TargetIdentity("t", "gpu-0", None, 60, "backfill", "http://prometheus:9090")
    take(store, old, [(-120, 0, 0), (-60, 500, 100), (0, 500, 100)])
    found = ask(store, "figure_sources", replica=replica)
    assert [(row["kind"], row["basis"], row["observer"]) for row in found] == [
        ("engine", "scrape", "engine"), ("engine", "backfill", "engine"),
    ]  # fmt: skip
    scraped, filled = found
    assert (scraped["targets"], scraped["replicas"]) == ((1, 1) if replica else (2, 2))
    assert scraped["prompt_tokens"] == (1_800 if replica else 3_600)
    assert (filled["source"], filled["prompt_tokens"]) == ("http://prometheus:9090", 500)
    assert (filled["first_ts"], filled["last_ts"]) == ("2026-03-02T11:58:00Z", NOON)
    # Half of the last interval lies in this window.
    (half,) = ask(store, "figure_sources", replica="gpu-0", since="2026-03-02T12:01:30Z")
    assert half["prompt_tokens"] == 450


def test_rows_that_are_rolled_up_are_told_apart(new_store: NewStore) -> None:
    store = new_store()
    load(store, ROWS, "gateway")
    later = datetime.fromtimestamp(BEGAN, UTC) + timedelta(days=store.settings.hot_days + 1)
    retain(store, later)
    load(store, [{**ROWS[0], "request_id": "new", "ts": later.isoformat()}], "gateway")
    found = {row["basis"]: row for row in ask(store, "figure_sources")}
    assert set(found) == {"roll-up", "ndjson"}
    assert (found["roll-up"]["source"], found["roll-up"]["rows"]) == ("", 11)
    assert (found["roll-up"]["prompt_tokens"], found["roll-up"]["reported_ratio"]) == (5_500, 1)
    assert found["ndjson"]["rows"] == 1
