"""From an engine's page over scraper and store to /metrics, with real captured pages."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from exporter.collector import Collector, Inputs
from exporter.engine_totals import EngineTotals
from exporter.sources.scrape import Scraper, ScrapeSettings
from exporter.sources.target_settings import StaticTarget, TargetSettings
from exporter.store.store import Store

PAGES = Path(__file__).parents[3] / "shared" / "captures" / "vllm-0.32.0" / "main" / "metrics"
needs_captures = pytest.mark.skipif(
    not PAGES.exists(), reason="the captures are not on this machine"
)


class Engine:
    """Serves one captured page after the other, under any path."""

    def __init__(self) -> None:
        self.page = b""
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
                self.end_headers()
                self.wfile.write(engine.page)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"

    def show(self, name: str) -> None:
        self.page = (PAGES / name).read_bytes()


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    thread = threading.Thread(target=engine.server.serve_forever, args=(0.02,))
    thread.start()
    yield engine
    engine.server.shutdown()
    thread.join()
    engine.server.server_close()


class House:
    """A store, its scraper and its metrics, as the exporter puts them together."""

    def __init__(self, folder: Path, *targets: StaticTarget) -> None:
        self.store = Store.open(folder)
        self.totals = EngineTotals()
        self.totals.restore(self.store.cursor())
        settings = ScrapeSettings(targets=TargetSettings(static=list(targets)))
        self.scraper = Scraper(self.store, settings, self.totals.add, self.totals.keep_only)
        self.collector = Collector(
            Inputs(
                counters=self.store.counters.snapshot,
                engines=self.totals.snapshot,
                targets=lambda: self.scraper.rows,
                store_file=self.store.path,
                version="1",
            )
        )

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        page = self.collector.render(openmetrics=False).decode()
        samples = (s for family in parse_classic(page) for s in family.samples if s.name == name)
        return {tuple(s.labels.values()): s.value for s in samples}

    def close(self) -> None:
        self.scraper.stop()
        self.store.close()


@needs_captures
def test_engine_counters_are_increases_between_scrapes(tmp_path: Path, engine: Engine) -> None:
    house = House(tmp_path / "store", StaticTarget(url=engine.url, name="vllm-1"))
    prompt, cached = (f"prefixcache_engine_{kind}_tokens_total" for kind in ("prompt", "cached"))
    engine.show("00-before.prom")
    house.scraper.scrape_once()
    # The first scrape is the baseline, whatever the engine has counted before.
    assert house.values(prompt) == {("tiny", "vllm-1"): 0}
    engine.show("10-end.prom")
    house.scraper.scrape_once()
    assert house.values(prompt) == {("tiny", "vllm-1"): 43_832}
    tiers = house.values(cached)
    assert tiers["tiny", "vllm-1", "device"] == 29_696
    assert sum(tiers.values()) == 29_696
    assert house.values("prefixscope_target_up") == {("vllm-1",): 1}
    assert house.values("prefixcache_kv_capacity_tokens")["tiny", "vllm-1"] > 0
    house.close()


@needs_captures
def test_t48_a_target_removed_from_the_settings_has_no_series(
    tmp_path: Path, engine: Engine
) -> None:
    a, b = (StaticTarget(url=engine.url + f"?{name}", name=name) for name in "ab")
    engine.show("00-before.prom")
    house = House(tmp_path / "store", a, b)
    house.scraper.scrape_once()
    assert set(house.values("prefixscope_target_up")) == {("a",), ("b",)}
    house.close()
    house = House(tmp_path / "store", a)
    house.scraper.scrape_once()
    assert house.values("prefixscope_target_up") == {("a",): 1}
    assert {key[1] for key in house.values("prefixcache_engine_prompt_tokens_total")} == {"a"}
    engine.page = b"<html>not a metrics page</html>"
    house.scraper.scrape_once()
    assert house.values("prefixscope_target_up") == {("a",): 0}
    house.close()


@needs_captures
def test_after_a_restart_known_replicas_begin_at_zero(tmp_path: Path, engine: Engine) -> None:
    target = StaticTarget(url=engine.url, name="vllm-1")
    house = House(tmp_path / "store", target)
    engine.show("00-before.prom")
    house.scraper.scrape_once()
    house.close()
    house = House(tmp_path / "store", target)
    name = "prefixcache_engine_prompt_tokens_total"
    assert house.values(name) == {("tiny", "vllm-1"): 0}
    engine.show("10-end.prom")
    house.scraper.scrape_once()
    assert house.values(name) == {("tiny", "vllm-1"): 43_832}
    house.close()
