"""Traps of engine counters by number, from page to figure the ordinary way.

Every expected number is the one worked out in the trap's own arithmetic.
"""

from pathlib import Path

import pytest

from tests.unit_engines.conftest import Through

Value = int | float
INFO = 'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1001"} 1'
# vLLM names that are there whatever happens, so that nothing else is missing.
BY_SOURCE = 'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 0'


def vllm(amounts: dict[str, Value], *more: str, engine: str = "0") -> str:
    labels = f'{{engine="{engine}",model_name="m"}}'
    lines = [f"vllm:{name}{labels} {value}" for name, value in amounts.items()]
    return "\n".join([*lines, *more]) + "\n"


def sglang(amounts: dict[str, Value]) -> str:
    return "".join(f'sglang:{name} {value}\n' if "{" in name else
                   f'sglang:{name}{{model_name="m"}} {value}\n'
                   for name, value in amounts.items())  # fmt: skip


def pair(amounts: dict[str, Value], *more: str) -> list[str]:
    """A page of zeros, and a minute later one with these amounts."""
    return [vllm(dict.fromkeys(amounts, 0), *more), vllm(amounts, *more)]


def test_t1_reuse_and_lookups_repeated_after_preemption(through: Through) -> None:
    amounts: dict[str, Value] = {
        "prefix_cache_queries_total": 100_000, "prefix_cache_hits_total": 32_000,
        "num_preemptions_total": 41, "prompt_tokens_total": 68_000,
    }  # fmt: skip
    (row,) = through({"old": pair(amounts)}, "engine_hit_ratio")
    assert row["lookup_hit_ratio"] == pytest.approx(0.32)
    assert "look-ups include recompute after preemption" in str(row["caution"])
    assert "by 32000" in str(row["caution"])
    assert row["provenance"] == "lookup/attempt/tokens"
    # where the engine also counts each prompt once, that is the reuse between requests
    (row,) = through(
        {"new": pair({**amounts, "prompt_tokens_cached_total": 0})}, "engine_hit_ratio"
    )
    assert (row["cached_tokens"], row["prompt_tokens"]) == (0, 68_000)
    assert row["token_hit_ratio"] == 0
    assert row["provenance"] == "finish/once/tokens"


def test_t2_the_gauge_of_the_last_batch_is_not_a_rate(through: Through) -> None:
    gauge = (0.93, 0, 0, 0.91, 0)
    cached = (0, 2000, 4000, 9300, 9300)
    prompt = (0, 3000, 6000, 9900, 10_000)
    pages = [
        sglang({"cache_hit_rate": g, "cached_tokens_total": c, "prompt_tokens_total": p})
        for g, c, p in zip(gauge, cached, prompt, strict=True)
    ]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert row["token_hit_ratio"] == pytest.approx(0.93)


def test_t2_the_v0_engine_has_only_a_gauge_and_so_no_ratio(through: Through) -> None:
    old = {"gpu_prefix_cache_hit_rate": 0.93, "num_requests_swapped": 0, "cpu_cache_usage_perc": 0}
    pages = [vllm({**old, "prompt_tokens_total": n}) for n in (0, 10_000)]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["prompt_tokens"], row["token_hit_ratio"]) == (10_000, None)
    assert row["caution"] == "metric missing: a"
    (replica,) = through({"a": pages}, "replicas")
    advice = [text for text in replica["missing_advice"] if "gpu_prefix_cache_hits" in text]
    assert len(advice) == 1
    assert "VLLM_USE_V1=1" in advice[0]


@pytest.mark.parametrize(("asked", "newer"), [(1000, False), (400, True)])
def test_t7_one_denominator_whatever_the_connector_counts(
    through: Through, asked: int, newer: bool
) -> None:
    amounts: dict[str, Value] = {
        "prefix_cache_queries_total": 1000, "prefix_cache_hits_total": 600,
        "external_prefix_cache_queries_total": asked, "external_prefix_cache_hits_total": 200,
        "prompt_tokens_total": 1000,
    }  # fmt: skip
    (row,) = through({"a": pair(amounts, *([BY_SOURCE] if newer else []))}, "engine_hit_ratio")
    assert row["token_hit_ratio"] == pytest.approx(0.8)
    assert row["lookup_hit_ratio"] == pytest.approx(0.6)
    assert (row["external_hit_tokens"], row["external_lookup_tokens"]) == (200, 400)
    assert row["external_hit_ratio"] == pytest.approx(0.5)


