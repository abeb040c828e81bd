"""What a page of each engine and version means, on pages small enough to add up by hand."""

import pytest

from exporter.records import EngineSample
from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.mapping import ASIDE, tokens_of
from exporter.sources.engines.own_series import PageLabels
from exporter.sources.engines.page import EnginePage
from exporter.sources.engines.reading import UnknownPage, read_page
from exporter.sources.increase import advance
from exporter.sources.target_state import TargetIdentity, TargetState

TEXT = "text/plain; version=0.0.4"
WHO = TargetIdentity("target", "replica")
INFO = 'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1001"} 1'


def page(*lines: str, replica_label: str | None = None) -> EnginePage:
    return read_page(("\n".join(lines) + "\n").encode(), TEXT, PageLabels(replica_label))


def between(before: list[str], after: list[str], label: str | None = None) -> list[EngineSample]:
    """The samples of the second of two pages a minute apart."""
    state = TargetState()
    advance(state, page(*before, replica_label=label), 1_000_000_000, WHO)
    return advance(state, page(*after, replica_label=label), 1_000_000_060, WHO)


def only(samples: list[EngineSample]) -> EngineSample:
    assert len(samples) == 1
    return samples[0]


def vllm(name: str, value: float, **labels: str) -> str:
    extra = "".join(f',{key}="{text}"' for key, text in labels.items())
    return f'vllm:{name}{{engine="0",model_name="m"{extra}}} {value}'


def sglang(name: str, value: float, **labels: str) -> str:
    extra = "".join(f',{key}="{text}"' for key, text in labels.items())
    return f'sglang:{name}{{model_name="m"{extra}}} {value}'


# ------------------------------------------------------------------------- vLLM


def test_t1_lookups_repeated_after_preemption_stay_apart_from_reuse() -> None:
    names = ("prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
             "prompt_tokens_cached_total", "num_preemptions_total")  # fmt: skip
    sample = only(
        between(
            [vllm(name, 0) for name in names],
            [vllm(n, v) for n, v in zip(names, (100_000, 32_000, 68_000, 0, 41), strict=True)],
        )
    )
    assert (sample.cached_tokens, sample.prompt_tokens) == (0, 68_000)
    assert (sample.lookup_hit_tokens, sample.lookup_tokens) == (32_000, 100_000)
    assert sample.preemptions == 41


@pytest.mark.parametrize(("asked", "newer"), [(1000, False), (400, True)])
def test_t7_the_connector_is_asked_only_what_the_local_lookup_left(asked: int, newer: bool) -> None:
    amounts = {
        "prefix_cache_queries_total": 1000,
        "prefix_cache_hits_total": 600,
        "external_prefix_cache_queries_total": asked,
        "external_prefix_cache_hits_total": 200,
        "prompt_tokens_total": 1000,
    }
    before = [vllm(name, 0) for name in amounts]
    after = [vllm(name, amount) for name, amount in amounts.items()]
    if newer:
        source = {"source": "local_cache_hit"}
        before.append(vllm("prompt_tokens_by_source_total", 0, **source))
        after.append(vllm("prompt_tokens_by_source_total", 600, **source))
    sample = only(between(before, after))
    assert (sample.external_hit_tokens, sample.external_lookup_tokens) == (200, 400)
    assert (sample.lookup_hit_tokens, sample.lookup_tokens) == (600, 1000)


def test_t8_a_skipped_lookup_is_neither_asked_nor_missed_locally() -> None:
    names = ("prefix_cache_queries_total", "external_prefix_cache_queries_total",
             "external_prefix_cache_hits_total", "prompt_tokens_total")  # fmt: skip
    source = vllm("prompt_tokens_by_source_total", 0, source="local_compute")
    sample = only(
        between(
            [source, *(vllm(name, 0) for name in names)],
            [source, *(vllm(n, v) for n, v in zip(names, (0, 1203, 0, 1203), strict=True))],
        )
    )
    assert sample.prompt_tokens == 1203
    assert sample.lookup_tokens == 0
    assert sample.external_lookup_tokens == 1203


def test_t13_old_and_new_names_are_one_measure_and_missing_is_not_zero() -> None:
    old = ("gpu_prefix_cache_hits_total", "gpu_prefix_cache_queries_total")
    new = ("prefix_cache_hits_total", "prefix_cache_queries_total")
    first = only(between([vllm(n, 0) for n in old], [vllm(old[0], 100), vllm(old[1], 200)]))
    second = only(between([vllm(n, 0) for n in new], [vllm(new[0], 300), vllm(new[1], 400)]))
    hits = (first.lookup_hit_tokens or 0) + (second.lookup_hit_tokens or 0)
    looked_up = (first.lookup_tokens or 0) + (second.lookup_tokens or 0)
    assert (hits, looked_up) == (400, 600)
    neither = only(between([vllm("prompt_tokens_total", 0)], [vllm("prompt_tokens_total", 9)]))
    assert neither.lookup_tokens is None
    assert neither.cached_tokens is None
    missing = page(vllm("prompt_tokens_total", 9)).missing
    assert "vllm:prefix_cache_hits_total" in missing
    assert "vllm:prompt_tokens_cached_total" in missing


