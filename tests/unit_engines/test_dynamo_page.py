"""Dynamo: what it re-exports is the engine's, what it counts itself is a router's or a store's."""

from pathlib import Path

import pytest

from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from tests.unit_engines.conftest import Through, write_pages

PAGES = Path(__file__).parent / "pages" / "dynamo"
INJECTED = (
    'dynamo_namespace="d",dynamo_component="backend",dynamo_endpoint="generate",'
    'worker_id="7",model="small",model_name="small",engine="0"'
)


def written(era: str) -> list[bytes]:
    return [(PAGES / f"{era}{end}.txt").read_bytes() for end in ("", ".2")]


def worker(prompt: int | None, cached: int = 0, matched: int | None = None) -> str:
    """A worker's page: the engine's series with Dynamo's labels, KVBM's own beside them."""
    lines = []
    if prompt is not None:
        lines += [
            f"vllm:prompt_tokens_total{{{INJECTED}}} {prompt}",
            f"vllm:prompt_tokens_cached_total{{{INJECTED}}} {cached}",
        ]
    if matched is not None:
        lines += ["# TYPE dynamo_kvbm_matched_tokens counter",
                  f"dynamo_kvbm_matched_tokens {matched}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def test_t22_the_denominator_is_the_engines_or_there_is_none(through: Through) -> None:
    known = [worker(0, matched=0), worker(20_000, matched=7000)]
    (row,) = through({"worker": known}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (7000, 20_000, 0.35)
    assert row["denominator"] == "prompt tokens of the engine on the same page"
    unknown = [worker(None, matched=0), worker(None, matched=7000)]
    (row,) = through({"kvbm": unknown}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (7000, None, None)
    assert row["caution"] == "an amount: nothing tells of how many"


def test_re_exported_series_are_read_as_the_engines_and_named(tmp_path: Path) -> None:
    write_pages(tmp_path / "pages" / "worker", [worker(0), worker(1000, 600)])
    store = Store.open(tmp_path / "store")
    ingest_pages(store, [tmp_path / "pages"])
    found = store.cursor().execute(
        "SELECT engine, observer, exported_by, prompt_tokens, cached_tokens FROM engine_samples "
        "WHERE since IS NOT NULL"
    )
    assert found.fetchall() == [("vllm", "engine", "dynamo", 1000, 600)]
    store.close()


def test_frontend_and_worker_are_not_added(through: Through) -> None:
    targets = {
        "frontend": written("frontend-1.6.1"),
        "worker": [worker(0), worker(10_000, 4000)],
    }
    (engine,) = through(targets, "engine_hit_ratio")
    assert (engine["cached_tokens"], engine["prompt_tokens"]) == (4000, 10_000)
    (own,) = through(targets, "observed_hit_ratio")
    assert (own["observer"], own["hits"], own["asked"]) == ("router", 4000, 10_000)


def test_cached_tokens_that_some_engines_did_not_report_are_unknown(through: Through) -> None:
    # 1 of 10 requests came with a cached count
    (row,) = through({"frontend": written("frontend-1.6.1-unreported")}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (None, None, None)
    assert row["unreported"] == 10_000
    assert row["caution"] == "hits not reported for 10000 tokens"


def test_a_router_of_its_own_predicts(through: Through) -> None:
    (row,) = through({"router": written("router-1.6.1")}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (5000, 10_000, pytest.approx(0.5))
    assert row["provenance"] == "lookup/attempt/tokens"
