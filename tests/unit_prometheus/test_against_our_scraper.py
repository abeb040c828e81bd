"""One Prometheus and our own scraper poll the same engines: both must tell the same tokens.

The engines serve recorded pages, each until both have scraped it, so that at the moments in
between figures are equal to the token. A restart and a failure are among the pages.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exporter.sources.prometheus.api import PrometheusApi
from exporter.sources.prometheus.backfill import BackfillSettings, BackfillSummary, backfill
from exporter.sources.prometheus.history import History
from exporter.sources.prometheus.live import PrometheusSource
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.scrape import Scraper, ScrapeSettings
from exporter.sources.target_settings import PrometheusDiscovery, TargetSettings
from exporter.store.store import Store
from prefixscope.client import Exporter
from prefixscope.history_client import RemoteHistory
from prefixscope.serve import running as serving
from prefixscope.settings import Settings, StoreSection
from tests.running import eventually
from tests.unit_prometheus.real_prometheus import (
    CAPTURES,
    MISSING,
    PROMETHEUS,
    Engine,
    course,
    prometheus,
    recorded,
    within_one_poll,
)

pytestmark = [
    pytest.mark.skipif(PROMETHEUS is None, reason=MISSING),
    pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not on this machine"),
]

# What the captures' README says each recording sums up to: prompt and cached tokens, restarts.
EXPECTED = {
    "restarted": (23_528, 12_672, 1),
    "vllm-main": (43_832, 29_696, 0),
    "llama": (42_264, 33_174, 0),
    "dp2/0": None,
    "dp2/1": None,
}
DP2_TOKENS = (42_264, 23_584)
FOLDERS = {
    "restarted": "vllm-0.32.0/restart/metrics",
    "vllm-main": "vllm-0.32.0/main/metrics",
    "llama": "llama.cpp-b11434/mixed/metrics",
    "dp2": "vllm-0.32.0/dp2/metrics",
}

Sums = dict[str, tuple[object, ...]]
_SUMS = """
SELECT replica, sum(prompt_tokens), sum(cached_tokens), sum(reset::INTEGER),
    sum(output_tokens), sum(lookup_tokens), sum(lookup_hit_tokens), sum(finished_requests),
    round(sum(prefill_seconds), 6), round(sum(ttft_sum_seconds), 6),
    sum(map_extract(ttft_buckets, 'inf'::DOUBLE)[1])
