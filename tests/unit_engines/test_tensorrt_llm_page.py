"""TensorRT-LLM: three families that are never added, and iterations that drain."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.engines.reading import UnknownPage, read_page
from exporter.sources.engines.tensorrt_llm_iterations import read_iterations
from exporter.sources.exposition import NotAMetricsPage
from tests.unit_engines.conftest import Through

PAGES = Path(__file__).parent / "pages" / "tensorrt_llm"
OWN = 'engine_type="trtllm",model_name="small"'


def written(era: str, suffix: str = ".txt") -> list[bytes]:
    return [(PAGES / f"{era}{end}{suffix}").read_bytes() for end in ("", ".2")]


def page(**amounts: float) -> str:
    return "".join(
        f"# TYPE trtllm_{name} {'counter' if name.endswith('_total') else 'gauge'}\n"
        f"trtllm_{name}{{{OWN}}} {amount}\n"
        for name, amount in amounts.items()
    )


def test_t15_the_ratio_and_the_shares_of_tiers_come_from_two_families(through: Through) -> None:
    (row,) = through({"a": written("prometheus-2026")}, "engine_hit_ratio")
    assert (row["cached_tokens"], row["prompt_tokens"]) == (8000, 10_000)
    assert row["token_hit_ratio"] == pytest.approx(0.8)
    device, host = row["cached_device"], row["cached_host"]
    assert (device, host) == (6000, 2500)
    assert isinstance(device, int)
    assert isinstance(host, int)
    shares = [round(100 * tier / (device + host), 1) for tier in (device, host)]
    assert shares == [70.6, 29.4]
    assert row["provenance"] == "finish/once/tokens"
    assert row["caution"] is None


def test_t14_warm_up_before_the_first_page_is_no_miss(through: Through) -> None:
    pages = [
        page(kv_cache_tokens_per_block=32, kv_cache_missed_blocks_total=50_000),
        page(
            kv_cache_tokens_per_block=32,
            kv_cache_missed_blocks_total=50_100,
            kv_cache_reused_blocks_total=900,
        ),
    ]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert row["token_hit_ratio"] == pytest.approx(0.9)
    assert (row["lookup_hit_tokens"], row["lookup_tokens"]) == (900 * 32, 1000 * 32)


def test_t21_blocks_become_tokens_and_objects_stay_out(through: Through) -> None:
    own = 'engine="0",model_name="small"'
    vllm = [
        f"vllm:prefix_cache_hits_total{{{own}}} {hits}\n"
        f"vllm:prefix_cache_queries_total{{{own}}} {queries}\n"
        for hits, queries in ((0, 0), (9000, 10_000))
    ]
    blocks = [
        page(
            kv_cache_tokens_per_block=64,
            kv_cache_reused_blocks_total=reused,
            kv_cache_missed_blocks_total=missed,
        )
        for reused, missed in ((0, 0), (50, 50))
    ]
    objects = [
        f"# TYPE total_get_nums_ counter\ntotal_get_nums_ {total}\n"
        f"# TYPE valid_get_nums_ counter\nvalid_get_nums_ {valid}\n"
        for total, valid in ((0, 0), (10, 5))
    ]
    targets = {"x": objects, "y": vllm, "z": blocks}
    (fleet,) = through(targets, "engine_hit_ratio")
    assert (fleet["cached_tokens"], fleet["reported_prompt_tokens"]) == (12_200, 16_400)
    assert fleet["token_hit_ratio"] == pytest.approx(0.7439, abs=0.0001)
    (excluded,) = through(targets, "observed_hit_ratio", by="target")
    assert (excluded["target"], excluded["hits"], excluded["asked"]) == ("x", 5, 10)
    assert excluded["unit"] == "objects"
    assert excluded["caution"] == "counts objects, not tokens"


def test_blocks_of_unknown_size_are_no_tokens(through: Through) -> None:
    pages = [page(kv_cache_missed_blocks_total=n, kv_cache_reused_blocks_total=n) for n in (0, 50)]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["lookup_tokens"], row["token_hit_ratio"]) == (None, None)


def test_blocks_missed_and_none_reused_are_a_ratio_of_zero(through: Through) -> None:
    pages = [
        page(kv_cache_tokens_per_block=32, kv_cache_missed_blocks_total=missed)
        for missed in (10, 30)
    ]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["lookup_hit_tokens"], row["token_hit_ratio"]) == (0, 0.0)


def test_t13_an_older_server_misses_metrics_and_shows_no_zero(through: Through) -> None:
    older = written("prometheus-1.1")
    (row,) = through({"a": older}, "engine_hit_ratio")
    assert (row["cached_tokens"], row["token_hit_ratio"]) == (None, None)
    found = read_page(older[1], "text/plain")
    assert "trtllm_prompt_cached_tokens_total" in found.missing
    assert any("return_perf_metrics" in advice for advice in found.advice)


def test_iterations_are_summed_and_totals_taken_from_the_last(through: Through) -> None:
    (row,) = through({"a": written("iterations-2026", ".json")}, "engine_hit_ratio")
    # reused 50 and missed 50 - 40 blocks of 32 tokens since the first page
    assert (row["lookup_hit_tokens"], row["lookup_tokens"]) == (50 * 32, 60 * 32)
    # by tier, both iterations of the second page together
    assert (row["cached_device"], row["cached_host"]) == (640 + 800, 160)


def test_totals_survive_another_reader_who_drained_the_iterations(through: Through) -> None:
    first, second = written("iterations-2026", ".json")
    stolen = json.dumps(json.loads(second)[-1:])
    (row,) = through({"a": [first, stolen]}, "engine_hit_ratio")
    assert (row["lookup_hit_tokens"], row["lookup_tokens"]) == (50 * 32, 60 * 32)


def test_an_idle_server_answers_with_an_empty_list(through: Through) -> None:
    first, second = written("iterations-2026", ".json")
    (row,) = through({"a": [first, b"[]", second]}, "engine_hit_ratio")
    assert row["lookup_hit_tokens"] == 50 * 32


def test_each_attention_rank_has_totals_of_its_own() -> None:
    stats = {"reusedBlocks": 1, "missedBlocks": 2}
    iterations = [{"iter": i, "attentionDpRank": i % 2, "kvCacheStats": stats} for i in range(4)]
    samples = read_iterations(json.dumps(iterations).encode())
    assert samples is not None
    reused = [s for s in samples if s.name == "trtllm_json:reused_blocks"]
    assert [(s.labels["attention_dp_rank"], s.value) for s in reused] == [("0", 1.0), ("1", 1.0)]


@pytest.mark.parametrize("body", [b'{"status": "ok"}', b"[1, 2]", b'[{"id": 1}]', b"[[[", b"{"])
def test_other_json_is_not_taken(body: bytes) -> None:
    assert read_iterations(body) is None
    with pytest.raises((UnknownPage, NotAMetricsPage)):
        read_page(body, "text/plain")


def test_iterations_cut_off_are_named_as_such() -> None:
    whole = written("iterations-2026", ".json")[1]
    with pytest.raises(NotAMetricsPage, match="complete JSON"):
        read_page(whole[:-40], "application/json")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["iter", "kvCacheStats", "reusedBlocks", "iterCachedTokensByLevel",
             "kvCacheLevelTiers", "attentionDpRank", "numCompletedRequests", "x"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(_JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    body = json.dumps([value] if isinstance(value, dict) else value).encode()
    for sample in read_iterations(body) or ():
        assert math.isfinite(sample.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    whole = written("iterations-2026", ".json")[0]
    for body in (tail, whole[: len(tail)] + tail):
        try:
            read_iterations(body)
        except NotAMetricsPage:
            assert b"kvCacheStats" in body
