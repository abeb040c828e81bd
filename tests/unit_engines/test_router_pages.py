"""Routers: what they believe is theirs; copies of engine numbers are nobody's."""

from pathlib import Path

import pytest

from exporter.sources.engines.reading import read_page
from exporter.sources.page_files import RecordedPage, read_pages
from tests.unit_engines.conftest import Through

PAGES = Path(__file__).parent / "pages"
CAPTURES = Path(__file__).parents[2].parent / "shared" / "captures"
VLLM_ROUTER = "vllm-0.32.0-x2-vllm-router-0.1.17"
SGLANG_ROUTER = "vllm-0.32.0-x2-sglang-router-0.3.2"


def written(program: str, era: str) -> list[bytes]:
    return [(PAGES / program / f"{era}{end}.txt").read_bytes() for end in ("", ".2")]


def captured(name: str) -> dict[str, list[bytes]]:
    """The recorded pages of a run of two replicas behind a router, by target."""
    folder = CAPTURES / name
    if not folder.exists():
        pytest.skip(f"captures of real routers are not here: {folder} is missing")
    pages: dict[str, list[RecordedPage]] = {}
    for page in read_pages([folder]):
        pages.setdefault(page.target, []).append(page)
    return {target: [page.body() for page in own] for target, own in pages.items()}


def test_the_silent_fallback_is_skipped_not_missed(through: Through) -> None:
    (row,) = through({"router": written("vllm_router", "0.1.17")}, "observed_hit_ratio")
    # of 54 requests 40 matched, 8 did not and 6 were never looked up
    assert (row["hits"], row["asked"], row["skipped"]) == (40, 48, 6)
    assert row["unit"] == "requests"
    assert row["caution"] == "counts requests, not tokens; 6 requests could not be looked up"


def test_silent_fallback_of_a_real_router(through: Through) -> None:
    pages = captured(f"{VLLM_ROUTER}/cache-aware-no-render")
    (row,) = through(pages, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"], row["skipped"]) == (0, 0, None, 48)


def test_decisions_of_a_real_router_and_what_the_engines_reused(through: Through) -> None:
    pages = captured(f"{VLLM_ROUTER}/cache-aware")
    (router,) = through(pages, "observed_hit_ratio")
    assert (router["hits"], router["asked"], router["skipped"]) == (40, 48, 0)
    (engines,) = through(pages, "engine_hit_ratio")
    assert engines["token_hit_ratio"] == pytest.approx(0.794, abs=0.001)


def test_a_router_that_tells_no_matches_has_no_ratio(through: Through) -> None:
    assert through(captured(f"{SGLANG_ROUTER}/cache-aware"), "observed_hit_ratio") == []
    page = read_page(written("sglang_router", "smg")[1], "text/plain")
    assert page.engine.name == "sglang_router"
    assert "scrape the engines" in page.warnings[0]


def test_a_router_that_was_asked_nothing_yet_is_a_known_page() -> None:
    page = read_page(b"# TYPE vllm_router_active_workers gauge\nvllm_router_active_workers 2\n", "")
    assert (page.engine.name, page.missing) == ("vllm_router", ())


def test_older_routers_count_matches_in_requests(through: Through) -> None:
    targets = {
        "a": written("sglang_router", "sgl_router"),
        "b": written("vllm_router", "cache-hits"),
    }
    rows = through(targets, "observed_hit_ratio", by="target")
    assert [(r["target"], r["hits"], r["asked"]) for r in rows] == [("a", 30, 40), ("b", 10, 20)]


def test_copies_with_a_server_label_are_no_engine_data(through: Through) -> None:
    pages = {"stack": written("production_stack", "2026")}
    (engines,) = through(pages, "engine_hit_ratio")
    assert (engines["prompt_tokens"], engines["lookup_tokens"]) == (None, None)
    (own,) = through(pages, "observed_hit_ratio")
    # its own count of prompt tokens, without a cached one; 30 more copied "hits" are not there
    assert (own["hits"], own["asked"], own["unreported"]) == (None, None, 8000)


def test_copies_beside_real_engines_add_nothing(through: Through) -> None:
    own = 'engine="0",model_name="small"'
    engine = [
        f"vllm:prompt_tokens_total{{{own}}} {prompt}\n"
        f"vllm:prompt_tokens_cached_total{{{own}}} {cached}\n"
        for prompt, cached in ((0, 0), (8000, 2000))
    ]
    targets = {"engine": engine, "stack": written("production_stack", "2026")}
    (row,) = through(targets, "engine_hit_ratio")
    assert (row["cached_tokens"], row["prompt_tokens"]) == (2000, 8000)


def test_endpoint_picker_counts_what_engines_reported(through: Through) -> None:
    (row,) = through({"epp": written("gie", "1.5.0")}, "observed_hit_ratio", by="model")
    assert (row["model"], row["hits"], row["asked"]) == ("small", 6500, 10_000)
    assert row["hit_ratio"] == pytest.approx(0.65)
    assert row["provenance"] == "finish/once/tokens"


def test_t12_llm_d_index_counts_calls_and_blocks_which_make_no_ratio(through: Through) -> None:
    (row,) = through({"index": written("llm_d", "kv-index-0.4")}, "observed_hit_ratio")
    # 80 blocks in 4 calls are 20 blocks a call, not 2000 %
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (80, None, None)
    (row,) = through({"index": written("llm_d", "kv-index")}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (30, 40, 0.75)
    assert row["unit"] == "blocks"


def test_llm_d_reports_and_predictions_are_not_mixed(through: Through) -> None:
    reported = written("llm_d", "epp-2026")
    rows = through({"epp": reported}, "observed_hit_ratio")
    tokens = [row for row in rows if row["unit"] == "tokens"]
    assert [(row["hits"], row["asked"]) for row in tokens] == [(5600, 10_000)]
    unreported = written("llm_d", "epp-2026-unreported")
    rows = through({"epp": unreported}, "observed_hit_ratio")
    tokens = [row for row in rows if row["unit"] == "tokens"]
    assert [(row["hits"], row["unreported"]) for row in tokens] == [(None, 10_000)]
