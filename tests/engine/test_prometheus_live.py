"""A real Prometheus and our own scraper watch one real vLLM that restarts: the same to the token.

Both poll every second, at moments of their own. Before and after each part of the traffic the
engine is quiet for some polls of both, so that what either misses at an edge is nothing. The
back-fill, the Prometheus as live source, our scraper and the client must then all agree.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.sources.prometheus.api import PrometheusApi
from exporter.sources.prometheus.backfill import BackfillSettings, BackfillSummary, backfill
from exporter.sources.prometheus.history import History
from exporter.sources.prometheus.live import PrometheusSource
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.scrape import Scraper, ScrapeSettings
from exporter.sources.target_settings import StaticTarget, TargetSettings
from exporter.store.store import Store
from tests.engine.live import ENGINE, ENGINE_DIR, INSTALL_AND_START_SECONDS, MODEL, needs_engine
from tests.running import ENVIRONMENT, free_port, get, running, wait_for
from tests.unit_prometheus.real_prometheus import (
    MISSING,
    PROMETHEUS,
    course,
    prometheus,
    within_one_poll,
)

pytestmark = [*needs_engine, pytest.mark.skipif(PROMETHEUS is None, reason=MISSING)]

POD = "gpu-0"
# Longer than a poll of either takes on a busy machine.
QUIET_SECONDS = 8
_SUMS = """
SELECT coalesce(sum(prompt_tokens), 0)::BIGINT, coalesce(sum(cached_tokens), 0)::BIGINT,
    sum(reset::INTEGER)::BIGINT, sum(output_tokens)::BIGINT, sum(lookup_tokens)::BIGINT,
    sum(lookup_hit_tokens)::BIGINT, sum(finished_requests)::BIGINT,
    sum(map_extract(ttft_buckets, 'inf'::DOUBLE)[1])::BIGINT,
    round(sum(ttft_sum_seconds), 6), round(sum(prefill_seconds), 6)
FROM engine_samples WHERE replica = $replica
"""


def sums(store: Store) -> tuple[object, ...]:
    """What the engine's counters rose by: prompt, cached, restarts, and so on."""
    row = store.cursor().execute(_SUMS, {"replica": POD}).fetchone()
    assert row is not None
    return tuple(row)


@dataclass
class Watched:
    """What a run left, and what its client was told: prompt and cached tokens, requests."""

    prometheus: str
    folder: Path
    targets: TargetSettings
    began: float
    ended: float
    own: Store
    live: Store
    client: tuple[int, int, int]


@contextmanager
def vllm_at(port: int, log: Path) -> Iterator[str]:
    """A vLLM with the tiny model at this very port, so that it can come back there."""
    ENGINE_DIR.mkdir(parents=True, exist_ok=True)
    command = ["bash", str(ENGINE / "start_vllm.sh"), str(ENGINE_DIR), MODEL, str(port)]
    address = f"http://127.0.0.1:{port}"
    with running(command, log) as process:
        wait_for("vLLM", lambda: get(f"{address}/health") == b"", INSTALL_AND_START_SECONDS,
                 process, log)  # fmt: skip
        yield address


def until(ready: Callable[[], bool], what: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"no {what} within {seconds} s"
        time.sleep(0.5)


def traffic(engine: str, out: Path) -> tuple[int, int, int]:
    """The mixed plan; prompt and cached tokens and requests as the client was told."""
    command = [sys.executable, str(ENGINE / "workload.py"), "--url", engine, "--out", str(out)]
    subprocess.run(command, check=True, env=ENVIRONMENT, timeout=900)
    usages = [json.loads(line)["usage"] for line in out.read_text(encoding="utf-8").splitlines()]
    cached = sum((usage["prompt_tokens_details"] or {}).get("cached_tokens", 0) for usage in usages)
    return sum(usage["prompt_tokens"] for usage in usages), cached, len(usages)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder, port = tmp_path_factory.mktemp("watched"), free_port(701)
    address = f"127.0.0.1:{port}"
    targets = TargetSettings(static=[StaticTarget(url=address, name="live", replica=POD)])
    own, live = Store.open(folder / "own"), Store.open(folder / "live")
    scraper = Scraper(own, ScrapeSettings(targets=targets, interval_seconds=1))
    with prometheus(folder / "server", {address: {"pod": POD}}) as server:
        settings = PrometheusSourceSettings(url=server, interval_seconds=1, delay_seconds=2)
        source = PrometheusSource(live, settings, TargetSettings())
        began, told = time.time(), []
        # Both look before the engine is there, so that all it ever counts is theirs to tell.
        scraper.start()
        source.start()
        try:
            for life in ("first", "second"):
                with vllm_at(port, folder / f"{life}.log") as engine:
                    until(lambda: sums(own)[0] is not None, "first page")
                    time.sleep(QUIET_SECONDS)
                    told.append(traffic(engine, folder / f"{life}.jsonl"))
                    time.sleep(QUIET_SECONDS)
                time.sleep(QUIET_SECONDS)
            ended = time.time()
            until(lambda: sums(live)[0] == sums(own)[0], "the Prometheus' last page")
        finally:
            source.stop()
            scraper.stop()
        first, second = told
        client = (first[0] + second[0], first[1] + second[1], first[2] + second[2])
        yield Watched(server, folder, targets, began, ended, own, live, client)
    for store in (own, live):
        store.close()


def fill(watched: Watched, name: str, every: float = 0) -> tuple[Store, BackfillSummary]:
    store = Store.open(watched.folder / name)
    api = PrometheusApi(PrometheusSourceSettings(url=watched.prometheus))
    summary = backfill(
        api, History(store, watched.targets), BackfillSettings(every), watched.began - 60,
        watched.ended,
    )  # fmt: skip
    return store, summary


def test_our_scraper_counted_what_the_client_was_told(watched: Watched) -> None:
    prompt, cached, resets, *_ = sums(watched.own)
    assert (prompt, cached) == watched.client[:2]
    assert resets == 1
    assert watched.client[0] > 0


@pytest.mark.parametrize("every", [0, 60])
def test_the_backfill_equals_our_scraper(watched: Watched, every: float) -> None:
    store, summary = fill(watched, f"filled-{every}", every)
    try:
        assert sums(store) == sums(watched.own)
    finally:
        store.close()
    (target,) = summary.targets
    assert (target.target, target.replica, target.resets) == ("live", POD, 1)


def test_the_prometheus_as_live_source_equals_it_too(watched: Watched) -> None:
    assert sums(watched.live) == sums(watched.own)


def test_a_backfill_beside_our_scraper_adds_nothing(watched: Watched) -> None:
    before = sums(watched.own)
    api = PrometheusApi(PrometheusSourceSettings(url=watched.prometheus))
    history = History(watched.own, watched.targets)
    backfill(api, history, BackfillSettings(0), watched.began - 60, watched.ended)
    assert sums(watched.own) == before


def test_at_every_moment_they_are_within_one_poll(watched: Watched) -> None:
    store, _ = fill(watched, "course")
    try:
        assert within_one_poll(course(store, POD), course(watched.own, POD)) > 20
    finally:
        store.close()
