"""Pages that real engines served must give exactly the sums their own arithmetic gives.

The numbers are the captures' README's: counted by the client and by the engine.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.records import EngineSample
from exporter.sources.engines import load_engine
from exporter.sources.engines.reading import read_page
from exporter.sources.exposition import parse_page
from exporter.sources.increase import advance
from exporter.sources.page_files import read_pages
from exporter.sources.pages import ingest_pages
from exporter.sources.target_state import TargetIdentity, TargetState
from exporter.store.store import Store

CAPTURES = Path(__file__).parents[2].parent / "shared" / "captures"
ROUTER = "vllm-0.32.0-x2-sglang-router-0.3.2"


def capture(name: str) -> Path:
    path = CAPTURES / name
    if not path.exists():
        pytest.skip(f"captures of real engines are not here: {path} is missing")
    return path


def samples_of(name: str) -> list[EngineSample]:
    """All samples of a capture's pages; pages of routers are no engine pages."""
    found = []
    states: dict[str, TargetState] = {}
    for page in read_pages([capture(name)]):
        state = states.setdefault(page.target, TargetState())
        if page.path is None:
            state.fail(page.scraped_unix)
        elif page.target != "router":
            read = read_page(page.body(), page.content_type)
            who = TargetIdentity(page.target, page.target)
            found.extend(advance(state, read, page.scraped_unix, who))
    return found


def total(samples: list[EngineSample], measure: str, replica: str | None = None) -> int | None:
    values = [
        getattr(sample, measure)
        for sample in samples
        if (replica is None or sample.replica == replica) and getattr(sample, measure) is not None
    ]
    return sum(values) if values else None


@pytest.mark.parametrize(
    ("name", "prompt", "cached"),
    [
        ("vllm-0.32.0/main", 43_832, 29_696),
        ("vllm-0.32.0/evict", 28_017, 5_152),
        ("vllm-0.32.0/caching-off", 42_264, 0),
        ("vllm-0.32.0/defaults", 42_264, 26_624),
        ("vllm-0.32.0/dp2", 42_264, 23_584),
        ("vllm-0.32.0/restart", 23_528, 12_672),
        ("vllm-0.32.0/external", 23_820, 18_560),
        (f"{ROUTER}/off", 75_828, 0),
        (f"{ROUTER}/round-robin", 75_828, 36_320),
        (f"{ROUTER}/cache-aware", 75_828, 60_192),
        ("llama.cpp-b11434/mixed", 42_264, 33_174),
        ("llama.cpp-b11434/one-slot", 42_264, 11_911),
    ],
)
def test_sums_of_a_capture(name: str, prompt: int, cached: int) -> None:
    samples = samples_of(name)
    assert total(samples, "prompt_tokens") == prompt
    assert total(samples, "cached_tokens") == cached


@pytest.mark.parametrize("name", ["main", "evict", "dp2", "restart", "defaults", "caching-off"])
def test_t19_tiers_add_up_and_all_came_from_the_device(name: str) -> None:
    samples = samples_of(f"vllm-0.32.0/{name}")
    assert total(samples, "cached_device") == total(samples, "cached_tokens")
    for tier in ("cached_host", "cached_disk", "cached_remote"):
        assert total(samples, tier) == 0


def test_external_hits_have_their_own_tier_and_one_denominator() -> None:
    samples = samples_of("vllm-0.32.0/external")
    assert total(samples, "cached_device") == 4_640
    assert total(samples, "cached_remote") == 13_920
    assert total(samples, "lookup_tokens") == 23_820
    assert total(samples, "external_lookup_tokens") == 23_820 - 4_640
    assert total(samples, "external_hit_tokens") == 13_920


def test_each_data_parallel_rank_is_a_replica() -> None:
    samples = samples_of("vllm-0.32.0/dp2")
    assert total(samples, "prompt_tokens", "dp2/0") == 21_442
    assert total(samples, "cached_tokens", "dp2/0") == 11_328
    assert total(samples, "prompt_tokens", "dp2/1") == 20_822
    assert total(samples, "cached_tokens", "dp2/1") == 12_256


def test_each_replica_behind_the_router() -> None:
    samples = samples_of(f"{ROUTER}/cache-aware")
    assert total(samples, "cached_tokens", "replica-0") == 29_760
    assert total(samples, "cached_tokens", "replica-1") == 30_432


