"""The demo's files through the ordinary path: the store must find exactly the facts."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from exporter.sources.intake import Intake
from exporter.sources.packed import open_input
from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from prefixscope.demo import DemoFiles, write_demo
from prefixscope.demo.facts import Sums
from queries.registry import run

END = datetime(2026, 11, 5, 10, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    directory = tmp_path_factory.mktemp("demo") / "files"
    return write_demo(directory, end=END, days=1, requests=4_000)


@pytest.fixture(scope="module")
def store(demo: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store.open(tmp_path_factory.mktemp("store"))
    for source, paths in demo.logs.items():
        for path in paths:
            with path.open("rb") as file:
                summary = Intake(store).ingest(open_input(file), source=source)
            assert (summary.format, summary.rejected, summary.duplicate) == ("ndjson", 0, 0)
    pages = ingest_pages(store, demo.pages.values())
    assert (pages.unreadable, pages.foreign, pages.resets, pages.down) == (0, 0, 1, 1)
    yield store
    store.close()


def found(store: Store, dimension: str) -> dict[str, Sums]:
    return {
        row[dimension]: Sums(
            requests=row["requests"],
            reported_requests=row["reported_requests"],
            prompt_tokens=row["prompt_tokens"],
            reported_prompt_tokens=row["reported_prompt_tokens"],
            cached_tokens=row["cached_tokens"],
            output_tokens=row["output_tokens"],
        )
        for row in run(store.cursor(), "hit_ratio", {"by": dimension}).to_pylist()
    }


def test_the_log_side_finds_the_facts(demo: DemoFiles, store: Store) -> None:
    assert found(store, "route") == demo.facts.by_route
    assert found(store, "template") == demo.facts.by_template
    assert found(store, "replica") == demo.facts.by_replica
    assert found(store, "source") == demo.facts.by_source


def test_the_engine_side_finds_the_facts_to_the_token(demo: DemoFiles, store: Store) -> None:
    rows = run(store.cursor(), "engine_hit_ratio", {"by": "replica"}).to_pylist()
    assert {
        row["replica"]: (row["prompt_tokens"], row["cached_tokens"], row["lookup_hit_tokens"])
        for row in rows
    } == {
        replica: (sums.prompt_tokens, sums.cached_tokens, sums.cached_tokens)
        for replica, sums in demo.facts.engine.items()
    }
    assert {row["replica"]: row["resets"] for row in rows} == {
        replica: int(replica == "replica-2") for replica in demo.pages
    }


def test_coverage_is_what_the_two_gateways_report(demo: DemoFiles, store: Store) -> None:
    [row] = run(store.cursor(), "hit_ratio", {}).to_pylist()
    total = demo.facts.total
    assert row["coverage_ratio"] == total.reported_prompt_tokens / total.prompt_tokens < 1
    assert row["token_hit_ratio"] == total.cached_tokens / total.reported_prompt_tokens
