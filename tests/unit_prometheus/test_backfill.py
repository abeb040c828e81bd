"""History out of recorded answers of a real Prometheus: sums, resets, resuming, overlap.

The recordings' sums are those of the captures' README: vLLM counted 23,528 prompt tokens over a
restart, 12,672 of them cached; llama.cpp 42,264 and 33,174.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.sources.page_files import RecordedPage
from exporter.sources.pages import PageIntake, PagesSummary
from exporter.sources.prometheus import backfill as prometheus_backfill
from exporter.sources.prometheus.api import PrometheusApi
from exporter.sources.prometheus.backfill import BackfillSettings, BackfillSummary, backfill
from exporter.sources.prometheus.history import History, Piece, Plan, Taken
from exporter.sources.prometheus.names import AskedTarget
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.target_settings import StaticTarget, TargetSettings
from exporter.sources.target_state import TargetIdentity
from exporter.store.samples import append_samples, upsert_targets
from exporter.store.store import Store
from tests.unit_prometheus.fake_prometheus import Fake, recorded_fake, serving

NewStore = Callable[[str], Store]
VLLM, LLAMA = (23_528, 12_672), (42_264, 33_174)


def fill(
    store: Store, fake: Fake, since: float, until: float, every: float = 0,
    targets: TargetSettings | None = None, history: object = None,
) -> BackfillSummary:  # fmt: skip
    with serving(fake) as address:
        api = PrometheusApi(PrometheusSourceSettings(url=address), lambda _seconds: None)
        side = history or History(store, targets or TargetSettings())
        return backfill(api, side, BackfillSettings(every), since, until)  # type: ignore[arg-type]


def sums(store: Store) -> dict[str, tuple[int, int]]:
    rows = store.cursor().execute(
        "SELECT replica, coalesce(sum(prompt_tokens), 0)::BIGINT,"
        " coalesce(sum(cached_tokens), 0)::BIGINT FROM engine_samples GROUP BY replica"
    )
    return {replica: (prompt, cached) for replica, prompt, cached in rows.fetchall()}


def everything(store: Store) -> list[tuple[object, ...]]:
    """All samples, in an order of their own."""
    # Every run has a server of its own, whose address goes with the samples.
    rows = store.cursor().execute(
        "SELECT * EXCLUDE (origin_name) FROM engine_samples ORDER BY target, ts, replica, model"
    )
    return rows.fetchall()


def test_sums_restart_and_failure(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    store = new_store("a")
    summary = fill(store, fake, began, ended)
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}
    told = {target.replica: target for target in summary.targets}
    # 21 scrapes of each, of vLLM's three failed in a row: told once.
    assert (told["vllm-0"].pages, told["vllm-0"].down, told["vllm-0"].resets) == (18, 1, 1)
    assert (told["llama-0"].pages, told["llama-0"].down, told["llama-0"].resets) == (21, 0, 0)
    assert told["vllm-0"].gaps == 1
    assert told["vllm-0"].first_unix == 1796014081.345
    assert told["vllm-0"].last_unix == 1796014121.357
    assert "vllm:prompt_tokens" in told["vllm-0"].families
    assert summary.retention == "90d"
    assert told["vllm-0"].target == "127.0.0.1:39201"


def test_thinned_pages_are_the_same_sums(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    store = new_store("a")
    summary = fill(store, fake, began, ended, every=60)
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}
    told = {target.replica: target for target in summary.targets}
    # First and last page; of vLLM also those before and after the failure.
    assert (told["vllm-0"].pages, told["llama-0"].pages) == (4, 2)
    assert told["vllm-0"].resets == 1


@pytest.mark.parametrize("left_open", [False, True])
def test_a_second_run_adds_nothing(new_store: NewStore, left_open: bool) -> None:
    fake, began, ended = recorded_fake()
    fake.left_open = left_open
    store = new_store("a")
    fill(store, fake, began, ended)
    rows = everything(store)
    again = fill(store, fake, began, ended)
    assert everything(store) == rows
    assert sum(target.pages for target in again.targets) == 0
    assert {kind for target in again.targets for kind, _, _ in target.covered} == {"filled"}


@pytest.mark.parametrize("middle", [3.5, 10.0, 16.0, 22.0, 24.0, 33.0])
def test_two_runs_side_by_side_are_one(new_store: NewStore, middle: float) -> None:
    """Wherever they meet, restart and failure included, and in either order."""
    fake, began, ended = recorded_fake()
    whole, forward, backward = new_store("whole"), new_store("forward"), new_store("backward")
    fill(whole, fake, began, ended)
    fill(forward, fake, began, began + middle)
    fill(forward, fake, began, ended)
    assert everything(forward) == everything(whole)
    fill(backward, fake, began + middle, ended)
    fill(backward, fake, began, ended)
    assert sums(backward) == sums(whole)


def test_small_answers_are_the_same(new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, began, ended = recorded_fake()
    whole, pieces = new_store("whole"), new_store("pieces")
    fill(whole, fake, began, ended)
    monkeypatch.setattr(prometheus_backfill, "FIRST_WINDOW_SECONDS", 3.0)
    monkeypatch.setattr(prometheus_backfill, "SHORTEST_WINDOW_SECONDS", 1.0)
    monkeypatch.setattr(prometheus_backfill, "SAMPLES_PER_ANSWER", 400)
    fill(pieces, fake, began, ended)
    assert everything(pieces) == everything(whole)
    for every in (5.0, 60.0):
        thin, whole_thin = new_store(f"thin{every}"), new_store(f"whole{every}")
        fill(thin, fake, began, ended, every)
        assert sums(thin) == sums(whole)
        with monkeypatch.context() as wide:
            wide.setattr(prometheus_backfill, "FIRST_WINDOW_SECONDS", 3600.0)
            wide.setattr(prometheus_backfill, "SAMPLES_PER_ANSWER", 200_000)
            fill(whole_thin, fake, began, ended, every)
        assert everything(thin) == everything(whole_thin)


def test_a_server_that_finds_it_too_much_is_asked_for_less(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, began, ended = recorded_fake()
    fake.most_samples = 900
    monkeypatch.setattr(prometheus_backfill, "SHORTEST_WINDOW_SECONDS", 1.0)
    store = new_store("a")
    fill(store, fake, began, ended)
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}
    assert 0 < fake.largest_answer <= 900


class Killed(Exception):
    """The end of a process, as far as its store can tell."""


class Mortal:
    """A store's side that dies at its n-th piece, before or after the commit."""

    def __init__(self, history: History, dies_at: int, committed: bool) -> None:
        self._history = history
        self._left = dies_at
        self._committed = committed

    def plan(self, asked: AskedTarget, since: float, until: float) -> Plan:
        return self._history.plan(asked, since, until)

    def take(self, piece: Piece) -> Taken:
        self._left -= 1
        if self._left < 0 and not self._committed:
            raise Killed
        taken = self._history.take(piece)
        if self._left < 0:
            raise Killed
        return taken


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("every", [0, 60])
def test_killed_anywhere_and_run_again_is_the_same(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch, every: float, committed: bool
) -> None:
    fake, began, ended = recorded_fake()
    monkeypatch.setattr(prometheus_backfill, "FIRST_WINDOW_SECONDS", 4.0)
    monkeypatch.setattr(prometheus_backfill, "SHORTEST_WINDOW_SECONDS", 4.0)
    monkeypatch.setattr(prometheus_backfill, "SAMPLES_PER_ANSWER", 1)
    monkeypatch.setattr(prometheus_backfill, "PAGES_PER_PIECE", 1)
    whole, store = new_store("whole"), new_store("killed")
    fill(whole, fake, began, ended, every)
    deaths = 0
    for dies_at in (0, 1, 1, 2, 0, 3, 2, 99):
        store = new_store("killed")
        mortal = Mortal(History(store, TargetSettings()), dies_at, committed)
        try:
            fill(store, fake, began, ended, every, history=mortal)
        except Killed:
            deaths += 1
    assert deaths >= (3 if every else 7)
    assert everything(store) == everything(whole)