def test_caching_off_is_known_from_the_page() -> None:
    samples = samples_of("vllm-0.32.0/caching-off")
    assert {sample.caching_enabled for sample in samples} == {False}
    assert total(samples, "lookup_tokens") == 0
    assert {sample.caching_enabled for sample in samples_of("vllm-0.32.0/main")} == {True}


def test_a_restart_is_a_reset_in_one_interval_with_a_gap() -> None:
    samples = samples_of("vllm-0.32.0/restart")
    assert [sample.reset for sample in samples] == [False, False, False, True, False, False]
    assert [sample.gap for sample in samples] == [False, False, False, True, False, False]
    assert all((sample.prompt_tokens or 0) >= 0 for sample in samples)


@pytest.mark.parametrize(
    ("name", "requests", "preemptions"),
    [("main", 55, 0), ("evict", 36, 3), ("external", 30, 0), ("dp2", 53, 0)],
)
def test_requests_and_preemptions(name: str, requests: int, preemptions: int) -> None:
    samples = samples_of(f"vllm-0.32.0/{name}")
    assert total(samples, "finished_requests") == requests
    assert total(samples, "preemptions") == preemptions
    # Every request has one first token: the histogram's last bound counts them all.
    counted = [sample.ttft_buckets[float("inf")] for sample in samples if sample.ttft_buckets]
    assert sum(counted) == requests


def test_t20_memory_of_a_real_page_is_used_and_unknown_never_zero_cached() -> None:
    last = samples_of("vllm-0.32.0/evict")[-1]
    assert last.kv_usage_ratio == 0.0
    assert last.kv_running_tokens == 0
    assert last.kv_capacity_tokens == 72 * 32
    assert last.kv_cached_tokens is None
    assert last.kv_free_tokens is None


@pytest.mark.parametrize(
    "name",
    [
        "vllm-0.32.0/main",
        "vllm-0.32.0/dp2",
        "vllm-0.32.0/external",
        "llama.cpp-b11434/mixed",
        f"{ROUTER}/off/replica-0-metrics",
    ],
)
def test_every_engine_metric_is_mapped_or_skipped_with_a_reason(name: str) -> None:
    unknown = set(_unexplained(capture(name)))
    assert unknown == set()


def _unexplained(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.prom"):
        for sample in parse_page(path.read_bytes(), "text/plain").samples:
            prefix = sample.name.partition(":")[0]
            if prefix not in ("vllm", "llamacpp"):
                continue
            engine = load_engine(prefix)
            read = sample.name in engine.series_names or sample.name.endswith(
                ("_seconds_count", "_seconds_bucket")
            )
            if not read and not sample.name.startswith(tuple(engine.skipped)):
                yield sample.name


def test_nothing_expected_is_missing_on_real_pages() -> None:
    for name in ("vllm-0.32.0/main", "vllm-0.32.0/dp2", "llama.cpp-b11434/mixed"):
        *_, last = read_pages([capture(name)])
        assert read_page(last.body(), last.content_type).missing == ()


def test_ingesting_a_capture_twice_counts_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    folder = capture("vllm-0.32.0/restart")
    first = ingest_pages(store, [folder])
    second = ingest_pages(store, [folder])
    found = store.cursor().execute(
        "SELECT sum(prompt_tokens), sum(cached_tokens), count(*) FROM engine_samples"
    )
    assert found.fetchone() == (23_528, 12_672, 6)
    assert (first.pages, first.down, first.resets) == (6, 1, 1)
    assert (second.pages, second.skipped) == (0, 7)
    store.close()


def test_router_pages_are_taken_and_enter_no_engine_figure(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    summary = ingest_pages(store, [capture(f"{ROUTER}/round-robin")])
    assert (summary.pages, summary.foreign, summary.unreadable) == (6, 0, 0)
    assert any("scrape the engines" in message for message in summary.messages)
    samples = store.cursor().execute(
        "SELECT observer, list(DISTINCT target ORDER BY target) FROM engine_samples GROUP BY ALL"
    )
    assert dict(samples.fetchall()) == {
        "engine": ["replica-0", "replica-1"],
        "router": ["router"],
    }
    store.close()
