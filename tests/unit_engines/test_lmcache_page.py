"""LMCache: look-ups are its hit ratio, loads are not, salts stay secret."""

from pathlib import Path

import pytest

from exporter.sources.engines.own_series import PageLabels
from exporter.sources.pages import ingest_pages
from exporter.store.store import Store
from tests.unit_engines.conftest import Through, write_pages

PAGES = Path(__file__).parent / "pages"
WORKER = 'model_name="small",role="worker",served_model_name="small"'


def recorded(era: str) -> list[bytes]:
    """Two pages a minute apart: `lmcache` is in-process, `lmcache_mp` the server."""
    return [(PAGES / f"{era}{end}.txt").read_bytes() for end in ("", ".2")]


def in_process(requested: int, loaded: int, looked_up: int, hits: int, workers: int = 1) -> str:
    amounts = {
        "num_requested_tokens": requested,
        "num_hit_tokens": loaded,
        "num_lookup_tokens": looked_up,
        "num_lookup_hits": hits,
    }
    return "".join(
        f"# TYPE lmcache:{name}_total counter\n"
        f'lmcache:{name}_total{{{WORKER},worker_id="{worker}"}} {amount}\n'
        for name, amount in amounts.items()
        for worker in range(workers)
    )


@pytest.mark.parametrize("workers", [1, 4])
def test_t17_lookups_are_the_hit_ratio_and_loads_are_not(through: Through, workers: int) -> None:
    pages = [in_process(0, 0, 0, 0, workers), in_process(6000, 6000, 10_000, 6000, workers)]
    (row,) = through({"vllm": pages}, "observed_hit_ratio")
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (6000, 10_000, 0.6)
    assert (row["unit"], row["denominator"]) == ("tokens", "own look-ups")
    assert row["loaded_tokens"] == 6000


def test_t17_on_pages_printed_by_lmcache_itself(through: Through) -> None:
    (row,) = through({"vllm": recorded("lmcache/0.5.6")}, "observed_hit_ratio")
    # two requests of 6000 and 4000 tokens, the first wholly found, by both of two workers
    assert (row["hits"], row["asked"], row["hit_ratio"]) == (6000, 10_000, 0.6)


def test_t23_written_and_read_back_are_two_figures(through: Through) -> None:
    def page(stored: int, loaded: int) -> str:
        return (
            f"# TYPE lmcache:num_stored_tokens_total counter\n"
            f'lmcache:num_stored_tokens_total{{{WORKER},worker_id="0"}} {stored}\n'
            f"# TYPE lmcache:num_hit_tokens_total counter\n"
            f'lmcache:num_hit_tokens_total{{{WORKER},worker_id="0"}} {loaded}\n'
        )

    pages = [page(0, 0), page(32, 0), page(32, 32)]
    (first,) = through({"a": pages[:2]}, "observed_hit_ratio")
    assert (first["stored_tokens"], first["loaded_tokens"]) == (32, 0)
    (later,) = through({"a": pages[1:]}, "observed_hit_ratio")
    assert (later["stored_tokens"], later["loaded_tokens"]) == (0, 32)
    assert first["hits"] is None
    assert later["hits"] is None


def test_multiprocess_server_tells_reuse_by_salt_and_tier(through: Through) -> None:
    rows = through({"lmcache": recorded("lmcache_mp/0.5.6")}, "observed_hit_ratio", by="tenant")
    # 2048 of 4096 for one salt, 1024 + 512 of 2048 for another, 0 of 1024 without a salt
    assert sorted((r["hits"], r["asked"]) for r in rows) == [(0, 1024), (1536, 2048), (2048, 4096)]
    assert {r["asked"]: r["tenant"] for r in rows}[1024] == ""
    (total,) = through({"lmcache": recorded("lmcache_mp/0.5.6")}, "observed_hit_ratio")
    assert (total["hits"], total["asked"]) == (3584, 7168)
    assert total["provenance"] == "lookup/once/tokens"


def test_tiers_of_the_multiprocess_server_add_up_to_its_hits(tmp_path: Path) -> None:
    write_pages(tmp_path / "pages" / "lmcache", recorded("lmcache_mp/0.5.6"))
    store = Store.open(tmp_path / "store")
    ingest_pages(store, [tmp_path / "pages"])
    found = store.cursor().execute(
        "SELECT sum(cached_host), sum(cached_remote), sum(lookup_hit_tokens), "
        "sum(evicted['host/chunks']), max(tier_used['host/bytes']) FROM engine_samples"
    )
    assert found.fetchone() == (2048 + 1024, 512, 3584, 3, 1_500_000)
    store.close()


def test_a_salt_never_reaches_the_disk(tmp_path: Path) -> None:
    write_pages(tmp_path / "pages" / "lmcache", recorded("lmcache_mp/0.5.6"))
    assert any(b"tenant-a-salt" in page for page in recorded("lmcache_mp/0.5.6"))
    store = Store.open(tmp_path / "store")
    ingest_pages(store, [tmp_path / "pages"], labels=PageLabels(hash_key="a key of the store"))
    store.cursor().execute("CHECKPOINT")
    store.close()
    for file in (tmp_path / "store").rglob("*"):
        assert not file.is_file() or b"-a-salt" not in file.read_bytes(), file


def test_it_enters_no_engine_figure_on_the_page_it_shares_with_vllm(through: Through) -> None:
    def page(prompt: int, cached: int, looked_up: int, hits: int) -> str:
        own = 'engine="0",model_name="small"'
        return (
            f"vllm:prompt_tokens_total{{{own}}} {prompt}\n"
            f"vllm:prompt_tokens_cached_total{{{own}}} {cached}\n"
            + in_process(0, 0, looked_up, hits)
        )

    pages = [page(0, 0, 0, 0), page(10_000, 7000, 10_000, 6000)]
    (engine,) = through({"vllm": pages}, "engine_hit_ratio")
    assert (engine["cached_tokens"], engine["prompt_tokens"]) == (7000, 10_000)
    (own,) = through({"vllm": pages}, "observed_hit_ratio")
    assert (own["engine"], own["hit_ratio"]) == ("lmcache", 0.6)
