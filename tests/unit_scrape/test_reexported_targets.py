"""One engine's counters on two pages: its own, and one of a program that re-exports them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.sources.scrape import Scraper, ScrapeSettings
from exporter.store.samples import load_targets
from exporter.store.store import Store

Pages = dict[str, tuple[str | None, str]]
Serve = Callable[[Pages], str]
TEXT = "text/plain; version=0.0.4"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store")
    yield opened
    opened.close()


def page(prompt: int, *, model: str = "m", **labels: str) -> tuple[str, str]:
    whole = {"engine": "0", "model_name": model, **labels}
    text = ",".join(f'{name}="{value}"' for name, value in whole.items())
    return TEXT, (
        f"vllm:prompt_tokens_total{{{text}}} {prompt}\n"
        f"vllm:prompt_tokens_cached_total{{{text}}} {prompt // 2}\n"
    )


def dynamo(prompt: int, model: str = "m") -> tuple[str, str]:
    return page(prompt, model=model, dynamo_component="backend", worker_id="7")


def scraper_of(store: Store, urls: dict[str, str]) -> Scraper:
    static = [{"url": url, "name": name} for name, url in urls.items()]
    return Scraper(store, ScrapeSettings.model_validate({"targets": {"static": static}}))


def counted(store: Store) -> dict[str, int]:
    rows = store.cursor().execute(
        "SELECT replica, sum(prompt_tokens)::BIGINT FROM engine_samples"
        " WHERE prompt_tokens IS NOT NULL GROUP BY ALL"
    )
    return dict(rows.fetchall())


@pytest.mark.parametrize("names", [("engine", "worker"), ("z-engine", "a-worker")])
def test_copies_of_an_engine_on_the_same_host_are_left_out(
    store: Store, serve: Serve, names: tuple[str, str]
) -> None:
    engine, worker = names
    pages: Pages = {"/metrics": page(5000), "/system": dynamo(5000)}
    url = serve(pages)
    scraper = scraper_of(store, {worker: f"{url}/system", engine: f"{url}/metrics"})
    scraper.scrape_once()
    pages |= {"/metrics": page(5300), "/system": dynamo(5300)}
    scraper.scrape_once()
    scraper.stop()
    assert counted(store) == {engine: 300}
    assert store.cursor().execute("SELECT DISTINCT replica FROM engine_samples").fetchall() == [
        (engine,)
    ]
    row = load_targets(store.cursor())[worker]
    assert row.up is True
    assert row.error == (
        f"vllm series re-exported by dynamo are read from target {engine}, not counted twice"
    )


def test_copies_count_where_nobody_shows_the_engine_itself(store: Store, serve: Serve) -> None:
    pages: Pages = {"/system": dynamo(5000), "/metrics": page(700, model="another")}
    url = serve(pages)
    scraper = scraper_of(store, {"worker": f"{url}/system", "other": f"{url}/metrics"})
    scraper.scrape_once()
    pages |= {"/system": dynamo(5300), "/metrics": page(710, model="another")}
    scraper.scrape_once()
    scraper.stop()
    assert counted(store) == {"worker": 300, "other": 10}
    exported = store.cursor().execute(
        "SELECT DISTINCT replica, exported_by FROM engine_samples ORDER BY ALL"
    )
    assert exported.fetchall() == [("other", None), ("worker", "dynamo")]


def test_copies_count_while_the_engines_own_page_is_down(store: Store, serve: Serve) -> None:
    pages: Pages = {"/metrics": page(5000), "/system": dynamo(5000)}
    url = serve(pages)
    scraper = scraper_of(store, {"worker": f"{url}/system", "engine": f"{url}/metrics"})
    scraper.scrape_once()
    del pages["/metrics"]
    scraper.scrape_once()
    pages["/system"] = dynamo(5040)
    scraper.scrape_once()
    scraper.stop()
    assert counted(store) == {"worker": 40}


def test_a_router_or_gateway_on_the_same_host_is_no_copy(store: Store, serve: Serve) -> None:
    """The rule is about engine series that carry the re-exporter's label, nothing else."""
    pages: Pages = {"/a": page(100), "/b": page(100)}
    url = serve(pages)
    scraper = scraper_of(store, {"a": f"{url}/a", "b": f"{url}/b"})
    scraper.scrape_once()
    pages |= {"/a": page(110), "/b": page(120)}
    scraper.scrape_once()
    scraper.stop()
    assert counted(store) == {"a": 10, "b": 20}