FROM engine_samples WHERE epoch(ts) <= $until GROUP BY replica ORDER BY replica
"""


def sums(store: Store, until: float = 4e9) -> Sums:
    """Per replica what its counters rose by up to a moment."""
    rows = store.cursor().execute(_SUMS, {"until": until}).fetchall()
    return {row[0]: row[1:] for row in rows}


def samples(store: Store) -> int:
    row = store.cursor().execute("SELECT count(*) FROM engine_samples").fetchone()
    assert row is not None
    return int(row[0])


@dataclass
class Lab:
    """What a run left: a Prometheus that still answers and the stores others filled meanwhile."""

    folder: Path
    prometheus: str
    began: float
    ended: float
    moments: list[float]
    own: Store
    late: Store
    live: Store
    stores: list[Store] = field(default_factory=list)

    def store(self, name: str) -> Store:
        """A new, empty store."""
        opened = Store.open(self.folder / name)
        self.stores.append(opened)
        return opened

    def fill(self, store: Store, every: float = 0, until: float | None = None) -> BackfillSummary:
        """Back-fill all of the run into a store."""
        api = PrometheusApi(PrometheusSourceSettings(url=self.prometheus))
        settings = BackfillSettings(every_seconds=every)
        history = History(store, TargetSettings())
        return backfill(api, history, settings, self.began - 600, until or self.ended)


@contextmanager
def scraping(store: Store, address: str) -> Iterator[Scraper]:
    targets = TargetSettings(prometheus=[PrometheusDiscovery(url=address)])
    scraper = Scraper(store, ScrapeSettings(targets=targets, interval_seconds=1))
    scraper.start()
    try:
        yield scraper
    finally:
        scraper.stop()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("prometheus")
    engines = {pod: Engine(recorded(CAPTURES / path)) for pod, path in FOLDERS.items()}
    targets = {engine.address: {"pod": pod} for pod, engine in engines.items()}
    own, late, live = (Store.open(folder / name) for name in ("own", "late", "live"))
    try:
        with prometheus(folder / "server", targets) as address:
            api = PrometheusApi(PrometheusSourceSettings(url=address))
            began = time.time()
            eventually(
                "first scrape by the Prometheus",
                lambda: len(api.series('{__name__="up"}', began, time.time() + 9)) == 4,
            )
            source = PrometheusSource(
                live, PrometheusSourceSettings(url=address, interval_seconds=1, delay_seconds=1),
                TargetSettings(),
            )  # fmt: skip
            with scraping(own, address) as scraper:
                eventually(
                    "first scrape of ours", lambda: scraper.tried_all and len(sums(own)) == 5
                )
                source.start()
                eventually("first page out of the Prometheus", lambda: len(sums(live)) == 5)
                moments = replay(engines, late, address, scraper)
                ended = time.time()
                eventually(
                    "last page",
                    lambda: all(
                        r.last_success and r.last_success.timestamp() > ended for r in source.rows
                    ),
                )
            source.stop()
            yield (made := Lab(folder, address, began, ended, moments, own, late, live))
            for store in made.stores:
                store.close()
    finally:
        for engine in engines.values():
            engine.close()
        for store in (own, late, live):
            store.close()


def replay(engines: dict[str, Engine], late: Store, address: str, scraper: Scraper) -> list[float]:
    """Every page of every engine until both have it; from the middle on a second scraper of ours
    too. The moments at which all have."""
    api = PrometheusApi(PrometheusSourceSettings(url=address))
    moments = []
    others: list[Scraper] = []
    steps = max(len(engine.pages) for engine in engines.values()) - 1
    middle = steps // 2

    def step() -> None:
        for engine in engines.values():
            engine.position += 1
        turned = time.time()
        polling = [scraper, *others]
        eventually("poll of ours", lambda: all(polled_since(turned, one) for one in polling))
        eventually("scrape by the Prometheus", lambda: scraped_since(turned, api))
        moments.append(time.time())

    for _ in range(middle):
        step()
    with scraping(late, address) as second:
        others.append(second)
        eventually("first scrape of the late one", lambda: len(sums(late)) == 5)
        for _ in range(steps - middle):
            step()
    return moments


def polled_since(unix: float, scraper: Scraper) -> bool:
    """Whether every target was asked after that moment, and has answered."""
    return all(
        row.last_attempt is not None
        and row.last_attempt.timestamp() - (row.duration_seconds or 0) > unix
        for row in scraper.rows
    )


def scraped_since(unix: float, api: PrometheusApi) -> bool:
    """The same of the Prometheus, which stamps a scrape when it begins."""
    told = api.raw('{__name__="up",job="engines"}', unix, time.time() + 1)
    return sum(any(ms > unix * 1000 for ms in one.times) for one in told) == len(FOLDERS)


def test_the_run_told_what_the_recordings_hold(lab: Lab) -> None:
    told = sums(lab.own)
    assert set(told) == set(EXPECTED)
    for replica, expected in EXPECTED.items():
        if expected is not None:
            assert told[replica][:3] == expected, replica
    ranks = [told["dp2/0"], told["dp2/1"]]
    assert tuple(sum(int(str(rank[n])) for rank in ranks) for n in (0, 1)) == DP2_TOKENS


def test_backfill_equals_our_scraper_at_every_moment(lab: Lab) -> None:
    store = lab.store("filled")
    summary = lab.fill(store)
    assert sums(store) == sums(lab.own)
    # A poll of ours that timed out on a loaded machine makes us a page late, and no more than that.
    moments = [lab.began, *lab.moments, lab.ended]
    late = [moment for moment in lab.moments if sums(store, moment) != sums(lab.own, moment)]
    assert len(late) <= len(lab.moments) / 4
    for before, moment, after in zip(moments, moments[1:], moments[2:], strict=False):
        least, told_then, most = sums(lab.own, before), sums(store, moment), sums(lab.own, after)
        for replica, (prompt_tokens, cached_tokens, *_) in told_then.items():
            assert least.get(replica, (0, 0))[0] <= prompt_tokens <= most[replica][0]
            assert least.get(replica, (0, 0))[1] <= cached_tokens <= most[replica][1]
    assert {told.replica for told in summary.targets} == set(FOLDERS)
    assert all(told.first_unix and told.first_unix < lab.moments[0] for told in summary.targets)


def test_between_those_moments_they_are_within_one_poll(lab: Lab) -> None:
    store = lab.store("course")
    lab.fill(store)
    for replica in EXPECTED:
        assert within_one_poll(course(store, replica), course(lab.own, replica)) > 10


def test_fewer_pages_are_the_same_sums(lab: Lab) -> None:
    store, whole = lab.store("thinned"), lab.store("whole")
    lab.fill(store, every=60)
    lab.fill(whole)
    assert sums(store) == sums(whole)
    # Per replica the first and last page, and those beside restart and failure.
    assert samples(store) < samples(whole) / 4


def test_what_our_scraper_covered_is_not_filled(lab: Lab) -> None:
    before, rows = sums(lab.own), samples(lab.own)
    lab.fill(lab.own)
    assert sums(lab.own) == before
    # Nothing but the pages before our first one, all of them alike.
    assert samples(lab.own) >= rows
    own = lab.own.cursor().execute(
        "SELECT max(ts) FROM engine_samples s WHERE EXISTS (FROM backfills b"
        " WHERE b.target = s.target AND s.ts BETWEEN b.first AND b.until)"
    ).fetchone()  # fmt: skip
    assert own is None or own[0] is None or own[0].timestamp() < lab.moments[0]


def test_a_scraper_that_came_late_gets_the_rest_from_before(lab: Lab) -> None:
    assert sums(lab.late) != sums(lab.own)
    lab.fill(lab.late)
    assert sums(lab.late) == sums(lab.own)
    lab.fill(lab.late)
    assert sums(lab.late) == sums(lab.own)


def test_a_prometheus_as_live_source_tells_the_same(lab: Lab) -> None:
    assert sums(lab.live) == sums(lab.own)
    before = samples(lab.live)
    lab.fill(lab.live)
    assert sums(lab.live) == sums(lab.own)
    assert samples(lab.live) >= before


def test_two_runs_that_meet_are_one(lab: Lab) -> None:
    store, whole = lab.store("twice"), lab.store("once")
    lab.fill(store, until=lab.moments[3])
    lab.fill(store)
    lab.fill(whole)
    assert sums(store) == sums(whole)
    assert samples(store) == samples(whole)


def test_into_a_running_exporter(lab: Lab) -> None:
    settings = Settings.model_validate(
        {"server": {"listen": "127.0.0.1:0"}, "store": StoreSection(directory=lab.folder / "http")}
    )
    api = PrometheusApi(PrometheusSourceSettings(url=lab.prometheus))
    with serving(settings) as exporter:
        for _ in range(2):
            backfill(api, RemoteHistory(Exporter(exporter.url)), BackfillSettings(0.0),
                     lab.began - 600, lab.ended)  # fmt: skip
    assert sums(lab.store("http")) == sums(lab.own)