def test_both_names_on_one_page_are_not_added() -> None:
    both = ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total")
    sample = only(between([vllm(name, 0) for name in both], [vllm(name, 7) for name in both]))
    assert sample.lookup_hit_tokens == 7


def test_tiers_before_the_breakdown_existed_name_the_connector_remote() -> None:
    before = [
        vllm("prompt_tokens_by_source_total", 0, source=source)
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
    ]
    after = [
        vllm("prompt_tokens_by_source_total", 50, source="local_compute"),
        vllm("prompt_tokens_by_source_total", 30, source="local_cache_hit"),
        vllm("prompt_tokens_by_source_total", 20, source="external_kv_transfer"),
    ]
    sample = only(between(before, after))
    assert (sample.cached_device, sample.cached_remote) == (30, 20)
    assert (sample.cached_host, sample.cached_disk) == (None, None)


def test_tiers_peers_and_unspecified_connectors_are_remote() -> None:
    tiers = {"device": 1, "host": 2, "p2p": 4, "disk": 8, "external_unspecified": 16}
    name = "prompt_tokens_cached_by_source_total"
    sample = only(
        between(
            [vllm(name, 0, source=source) for source in tiers],
            [vllm(name, amount, source=source) for source, amount in tiers.items()],
        )
    )
    assert (sample.cached_device, sample.cached_host) == (1, 2)
    assert (sample.cached_disk, sample.cached_remote) == (8, 4 + 16)


def test_t10_t20_usage_becomes_tokens_by_capacity_and_cached_stays_unknown() -> None:
    sample = only(
        between([INFO, vllm("kv_cache_usage_perc", 0)], [INFO, vllm("kv_cache_usage_perc", 0.4)])
    )
    # 1001 blocks less the null block, 16 tokens each; 40 % of them held by running requests
    assert sample.kv_capacity_tokens == 16_000
    assert sample.kv_running_tokens == 6_400
    assert sample.kv_cached_tokens is None
    assert sample.kv_free_tokens is None
    assert sample.block_size == 16


def test_stated_capacity_wins_over_blocks() -> None:
    stated = INFO.replace("} 1", ',kv_cache_size_tokens="5000"} 1')
    assert only(between([stated], [stated])).kv_capacity_tokens == 5000
    unknown = INFO.replace("} 1", ',kv_cache_size_tokens="None"} 1')
    assert only(between([unknown], [unknown])).kv_capacity_tokens == 16_000


def test_the_oldest_pages_have_no_rank_and_other_gauge_names() -> None:
    old = [
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5',
        'vllm:prompt_tokens_total{model_name="m"} 3',
    ]
    sample = only(between(old, old))
    assert (sample.replica, sample.kv_usage_ratio) == ("replica", 0.5)
    assert sample.prompt_tokens == 0


def test_copies_by_a_router_are_not_engine_data() -> None:
    copies = [
        'vllm:gpu_prefix_cache_hits_total{server="http://a:8000"} 5',
        'vllm:num_requests_running{server="http://a:8000"} 1',
    ]
    with pytest.raises(KeyError):
        load_engine("router")
    sample = only(
        between(
            [vllm("prompt_tokens_total", 0), *copies], [vllm("prompt_tokens_total", 1), *copies]
        )
    )
    assert sample.lookup_hit_tokens is None
    assert sample.running_requests is None


def test_ray_pages_are_read_and_split_by_their_replica_label() -> None:
    def line(replica: str, value: int) -> str:
        labels = f'engine="0",model_name="m",ReplicaId="{replica}"'
        return f"ray_vllm_prompt_tokens_total{{{labels}}} {value}"

    samples = between(
        ["process_start_time_seconds 100", line("a", 0), line("b", 1000)],
        ["process_start_time_seconds 999", line("a", 5), line("b", 1007)],
        label="ReplicaId",
    )
    # the agent's own restart is not the replicas'
    assert [(s.replica, s.prompt_tokens, s.reset) for s in samples] == [
        ("a", 5, False),
        ("b", 7, False),
    ]


def test_version_is_what_the_names_prove() -> None:
    assert page(vllm("prompt_tokens_total", 1)).version is None
    assert page(vllm("prompt_tokens_cached_total", 1)).version == "0.16.0+"
    newest = page(
        vllm("prompt_tokens_cached_total", 1),
        vllm("prompt_tokens_cached_by_source_total", 1, source="device"),
    )
    assert newest.version == "0.32.0+"


