"""What every mapping table can rely on: versions, ranks, tenants, secrets, map fields, advice."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.engine_totals import EngineTotals
from exporter.records import EngineSample
from exporter.sources.engines import ENGINES, load_engine
from exporter.sources.engines.mapping import (
    ASIDE,
    Engine,
    Row,
    VersionRange,
    version_range,
)
from exporter.sources.engines.own_series import MAX_PAIRS, OwnSeries, PageLabels, keyed_hash
from exporter.sources.engines.page import EnginePage
from exporter.sources.engines.reading import read_page
from exporter.sources.exposition import NotAMetricsPage, PageSample
from exporter.sources.increase import advance
from exporter.sources.pages import ingest_pages
from exporter.sources.target_state import TargetIdentity, TargetState
from exporter.store.store import Store
from tests.unit_engines.conftest import Through, write_pages

TEXT = "text/plain; version=0.0.4"
TEAMS = PageLabels(tenant="team", route="app", hash_key="k")
WHO = TargetIdentity("target", "replica")


def sglang(name: str, value: float, **labels: str) -> str:
    text = ",".join(f'{k}="{v}"' for k, v in {"model_name": "m", **labels}.items())
    return f"sglang:{name}{{{text}}} {value}"


def page(lines: list[str], labels: PageLabels = TEAMS) -> EnginePage:
    return read_page(("\n".join(lines) + "\n").encode(), TEXT, labels)


def follow(*pages: list[str], labels: PageLabels = TEAMS) -> list[list[EngineSample]]:
    state = TargetState()
    return [
        advance(state, page(lines, labels), 1_000_000_000 + 60 * number, WHO)
        for number, lines in enumerate(pages)
    ]


# ------------------------------------------------------------------------ tables


# {when it is credited}/{how often a prompt is}/{in what}; see docs/engines/README.md.
PROVENANCE = re.compile(r"(lookup|finish)/(attempt|once)/(tokens|blocks|objects|requests)")
# Fields that some hit ratio is made of: their rows say their provenance.
RATIO_PARTS = frozenset(
    {
        "prompt_tokens", "cached_tokens", "cached_device", "cached_host", "cached_disk",
        "cached_remote", "lookup_tokens", "lookup_hit_tokens", "external_lookup_tokens",
        "external_hit_tokens", "lookup_count", "hit_count",
    }
)  # fmt: skip


@pytest.mark.parametrize("name", ENGINES)
def test_every_part_of_a_ratio_says_how_it_is_credited(name: str) -> None:
    for row in load_engine(name).rows:
        if row.field in RATIO_PARTS:
            assert row.provenance is not None, (row.measure, row.exposed)
            assert PROVENANCE.fullmatch(row.provenance), row.provenance


@pytest.mark.parametrize("name", ENGINES)
def test_map_fields_have_keys_and_others_none(name: str) -> None:
    for row in load_engine(name).rows:
        is_map = row.field in ("evicted", "demoted", "tier_used", "tier_capacity", ASIDE) or (
            row.field.startswith("offload_")
        )
        assert ("/" in row.measure) == is_map, row.measure
        if row.field.startswith("offload_"):
            *direction, tier = row.measure.split("/")[1:]
            # What was dropped was never loaded: only a store can be.
            assert direction in ([["store"], ["load"]] if row.field != "offload_dropped" else [[]])
            assert tier in ("device", "host", "disk", "remote")


@pytest.mark.parametrize("name", ENGINES)
def test_nothing_is_read_and_skipped_at_once(name: str) -> None:
    engine = load_engine(name)
    exact = [skipped for skipped in engine.skipped if skipped in engine.series_names]
    assert exact == []
    assert all(engine.skipped.values())


# ---------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ((), ""),
        (("a_total",), "0.9.2+"),
        (("b_total",), "up to 0.11.2"),
        (("a_total", "b_total"), "0.9.2 to 0.11.2"),
        (("new_total", "b_total"), "0.16.0+"),  # hidden old names switched on
        (("mark_total",), "0.30.0+"),
        (("where_total",), ""),  # the name alone proves nothing
    ],
)
def test_names_prove_a_range_of_versions(names: tuple[str, ...], said: str) -> None:
    rows = (
        Row("prompt_tokens", "counter", "tokens", ("a_total",), "", since="0.9.2"),
        Row("prompt_tokens", "counter", "tokens", ("b_total",), "", until="0.11.2"),
        Row("prompt_tokens", "counter", "tokens", ("new_total",), "", since="0.16.0"),
        Row("prompt_tokens", "counter", "tokens", ("where_total",), "", since="0.40.0",
            where={"mode": frozenset({"x"})}),
    )  # fmt: skip
    engine = Engine("x", rows, {}, version_marks={"mark_total": ("0.30.0", None)})
    assert str(version_range(engine, frozenset(names))) == said


def test_versions_compare_as_numbers_and_decide_what_may_be_missing() -> None:
    row = Row("prompt_tokens", "counter", "tokens", ("a",), "", since="0.9.2", until="0.12.0")
    assert VersionRange("0.10.0", None).proves(row)
    assert not VersionRange("0.9.0", None).proves(row)
    assert not VersionRange(None, "0.10.0").proves(row)
    assert VersionRange().may_have(row)
    assert not VersionRange(None, "0.9.0").may_have(row)
    assert not VersionRange("0.13.0", None).may_have(row)


def vllm_page(*names: str) -> EnginePage:
    return page([f'vllm:{name}{{engine="0",model_name="m"}} 1' for name in names])


def test_the_same_name_is_credited_differently_by_proven_version() -> None:
    look_ups = ("prefix_cache_queries_total", "prefix_cache_hits_total")
    older = vllm_page(*look_ups, "num_requests_waiting_by_reason")
    newer = vllm_page(*look_ups, "request_num_preemptions_count")
    assert older.tables["vllm"].provenance == "lookup/attempt/tokens"
    assert newer.tables["vllm"].provenance == "lookup/once/tokens"


def test_what_a_version_cannot_have_is_not_missing_and_the_rest_says_what_to_do() -> None:
    old = vllm_page("gpu_prefix_cache_queries_total", "gpu_prefix_cache_hit_rate")
    assert "vllm:prompt_tokens_cached_total" not in old.missing
    assert "vllm:kv_cache_usage_perc" not in old.missing
    assert "vllm:gpu_cache_usage_perc" in old.missing
    new = vllm_page("prompt_tokens_total", "prefix_cache_queries_total")
    advice = dict(zip(new.missing, new.advice, strict=True))
    assert advice["vllm:prompt_tokens_cached_total"] == (
        "vllm:prompt_tokens_cached_total: vllm has it from 0.16.0; "
        "start without --disable-log-stats"
    )


# ----------------------------------------------------------------------- tenants


def test_tenants_and_routes_are_told_apart_and_add_up(through: Through) -> None:
    def lines(red: int, hits: int, blue: int) -> str:
        return "\n".join(
            [
                sglang("prompt_tokens_total", red, team="red", app="chat"),
                sglang("cached_tokens_total", hits, team="red", app="chat"),
                sglang("prompt_tokens_total", blue, team="blue", app="chat"),
                sglang("num_running_reqs", 1),
            ]
        )

    pages = {"a": [lines(100, 50, 400), lines(1100, 850, 500), lines(1100, 850, 500)]}
    by = through(pages, "engine_hit_ratio", labels=TEAMS, by="tenant")
    shown = {row["tenant"]: (row["cached_tokens"], row["prompt_tokens"]) for row in by}
    # blue has no cached series of its own yet: where prompts were served that is 0
    assert shown == {"red": (800, 1000), "blue": (0, 100), "": (0, 0)}
    (row,) = through(pages, "engine_hit_ratio", labels=TEAMS)
    assert (row["cached_tokens"], row["prompt_tokens"], row["gaps"]) == (800, 1100, 0)
    assert row["caution"] is None
    (row,) = through(pages, "engine_hit_ratio", labels=TEAMS, by="route")[:1]
    assert (row["route"], row["prompt_tokens"]) == ("chat", 1100)
    (row,) = through(pages, "replicas", labels=TEAMS)
    # 300 tokens computed in the two minutes between three pages, however many tenants there are
    assert row["computed_tokens_per_second"] == pytest.approx(300 / 120)
    # without configured labels they are one
    (row,) = through(pages, "engine_hit_ratio", by="tenant")
    assert (row["tenant"], row["prompt_tokens"]) == ("", 1100)


def test_idle_tenants_are_told_together_as_zero() -> None:
    def lines(red: int) -> list[str]:
        return [
            sglang("prompt_tokens_total", red, team="red"),
            *(sglang("prompt_tokens_total", 7, team=f"idle-{n}") for n in range(5)),
        ]

    _, busy, still = follow(lines(10), lines(15), lines(15))
    assert {(s.tenant, s.prompt_tokens, s.cached_tokens) for s in busy} == {
        (None, 0, 0),
        ("red", 5, 0),
    }
    assert [(s.tenant, s.prompt_tokens, s.cached_tokens) for s in still] == [(None, 0, 0)]


def test_tenants_beyond_the_bound_are_summed_as_other() -> None:
    count = MAX_PAIRS + 50
    names = [f"t{number}" for number in range(count)]

    def lines(factor: int) -> list[str]:
        # tenant n has n + 1 tokens, times the factor
        return [
            sglang("prompt_tokens_total", (n + 1) * factor, team=name)
            for n, name in enumerate(names)
        ]

    _, samples = follow(lines(1), lines(3))
    shown = {s.tenant: s.prompt_tokens for s in samples}
    assert sum(n or 0 for n in shown.values()) == 2 * sum(range(1, count + 1))
    # 99 names, the rest in one: tenants 0 .. 50 have 1 .. 51 tokens, and rose by twice that
    assert len(shown) == MAX_PAIRS
    assert shown["other"] == 2 * sum(range(1, count - (MAX_PAIRS - 1) + 1))


def test_a_reset_is_one_however_many_tenants_tell_of_it() -> None:
    def lines(red: int, blue: int) -> list[str]:
        return [
            sglang("prompt_tokens_total", red, team="red"),
            sglang("prompt_tokens_total", blue, team="blue"),
            sglang("num_running_reqs", 1),
        ]

    _, after = follow(lines(1000, 2000), lines(10, 20))
    assert sum(s.prompt_tokens or 0 for s in after) == 30
    assert [s.tenant for s in after if s.reset] == [None]


# ----------------------------------------------------------------------- secrets

SECRET = Engine(
    "sglang",
    (Row("lookup_tokens", "counter", "tokens", ("sglang:prompt_tokens_total",), "prompts"),),
    {},
    tenant_labels=("salt",),
    secret_labels=("salt",),
)


def secret_series(salt: str, key: str) -> OwnSeries:
    labels = {"salt": salt, "model_name": "m"}
    sample = PageSample("sglang:prompt_tokens_total", labels, 1.0)
    return OwnSeries(SECRET, [sample], PageLabels(hash_key=key))


def test_secrets_are_hashed_before_anything_sees_them() -> None:
    own = secret_series("hunter2", "k1")
    (sample,) = own.by_name["sglang:prompt_tokens_total"]
    assert "hunter2" not in str(sample)
    assert own.group(sample, ranked=False).tenant == keyed_hash("hunter2", "k1")
    assert keyed_hash("hunter2", "k1") != keyed_hash("hunter2", "k2")
    assert len(keyed_hash("hunter2", "k1")) == 16
    none = secret_series("", "k1")
    (sample,) = none.by_name["sglang:prompt_tokens_total"]
    assert none.group(sample, ranked=False).tenant is None


# ------------------------------------------------------------------- whole pages


def test_ranks_repeat_tokens_and_share_bytes(through: Through) -> None:
    def lines(tokens: int, size: int) -> str:
        ranks = [{"tp_rank": str(rank), "pp_rank": "0"} for rank in range(4)]
        return "\n".join(
            [sglang("load_back_tokens_total", tokens, **rank) for rank in ranks]
            + [sglang("load_back_bytes_total", size, **rank) for rank in ranks]
            + [sglang("load_back_duration_seconds_sum", size / 1000, **rank) for rank in ranks]
        )

    (row,) = through({"a": [lines(0, 0), lines(640, 1000)]}, "offload")
    assert (row["direction"], row["tier"], row["observer"]) == ("load", "host", "engine")
    assert (row["tokens"], row["bytes"]) == (640, 4000)
    assert row["seconds"] == pytest.approx(4.0)
    assert row["bytes_per_second"] == pytest.approx(1000)


def test_block_ages_come_from_the_sampled_histograms(through: Through) -> None:
    def lines(counts: tuple[int, int, int], seconds: float) -> str:
        bounds = ("1.0", "60.0", "+Inf")
        name = "vllm:kv_block_lifetime_seconds"
        labels = 'engine="0",model_name="m"'
        buckets = [
            f'{name}_bucket{{{labels},le="{bound}"}} {count}'
            for bound, count in zip(bounds, counts, strict=True)
        ]
        return "\n".join([*buckets, f"{name}_sum{{{labels}}} {seconds}"])

    pages = [lines((0, 2, 2), 20), lines((5, 12, 12), 140)]
    (row,) = through({"a": pages}, "block_ages")
    # 5 below 1 s, 5 more up to 60 s: the median is at the border of the two buckets
    assert (row["kind"], row["sampled"], row["mean_seconds"]) == ("lifetime", 10, 12.0)
    assert row["p50_seconds"] == pytest.approx(1.0)
    # the 9.5th of 10 lies 4.5 of 5 into the bucket from 1 to 60
    assert row["p95_seconds"] == pytest.approx(1 + 59 * 4.5 / 5)


def test_a_histogram_whose_sum_fell_began_anew() -> None:
    def lines(count: int, seconds: float) -> list[str]:
        name = "sglang:time_to_first_token_seconds"
        return [
            sglang("prompt_tokens_total", 1),
            f'{name}_bucket{{model_name="m",le="+Inf"}} {count}',
            f'{name}_sum{{model_name="m"}} {seconds}',
        ]

    _, (sample,) = follow(lines(10, 30.0), lines(12, 4.0))
    assert (sample.ttft_buckets, sample.ttft_sum_seconds) == ({float("inf"): 12}, 4.0)


def test_capacity_is_stated_else_blocks_less_the_null_block(through: Through) -> None:
    info = 'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1001"%s} 1'
    usage = 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
    (blocks,) = through({"a": [usage + info % ""]}, "memory_split")
    stated = info % ',kv_cache_size_tokens="12000"'
    (tokens,) = through({"a": [usage + stated]}, "memory_split")
    assert (blocks["capacity_tokens"], blocks["running_tokens"]) == (16_000, 8_000)
    assert (tokens["capacity_tokens"], tokens["running_tokens"]) == (12_000, 6_000)


def test_every_field_of_a_sample_comes_back_from_the_store(tmp_path: Path) -> None:
    """The columns are the fields, maps and histograms included."""
    era = Path(__file__).parent / "pages" / "vllm"
    folder = tmp_path / "pages" / "a"
    names = ("0.24-both-offload-families.txt", "0.24-both-offload-families.2.txt")
    write_pages(folder, [(era / name).read_bytes() for name in names])
    store = Store.open(tmp_path / "store")
    ingest_pages(store, [folder])
    cursor = store.cursor()
    cursor.execute("SELECT * FROM engine_samples ORDER BY ts DESC LIMIT 1")
    row = cursor.fetchone()
    columns = [column[0] for column in cursor.description or ()]
    assert row is not None
    stored = dict(zip(columns, row, strict=True))
    store.close()
    assert set(columns) == set(EngineSample.model_fields)
    assert stored["offload_bytes"] == {"load/host": 4096, "store/host": 8192}
    assert stored["offload_seconds"] == {"load/host": 0.25, "store/host": 0.5}
    assert stored["block_lifetime_buckets"] == {1.0: 1, 60.0: 4, float("inf"): 6}
    assert (stored["observer"], stored["version"]) == ("engine", "0.24.0+")


# --------------------------------------------------------------- live counters


def live(**fields: object) -> EngineSample:
    moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
    common = {"target": "t", "replica": "r", "engine": "vllm", "model": "m", "ts": moment,
              "since": moment}  # fmt: skip
    return EngineSample.model_validate({**common, **fields})


def totals_of(*samples: EngineSample) -> EngineTotals:
    totals = EngineTotals(now=lambda: datetime(2026, 11, 30, 12, tzinfo=UTC))
    totals.add(samples)
    return totals


def test_only_engines_enter_the_engine_counters() -> None:
    totals = totals_of(
        live(prompt_tokens=10, cached_tokens=5),
        *(
            live(observer=observer, prompt_tokens=10, cached_tokens=5)
            for observer in ("kv_store", "router", "gateway")
        ),
    )
    (row,) = totals.snapshot().values()
    assert (row.prompt_tokens, row.cached_tokens) == (10, 5)


def test_tenants_of_one_page_do_not_hide_each_other() -> None:
    totals = totals_of(
        live(tenant="red", prompt_tokens=10, cached_tokens=5),
        live(kv_running_tokens=7, kv_capacity_tokens=100),
        live(tenant="blue", prompt_tokens=20, cached_tokens=0),
    )
    (row,) = totals.snapshot().values()
    assert (row.prompt_tokens, row.cached_tokens) == (30, 5)
    assert (row.prompt_known, row.cached_known) == (True, True)
    assert (row.running_tokens, row.capacity_tokens) == (7, 100)


def test_t15_tiers_counted_at_another_moment_name_no_tier() -> None:
    totals = totals_of(live(prompt_tokens=10_000, cached_tokens=8000,
                            cached_device=6000, cached_host=2500))  # fmt: skip
    (row,) = totals.snapshot().values()
    assert (row.cached_tokens, row.by_tier) == (8000, {})


def test_where_only_lookups_are_counted_both_counters_are_of_that_family() -> None:
    totals = totals_of(
        live(prompt_tokens=10_000, lookup_tokens=12_000, lookup_hit_tokens=4_800,
             external_hit_tokens=200, provenance="lookup/attempt/tokens")
    )  # fmt: skip
    (row,) = totals.snapshot().values()
    assert (row.prompt_tokens, row.cached_tokens) == (12_000, 5_000)


# ------------------------------------------------------------------------- fuzz

ERAS = sorted((Path(__file__).parent / "pages").glob("*/*"))
ODD = (b"NaN", b"-1", b"1e400", b"+Inf", b"", b"\xff", b'"', b"\\", b"{", b",", b"=", b"1_0",
       b"\n", b"\x00", b"# TYPE ", b"9" * 400)  # fmt: skip
KINDS = ("text/plain", "application/openmetrics-text", "application/json", None)


@st.composite
def damaged_pages(draw: st.DrawFn) -> tuple[bytes, bytes, str | None]:
    """A page and a damaged copy of it."""
    whole = draw(st.sampled_from(ERAS)).read_bytes()[:6000]
    body = bytearray(whole)
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, len(body)))
        removed = draw(st.integers(0, 8))
        body[place : place + removed] = draw(st.sampled_from(ODD))
    return whole, bytes(body), draw(st.sampled_from(KINDS))


@given(damaged_pages())
@settings(max_examples=300)
def test_a_damaged_page_is_read_or_refused_and_never_counts_below_zero(
    pages: tuple[bytes, bytes, str | None],
) -> None:
    whole, damaged, kind = pages
    state = TargetState()
    for minute, body in enumerate((whole, damaged, whole)):
        try:
            read = read_page(body, kind, TEAMS)
        except NotAMetricsPage:
            continue
        for sample in advance(state, read, 1_000_000_000 + 60 * minute, WHO):
            for value in sample.model_dump().values():
                amounts = value.values() if isinstance(value, dict) else [value]
                assert not any(isinstance(n, int | float) and n < 0 for n in amounts)
    assert TargetState.from_json(state.to_json()) == state


def test_a_number_too_large_for_any_counter_is_refused_in_words() -> None:
    body = f"# TYPE sglang:prompt_tokens counter\nsglang:prompt_tokens_total {'9' * 400}\n# EOF\n"
    with pytest.raises(NotAMetricsPage, match="not valid OpenMetrics"):
        read_page(body.encode(), "application/openmetrics-text")
