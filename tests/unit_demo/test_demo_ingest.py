"""The demo's files through the ordinary path: the store must find exactly the facts, and what is
wrong with the layout of its prompts."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from exporter.isolation.judge import judge_newest_scopes
from exporter.isolation.settings import IsolationSettings
from exporter.layout_found.judge import judge_newest
from exporter.sources.intake import Intake
from exporter.sources.packed import open_input
from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from prefixscope.demo import DemoFiles, write_demo
from prefixscope.demo.facts import Sums
from queries.registry import run
from replay.mended import with_mended
from replay.recorded_rows import recorded_rows

END = datetime(2026, 11, 5, 10, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    directory = tmp_path_factory.mktemp("demo") / "files"
    return write_demo(directory, end=END, days=1, requests=4_000, hash_key="k" * 64)


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


def test_layout_findings_name_the_time_and_the_greeting(store: Store) -> None:
    judge_newest(store)
    rows = run(store.cursor(), "layout", {}).to_pylist()
    found = {row["template"]: row for row in rows if row["kind"] == "unknown"}
    assert {name: row["frequency"] for name, row in found.items()} == {
        "triage": "request", "support-desk": "session",
    }  # fmt: skip
    for row in found.values():
        assert (row["from_token"], row["until_token"]) == (0, 64)
        assert row["requests"] == row["template_requests"] > 10
    # Behind the block with the time are 12 whole blocks of 850 tokens of system text: all but the
    # first request of each scope would find them.
    asked = store.cursor().execute(
        """SELECT count(*), count(DISTINCT coalesce(scope, '')) FROM requests
        WHERE template = 'triage' AND len(block_hashes) > 0"""
    )
    [(requests, scopes)] = asked.fetchall()
    assert found["triage"]["requests"] == requests
    assert found["triage"]["gain_tokens"] == (requests - scopes) * 12 * 64


def test_scopes_keep_apart_what_all_ask(store: Store) -> None:
    judge_newest_scopes(store, IsolationSettings())
    rows = run(store.cursor(), "isolation", {}).to_pylist()
    assert sum(row["merged_tokens"] for row in rows) > 0
    for row in rows:
        assert row["scope"] != row["other_scope"]
        assert {row["tenants"], row["other_tenants"]} & {"cedar", "dogwood"}
    prefixes = run(store.cursor(), "public_prefixes", {}).to_pylist()
    assert {row["tokens"] for row in prefixes if row["scopes"] == 3} >= {896}  # of the assistant


def test_the_traffic_can_be_replayed_merged_and_mended(store: Store) -> None:
    read = recorded_rows(run(store.cursor(), "request_chains", {}))
    assert read is not None
    recorded = with_mended(read.recorded, read.table)
    assert recorded.merged is not None
    assert recorded.mended is not None
    assert len(recorded.mended_words) == 2