def test_t8_a_skipped_lookup_is_no_miss(through: Through) -> None:
    amounts: dict[str, Value] = {
        "prefix_cache_queries_total": 0, "prefix_cache_hits_total": 0,
        "external_prefix_cache_queries_total": 1203, "external_prefix_cache_hits_total": 0,
        "prompt_tokens_total": 1203, "prompt_tokens_cached_total": 0,
    }  # fmt: skip
    (row,) = through({"a": pair(amounts, BY_SOURCE)}, "engine_hit_ratio")
    assert row["token_hit_ratio"] is None
    assert row["ineligible_prompt_tokens"] == 1203
    assert row["caution"] == "look-up skipped or caching off for 1203 prompt tokens"


def test_t9_ranks_are_differenced_apart_and_then_summed(through: Through) -> None:
    def page(ranks: dict[str, tuple[int, int]], usage: tuple[float, float]) -> str:
        return "".join(
            vllm(
                {"prefix_cache_hits_total": hits, "prefix_cache_queries_total": asked,
                 "kv_cache_usage_perc": share},
                engine=rank,
            )
            for (rank, (hits, asked)), share in zip(ranks.items(), usage, strict=True)
        )  # fmt: skip

    pages = [
        page({"0": (100, 200), "1": (1000, 4000)}, (0.2, 0.8)),
        page({"0": (180, 300), "1": (1100, 4400)}, (0.2, 0.8)),
    ]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["lookup_hit_tokens"], row["lookup_tokens"]) == (180, 500)
    assert row["token_hit_ratio"] == pytest.approx(0.36)
    (memory,) = through({"a": pages}, "memory_split")
    assert memory["kv_usage_ratio"] == pytest.approx(0.5)
    assert memory["max_kv_usage_ratio"] == 0.8


def test_t10_occupancy_is_weighted_by_capacity(through: Through) -> None:
    def page(usage: float, blocks: int) -> str:
        # one block more: the null block is nobody's
        return vllm({"kv_cache_usage_perc": usage}, INFO.replace("1001", str(blocks + 1)))

    targets = {"a": [page(0.4, 1000)] * 2, "b": [page(0.9, 100)] * 2}
    (row,) = through(targets, "memory_split")
    assert row["kv_usage_ratio"] == pytest.approx(490 / 1100)
    assert row["capacity_tokens"] == 1100 * 16


def test_t11_t25_the_window_and_not_the_life_of_the_counters(through: Through) -> None:
    hits, asked = "prefix_cache_hits_total", "prefix_cache_queries_total"
    pages = [vllm({hits: 9_000_000, asked: n}) for n in (10_000_000, 10_050_000)]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["lookup_tokens"], row["token_hit_ratio"]) == (50_000, 0.0)
    last_hundred = [vllm({hits: h, asked: a}) for h, a in ((0, 900_000), (100_000, 1_000_000))]
    (row,) = through({"b": last_hundred}, "engine_hit_ratio")
    assert row["token_hit_ratio"] == 1.0


def test_t12_a_ratio_of_sums_of_tokens(through: Through) -> None:
    def page(a: tuple[int, int], b: tuple[int, int]) -> list[str]:
        names = ("prefix_cache_hits_total", "prefix_cache_queries_total")
        return [
            vllm(dict(zip(names, a, strict=True)), engine="0")
            + vllm(dict(zip(names, b, strict=True)), engine="1")
        ]

    # one block missed, and 99 of 100 blocks of 16 reused
    pages = [*page((0, 0), (0, 0)), *page((0, 16), (99 * 16, 100 * 16))]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert row["token_hit_ratio"] == pytest.approx(99 / 101)


def test_t13_names_of_two_versions_are_one_figure_and_missing_is_named(through: Through) -> None:
    prompts: dict[str, Value] = {"prompt_tokens_total": 100}
    old = pair({"gpu_prefix_cache_hits_total": 100, "gpu_prefix_cache_queries_total": 200})
    new = pair({"prefix_cache_hits_total": 300, "prefix_cache_queries_total": 400})
    (row,) = through({"a": old, "b": new, "c": pair(prompts)}, "engine_hit_ratio")
    assert (row["cached_tokens"], row["reported_prompt_tokens"]) == (400, 600)
    assert row["token_hit_ratio"] == pytest.approx(400 / 600)
    assert "metric missing: c" in str(row["caution"])
    replicas = through({"a": old, "b": new, "c": pair(prompts)}, "replicas")
    by_name = {row["replica"]: row for row in replicas}
    assert "vllm:prefix_cache_hits_total" in by_name["c"]["missing_metrics"]
    assert "vllm:prefix_cache_hits_total" not in by_name["a"]["missing_metrics"]


def test_t14_the_first_page_is_the_baseline(through: Through) -> None:
    hits, asked = "prefix_cache_hits_total", "prefix_cache_queries_total"
    pages = [vllm({hits: h, asked: a}) for h, a in ((0, 50_000), (900, 51_000))]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["cached_tokens"], row["reported_prompt_tokens"]) == (900, 1000)