# ----------------------------------------------------------------------- SGLang


def test_t2_the_last_batch_gauge_is_never_read() -> None:
    lines = ["cache_hit_rate", "cached_tokens_total", "prompt_tokens_total"]
    state = TargetState()
    samples = []
    cached = (0, 2000, 4000, 9300, 9300)
    prompt = (0, 3000, 6000, 9900, 10_000)
    for turn, gauge in enumerate((0.93, 0, 0, 0.91, 0)):
        values = (gauge, cached[turn], prompt[turn])
        text = [sglang(name, value) for name, value in zip(lines, values, strict=True)]
        samples += advance(state, page(*text), 1_000_000_000 + 60 * turn, WHO)
    hits = sum(s.cached_tokens or 0 for s in samples)
    prompts = sum(s.prompt_tokens or 0 for s in samples)
    assert hits / prompts == pytest.approx(0.93)
    assert {s.kv_usage_ratio for s in samples} == {None}


def test_t19_cached_sources_add_up_and_no_source_is_zero() -> None:
    amounts = {"device": 18_916_096, "host": 691_904, "storage": 1_531_520}
    before = [sglang("prompt_tokens_total", 0)]
    after = [
        sglang("prompt_tokens_total", 54_657_831),
        *(sglang("cached_tokens_total", n, cache_source=s) for s, n in amounts.items()),
    ]
    sample = only(between(before, after))
    assert sample.cached_tokens == 21_139_520
    assert (sample.cached_device, sample.cached_host) == (18_916_096, 691_904)
    assert sample.cached_remote == 1_531_520


def test_a_total_without_breakdown_names_no_tier() -> None:
    before = [sglang("prompt_tokens_total", 0)]
    after = [
        sglang("prompt_tokens_total", 100),
        sglang("cached_tokens_total", 60, cache_source="total"),
    ]
    sample = only(between(before, after))
    assert sample.cached_tokens == 60
    assert (sample.cached_device, sample.cached_host, sample.cached_remote) == (None, None, None)


def test_no_cached_series_yet_means_zero_cached_where_prompts_were_served() -> None:
    sample = only(between([sglang("prompt_tokens_total", 0)], [sglang("prompt_tokens_total", 100)]))
    assert sample.cached_tokens == 0
    idle = only(between([sglang("num_running_reqs", 0)], [sglang("num_running_reqs", 0)]))
    assert idle.cached_tokens is None
    assert "sglang:cached_tokens_total" not in page(sglang("num_running_reqs", 0)).missing


def test_tensor_ranks_repeat_the_same_tokens_and_are_read_once() -> None:
    def line(rank: str, value: int) -> str:
        return sglang(
            "prefill_effective_tokens_total", value, mode="input", tp_rank=rank, pp_rank="0"
        )

    sample = only(between([line(rank, 0) for rank in "0123"], [line(rank, 500) for rank in "0123"]))
    assert sample.lookup_tokens == 500


def test_data_parallel_ranks_have_their_own_memory_and_the_server_its_requests() -> None:
    def lines(prompt: int) -> list[str]:
        gauges = [
            # attention data parallelism: tensor ranks 0-1 serve rank 0, 2-3 rank 1
            sglang("kv_used_tokens", used, dp_rank=dp, tp_rank=tp)
            for dp, tp, used in (("0", "0", 10), ("0", "1", 10), ("1", "2", 30), ("1", "3", 30))
        ]
        return [sglang("prompt_tokens_total", prompt), *gauges]

    samples = {sample.replica: sample for sample in between(lines(0), lines(70))}
    assert set(samples) == {"replica", "replica/0", "replica/1"}
    assert samples["replica"].prompt_tokens == 70
    assert samples["replica/0"].kv_running_tokens == 10
    assert samples["replica/1"].kv_running_tokens == 30
    assert samples["replica/0"].prompt_tokens is None


def test_t20_memory_is_split_by_the_engines_own_gauges() -> None:
    amounts = {"kv_used_tokens": 100, "kv_evictable_tokens": 700, "kv_available_tokens": 200,
               "max_total_num_tokens": 1000, "page_size": 64}  # fmt: skip
    lines = [sglang(name, amount) for name, amount in amounts.items()]
    sample = only(between(lines, lines))
    assert (sample.kv_running_tokens, sample.kv_cached_tokens) == (100, 700)
    assert (sample.kv_free_tokens, sample.kv_capacity_tokens) == (200, 1000)
    assert sample.block_size == 64


def test_evictions_without_rank_labels_could_be_a_multiple_and_are_unknown() -> None:
    prompt = sglang("prompt_tokens_total", 1)
    before = [prompt, 'sglang:evicted_tokens_total{cache_type="radix"} 0']
    after = [prompt, 'sglang:evicted_tokens_total{cache_type="radix"} 400']
    assert only(between(before, after)).evicted is None
    ranked = [line.replace('"radix"', '"radix",tp_rank="0"') for line in (before[1], after[1])]
    sample = only(between([prompt, ranked[0]], [prompt, ranked[1]]))
    assert (sample.evicted, sample.model) == ({"device/tokens": 400}, "m")


