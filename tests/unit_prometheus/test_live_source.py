"""A Prometheus as live source: what is new, breaks, going on from a back-fill, targets gone."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from exporter.records import EngineSample
from exporter.sources.prometheus.api import PrometheusApi
from exporter.sources.prometheus.backfill import BackfillSettings, backfill
from exporter.sources.prometheus.history import History
from exporter.sources.prometheus.live import PrometheusSource
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.target_settings import TargetSettings
from exporter.store.samples import TargetRow, load_targets, upsert_targets
from exporter.store.store import Store
from tests.unit_prometheus.fake_prometheus import Fake, recorded_fake, serving

NewStore = Callable[[str], Store]
VLLM, LLAMA = (23_528, 12_672), (42_264, 33_174)


class Clock:
    """Time as the test wants it."""

    def __init__(self, unix: float) -> None:
        self.unix = unix

    def __call__(self) -> float:
        return self.unix


def source(
    store: Store, address: str, clock: Clock,
    on_samples: Callable[[Sequence[EngineSample]], None] | None = None,
) -> PrometheusSource:  # fmt: skip
    settings = PrometheusSourceSettings(url=address, delay_seconds=0)
    made = PrometheusSource(store, settings, TargetSettings(), on_samples, clock)
    made.stop()  # no pauses: a test does not wait for a server that is down
    made._stopped.clear()
    return made


def sums(store: Store) -> dict[str, tuple[int, int]]:
    rows = store.cursor().execute(
        "SELECT replica, coalesce(sum(prompt_tokens), 0)::BIGINT,"
        " coalesce(sum(cached_tokens), 0)::BIGINT FROM engine_samples GROUP BY replica"
    )
    return {replica: (prompt, cached) for replica, prompt, cached in rows.fetchall()}


@pytest.mark.parametrize("step", [1.0, 7.0, 60.0])
def test_every_reading_takes_what_is_new(new_store: NewStore, step: float) -> None:
    fake, began, ended = recorded_fake()
    store, clock, told = new_store("a"), Clock(began), []
    with serving(fake) as address:
        reading = source(store, address, clock, told.extend)
        # New targets are looked for once a minute, and then read from their first page.
        while clock.unix < ended + 70:
            reading.read_once()
            clock.unix += step
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}
    assert sum(sample.prompt_tokens or 0 for sample in told) == VLLM[0] + LLAMA[0]
    assert reading.replicas == {"vllm-0", "llama-0"}
    rows = {row.target: row for row in reading.rows}
    assert (rows["127.0.0.1:39201"].up, rows["127.0.0.1:39201"].engine) == (True, "vllm")
    # No address: our own scraper must not take it for one of its targets.
    assert {row.url for row in rows.values()} == {None}


def test_a_break_of_ours_loses_nothing(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    store, clock = new_store("a"), Clock(began + 9)
    with serving(fake) as address:
        source(store, address, clock).read_once()
        clock.unix = ended + 400
        source(store, address, clock).read_once()
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}


def test_a_break_of_the_prometheus_is_said_and_survived(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    store, clock = new_store("a"), Clock(began + 9)
    with serving(fake) as address:
        reading = source(store, address, clock)
        reading.read_once()
        fake.refuse = lambda _path, _headers: (401, {}, b"")
        clock.unix += 15
        reading.read_once()
        assert "credentials" in str(reading.error)
        assert {row.up for row in reading.rows} == {False}
        fake.refuse = lambda _path, _headers: None
        clock.unix = ended
        reading.read_once()
    assert reading.error is None
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}


@pytest.mark.parametrize("middle", [12.0, 25.0, 40.0])
def test_it_goes_on_where_a_backfill_ended(new_store: NewStore, middle: float) -> None:
    fake, began, ended = recorded_fake()
    store, clock = new_store("a"), Clock(ended)
    with serving(fake) as address:
        api = PrometheusApi(PrometheusSourceSettings(url=address))
        history = History(store, TargetSettings())
        backfill(api, history, BackfillSettings(0), began, began + middle)
        source(store, address, clock).read_once()
        assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}
        # And what it covers from then on is not filled.
        backfill(api, history, BackfillSettings(0), began, ended)
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}


def test_what_we_scrape_ourselves_is_not_read_too(new_store: NewStore) -> None:
    fake, _, ended = recorded_fake()
    store = new_store("a")
    with store.write() as cursor:
        url = "http://127.0.0.1:39201/metrics"
        upsert_targets(cursor, [TargetRow("127.0.0.1:39201", url=url)])
    with serving(fake) as address:
        source(store, address, Clock(ended)).read_once()
    assert set(sums(store)) == {"llama-0"}


def test_targets_that_are_gone_are_said_to_be_and_then_forgotten(new_store: NewStore) -> None:
    fake, _, ended = recorded_fake()
    store, clock = new_store("a"), Clock(ended)
    with serving(fake) as address:
        reading = source(store, address, clock)
        reading.read_once()
        clock.unix = ended + 400
        reading.read_once()
        assert {row.up for row in reading.rows} == {False}
        assert all("no sample of it" in str(row.error) for row in reading.rows)
        clock.unix = ended + 4_200
        reading.read_once()
    assert reading.rows == []
    assert load_targets(store.cursor()) == {}


def test_a_stop_ends_a_pause(new_store: NewStore) -> None:
    fake = replace(Fake(), refuse=lambda _path, _headers: (503, {"Retry-After": "60"}, b""))
    with serving(fake) as address:
        settings = PrometheusSourceSettings(url=address)
        reading = PrometheusSource(new_store("a"), settings, TargetSettings())
        reading.start()
        assert reading.alive
        reading.stop()
    assert not reading.alive
