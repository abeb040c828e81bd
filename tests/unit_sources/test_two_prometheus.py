"""A Prometheus beside another source of the same engines: what a real one answered, told twice.

The recordings' sums are those of the captures' README: vLLM counted 23,528 prompt tokens over a
restart, 12,672 of them cached; llama.cpp 42,264 and 33,174.
"""

from collections.abc import Callable, Sequence

import pytest

from exporter.records import EngineSample
from exporter.sources.prometheus.api import PrometheusApi
from exporter.sources.prometheus.backfill import BackfillSettings, backfill
from exporter.sources.prometheus.history import History, Piece, Taken
from exporter.sources.prometheus.live import PrometheusSource
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.target_settings import StaticTarget, TargetSettings
from exporter.store.samples import TargetRow, upsert_targets
from exporter.store.store import Store
from tests.log_path import ask
from tests.unit_prometheus.fake_prometheus import recorded_fake, serving
from tests.unit_sources.conftest import sums

NewStore = Callable[[], Store]
EXPECTED = {"vllm-0": (23_528, 12_672), "llama-0": (42_264, 33_174)}
VLLM_ADDRESS = "127.0.0.1:39201"


class Clock:
    """Time as the test wants it."""

    def __init__(self, unix: float) -> None:
        self.unix = unix

    def __call__(self) -> float:
        return self.unix


def source(
    store: Store, address: str, clock: Clock, targets: TargetSettings | None = None,
    on_samples: Callable[[Sequence[EngineSample]], None] | None = None,
) -> PrometheusSource:  # fmt: skip
    settings = PrometheusSourceSettings(url=address, delay_seconds=0)
    made = PrometheusSource(store, settings, targets or TargetSettings(), on_samples, clock)
    made.stop()  # no pauses: a test does not wait for a server that is down
    made._stopped.clear()
    return made


@pytest.mark.parametrize("step", [1.0, 7.0])
def test_two_prometheus_of_one_fleet_are_one(new_store: NewStore, step: float) -> None:
    """In the store and in the totals /metrics is made of."""
    fake, began, ended = recorded_fake()
    store, clock, told = new_store(), Clock(began), []
    with serving(fake) as one, serving(fake) as other:
        readings = [source(store, address, clock, on_samples=told.extend)
                    for address in (one, other)]  # fmt: skip
        while clock.unix < ended + 70:
            for reading in readings:
                reading.read_once()
            clock.unix += step
    assert sums(store) == EXPECTED
    assert sum(sample.prompt_tokens or 0 for sample in told) == 23_528 + 42_264
    # Whoever finds an engine second goes on from the page the first had read last.
    pairs = ask(store, "source_pairs")
    assert pairs
    assert {pair["kind"] for pair in pairs} == {"two_readings"}
    for pair in pairs:
        assert pair["replica"] in EXPECTED
        assert (pair["difference_tokens"], pair["cached_difference_tokens"]) == (0, 0)
        assert pair["added"] is False


def test_the_second_goes_on_where_the_first_fell_silent(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    silent, _, _ = recorded_fake()
    store, clock = new_store(), Clock(began)
    with serving(silent) as one, serving(fake) as other:
        first, second = source(store, one, clock), source(store, other, clock)
        while clock.unix < ended + 70:
            if clock.unix > began + 20:
                silent.refuse = lambda _path, _headers: (401, {}, b"")
            first.read_once()
            second.read_once()
            clock.unix += 1
    assert first.error is not None
    assert sums(store) == EXPECTED


def test_what_the_settings_poll_is_not_read_even_before_the_first_poll(new_store: NewStore) -> None:
    """At the start nothing has been polled yet, so that no target is known."""
    fake, _, ended = recorded_fake()
    store = new_store()
    targets = TargetSettings(static=[StaticTarget(url=VLLM_ADDRESS, name="west")])
    with serving(fake) as address:
        source(store, address, Clock(ended), targets).read_once()
    assert set(sums(store)) == {"llama-0"}


def test_what_is_polled_from_now_on_is_read_no_more(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    store, clock = new_store(), Clock(began + 9)
    with serving(fake) as address:
        reading = source(store, address, clock)
        reading.read_once()
        before = sums(store)["vllm-0"]
        with store.write() as cursor:
            polled = TargetRow(VLLM_ADDRESS, url=f"http://{VLLM_ADDRESS}/metrics")
            upsert_targets(cursor, [polled])
        clock.unix = ended + 70
        reading.read_once()
    assert sums(store) == {"vllm-0": before, "llama-0": EXPECTED["llama-0"]}
    assert [row.target for row in reading.rows] == ["127.0.0.1:38543"]


@pytest.mark.parametrize("middle", [3.5, 12.0, 25.0, 40.0])
def test_a_backfill_beside_a_living_source_adds_nothing(new_store: NewStore, middle: float) -> None:
    """The live source begins while the plan of the back-fill still reaches up to now."""
    fake, began, ended = recorded_fake()
    store, clock = new_store(), Clock(began + middle)
    with serving(fake) as address:
        api = PrometheusApi(PrometheusSourceSettings(url=address))
        history = _Meanwhile(History(store, TargetSettings()), source(store, address, clock))
        backfill(api, history, BackfillSettings(0), began, ended)
        clock.unix = ended
        history.live.read_once()
    assert sums(store) == EXPECTED


class _Meanwhile:
    """A store's side where a live source reads between plan and pages."""

    def __init__(self, history: History, live: PrometheusSource) -> None:
        self._history = history
        self.live = live
        self.plan = history.plan

    def take(self, piece: Piece) -> Taken:
        self.live.read_once()
        return self._history.take(piece)