def test_t15_lookups_by_rank_are_not_added_to_finished_prompts(through: Through) -> None:
    """SGLang counts finished prompts per server and look-ups per data-parallel rank."""
    era = Path(__file__).parent / "pages" / "sglang" / "0.5.10-two-data-ranks.txt"
    pages = [era.read_text(), era.with_name("0.5.10-two-data-ranks.2.txt").read_text()]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    # cached 500 -> 8500 of prompts 1000 -> 11000; the look-ups of two ranks are beside it
    assert (row["cached_tokens"], row["reported_prompt_tokens"]) == (8000, 10_000)
    assert row["token_hit_ratio"] == pytest.approx(0.8)
    assert (row["lookup_hit_tokens"], row["lookup_tokens"]) == (8200, 11_200)


def test_t16_llama_cpp_counts_processed_and_cached_apart(through: Through) -> None:
    pages = [
        f"llamacpp:prompt_tokens_total {new}\nllamacpp:prompt_tokens_cached_total {cached}\n"
        for new, cached in ((0, 0), (1, 236))
    ]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["prompt_tokens"], row["cached_tokens"]) == (237, 236)
    assert row["token_hit_ratio"] == pytest.approx(236 / 237)


def test_t19_tiers_add_up_to_the_hit_ratio(through: Through) -> None:
    tiers = {"device": 18_916_096, "host": 691_904, "storage": 1_531_520}
    cached = {
        f'cached_tokens_total{{model_name="m",cache_source="{source}"}}': tokens
        for source, tokens in tiers.items()
    }
    prompt = {"prompt_tokens_total": 54_657_831}
    pages = [sglang({"prompt_tokens_total": 0}), sglang({**prompt, **cached})]
    (row,) = through({"a": pages}, "engine_hit_ratio")
    parts = [int(str(row[f"cached_{tier}"])) for tier in ("device", "host", "remote")]
    assert row["cached_tokens"] == sum(parts) == 21_139_520
    points = [round(100 * part / 54_657_831, 1) for part in parts]
    assert points == [34.6, 1.3, 2.8]
    assert row["token_hit_ratio"] == pytest.approx(0.387, abs=0.0005)
    assert [round(100 * part / 21_139_520, 1) for part in parts] == [89.5, 3.3, 7.2]


def test_t20_usage_zero_is_not_an_empty_cache(through: Through) -> None:
    (row,) = through({"a": [vllm({"kv_cache_usage_perc": 0.0}, INFO)]}, "memory_split")
    assert (row["running_tokens"], row["capacity_tokens"]) == (0, 16_000)
    assert (row["cached_tokens"], row["free_tokens"]) == (None, None)


STATES = ("weights_offloaded", "awake", "discard_all")


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_t24_sleep_is_read_by_label_and_clears_the_cache(
    through: Through, order: tuple[int, ...]
) -> None:
    def page(state: str, hits: int, asked: int) -> str:
        lines = [
            f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="{STATES[i]}"}} '
            f"{int(STATES[i] == state)}"
            for i in order
        ]
        amounts: dict[str, Value] = {
            "prefix_cache_hits_total": hits, "prefix_cache_queries_total": asked,
            "kv_cache_usage_perc": 0.0,
        }  # fmt: skip
        return vllm(amounts, INFO, *lines)

    awake, asleep = page("awake", 900, 1000), page("weights_offloaded", 900, 1000)
    (memory,) = through({"a": [awake, asleep]}, "memory_split")
    assert (memory["cached_tokens"], memory["free_tokens"]) == (0, 16_000)
    woken = [awake, asleep, page("awake", 900, 2000)]
    (row,) = through({"a": woken}, "engine_hit_ratio")
    assert (row["token_hit_ratio"], row["caution"]) == (
        0.0,
        "cached tokens from look-up counters: a; cache cleared by sleep: a",
    )
    # once awake, what is cached is unknown again, not still nothing
    (memory,) = through({"a": woken}, "memory_split")
    assert (memory["cached_tokens"], memory["free_tokens"]) == (None, None)


def test_t57_a_restart_is_no_negative_traffic(through: Through) -> None:
    pages = [vllm({"prefix_cache_hits_total": h, "prefix_cache_queries_total": a,
                   "prompt_tokens_total": a})
             for h, a in ((4000, 5000), (100, 300), (500, 900))]  # fmt: skip
    (row,) = through({"a": pages}, "engine_hit_ratio")
    assert (row["prompt_tokens"], row["cached_tokens"], row["resets"]) == (900, 500, 1)