def test_what_was_scraped_is_not_filled(new_store: NewStore, tmp_path: Path) -> None:
    """Our own scraper polled from the middle on, at other moments than the Prometheus."""
    fake, began, ended = recorded_fake()
    store = new_store("a")
    with serving(fake) as address:
        api = PrometheusApi(PrometheusSourceSettings(url=address))
        raw = api.raw('{__name__=~"vllm:.*",job="engines"}', began, ended)
    pages = prometheus_pages(raw)
    polled = [(unix + 0.7, text) for unix, text in pages if unix > began + 9]
    scrape(store, "127.0.0.1:39201", "vllm-0", polled)
    own = everything(store)
    fill(store, fake, began, ended)
    # Before our first poll (at 4712 prompt tokens) that many were counted.
    assert sums(store) == {"vllm-0": VLLM, "llama-0": LLAMA}
    assert [row for row in everything(store) if row in own] == own


def prometheus_pages(raw: object) -> list[tuple[float, str]]:
    from exporter.sources.prometheus.pages import pages_of

    labels = {"job": "engines", "pod": "vllm-0", "instance": "127.0.0.1:39201"}
    pages = pages_of(raw, labels)  # type: ignore[arg-type]
    return [(page.unix, page.text) for page in pages if page.text is not None]


def scrape(store: Store, target: str, replica: str, pages: list[tuple[float, str]]) -> None:
    """As the scraper leaves it: samples, and a target with an address and its state."""
    intake = PageIntake(TargetIdentity(target, replica), None, PagesSummary())
    samples = [s for unix, text in pages
               for s in intake.take(RecordedPage(target, unix, None, text=text))]  # fmt: skip
    with store.write() as cursor:
        append_samples(cursor, samples)
        rows = [replace(row, url=f"http://{target}/metrics") for row in intake.rows()]
        upsert_targets(cursor, rows)


def test_targets_are_called_what_our_settings_call_them(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    static = StaticTarget(url="127.0.0.1:39201", name="west", replica="west-1", role="prefill")
    store = new_store("a")
    fill(store, fake, began, ended, targets=TargetSettings(static=[static]))
    told = store.cursor().execute("SELECT DISTINCT target, replica, role FROM engine_samples")
    assert set(told.fetchall()) == {
        ("west", "west-1", "prefill"), ("127.0.0.1:38543", "llama-0", "unified"),
    }  # fmt: skip


def test_targets_are_called_what_an_earlier_scrape_called_them(new_store: NewStore) -> None:
    fake, began, ended = recorded_fake()
    store = new_store("a")
    page = 'vllm:prompt_tokens_total{engine="0",model_name="tiny"} 9\n'
    scrape(store, "127.0.0.1:39201", "gpu-7", [(ended + 60, page)])
    fill(store, fake, began, ended)
    assert set(sums(store)) == {"gpu-7", "llama-0"}


def test_no_engine_is_no_error(new_store: NewStore) -> None:
    fake = Fake([{"metric": {"__name__": "up", "job": "node"}, "values": [[1000.0, "1"]]}])
    summary = fill(new_store("a"), fake, 0, 2000)
    assert summary.targets == []
    assert summary.first_unix is None