def test_lookups_of_older_versions_are_marked_as_counted_per_attempt() -> None:
    name = "realtime_tokens_total"
    before = [sglang(name, 0, mode=mode) for mode in ("prefill_compute", "prefill_cache", "decode")]
    after = [
        sglang(name, 40, mode="prefill_compute"),
        sglang(name, 60, mode="prefill_cache"),
        sglang(name, 999, mode="decode"),
    ]
    sample = only(between(before, after))
    assert (sample.lookup_hit_tokens, sample.lookup_tokens) == (60, 100)
    assert sample.provenance == "lookup/attempt/tokens"


def test_priorities_are_parts_of_the_total() -> None:
    lines = [
        sglang("num_running_reqs", 5, priority=""),
        sglang("num_running_reqs", 3, priority="1"),
    ]
    assert only(between(lines, lines)).running_requests == 5


def test_role_comes_from_the_engine_type_unless_configured() -> None:
    line = sglang("prompt_tokens_total", 1, engine_type="decode")
    assert only(between([line], [line])).role == "decode"
    state = TargetState()
    configured = TargetIdentity("target", "replica", role="prefill")
    assert only(advance(state, page(line), 1e9, configured)).role == "prefill"


def test_custom_request_labels_are_summed_over() -> None:
    before = [sglang("prompt_tokens_total", 0, tenant=tenant) for tenant in "ab"]
    after = [sglang("prompt_tokens_total", n, tenant=t) for t, n in (("a", 10), ("b", 5))]
    assert only(between(before, after)).prompt_tokens == 15


# -------------------------------------------------------------------- llama.cpp


def test_the_prompt_is_computed_plus_cached() -> None:
    sample = only(
        between(
            ["llamacpp:prompt_tokens_total 10", "llamacpp:prompt_tokens_cached_total 100"],
            ["llamacpp:prompt_tokens_total 11", "llamacpp:prompt_tokens_cached_total 336"],
        )
    )
    assert (sample.prompt_tokens, sample.cached_tokens) == (237, 236)


def test_t22_without_the_cached_counter_no_prompt_length_is_invented() -> None:
    gauge = "llamacpp:requests_processing 1"
    sample = only(
        between(
            ["llamacpp:prompt_tokens_total 10", gauge], ["llamacpp:prompt_tokens_total 99", gauge]
        )
    )
    assert (sample.prompt_tokens, sample.cached_tokens) == (None, None)
    assert page("llamacpp:prompt_tokens_total 10").missing == (
        "llamacpp:prompt_tokens_cached_total",
        "llamacpp:tokens_predicted_total",
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
    )


# ------------------------------------------------------------------------- all


def test_t21_units_are_converted_or_left_out_never_mixed() -> None:
    hits = [
        tokens_of(50, "blocks", 64),
        tokens_of(9000, "tokens", None),
        tokens_of(5, "requests", 64),
    ]
    asked = [
        tokens_of(100, "blocks", 64),
        tokens_of(10_000, "tokens", None),
        tokens_of(10, "requests", 64),
    ]
    assert hits == [3200, 9000, None]
    assert sum(n for n in hits if n) / sum(n for n in asked if n) == pytest.approx(12_200 / 16_400)
    assert tokens_of(50, "blocks", None) is None


@pytest.mark.parametrize("name", ENGINES)
def test_tables_fill_fields_of_the_record_in_its_unit(name: str) -> None:
    for row in load_engine(name).rows:
        assert row.field in EngineSample.model_fields or row.field == ASIDE
        if row.measure.endswith("_tokens") or row.measure.startswith("cached_"):
            assert row.unit in ("tokens", "blocks")
        assert row.unit == "seconds" or not row.measure.endswith("_seconds")
        assert row.meaning


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300"])
def test_impossible_counts_are_absent_not_zero(value: str) -> None:
    sample = only(
        between(
            [vllm("prompt_tokens_total", 0), vllm("generation_tokens_total", 0)],
            [f'vllm:prompt_tokens_total{{engine="0",model_name="m"}} {value}',
             vllm("generation_tokens_total", 4)],
        )
    )  # fmt: skip
    assert sample.prompt_tokens is None
    assert sample.output_tokens == 4


def test_pages_of_other_programs_are_named_as_such() -> None:
    with pytest.raises(UnknownPage, match="vllm, sglang, llamacpp"):
        page("node_cpu_seconds_total 5")
    with pytest.raises(UnknownPage):
        page("vllm_operator_reconciles_total 5")
    with pytest.raises(UnknownPage):
        page("")
