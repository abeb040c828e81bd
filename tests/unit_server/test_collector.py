"""The collector on hand-made counters: what is on the page, what is not, and what never falls."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from exporter.collector import Collector, Inputs
from exporter.engine_totals import EngineTotals
from exporter.metrics import DEFINITIONS
from exporter.records import EngineSample
from exporter.store.counters import TTFT_BOUNDS, CounterRow, Snapshot, TtftRow
from exporter.store.samples import TargetRow

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def empty_snapshot() -> Snapshot:
    return Snapshot(
        requests={},
        ttft={},
        ingested={},
        rejected={},
        late_tokens=0,
        folded={},
        last_arrived=None,
    )


class Bench:
    """One collector with its inputs in reach."""

    def __init__(self) -> None:
        self.snapshot = empty_snapshot()
        self.targets: list[TargetRow] = []
        self.engines = EngineTotals(now=lambda: NOON)
        self.collector = Collector(
            Inputs(
                counters=lambda: self.snapshot,
                engines=self.engines.snapshot,
                targets=lambda: self.targets,
                store_file=Path("nowhere"),
                version="1.2.3",
            )
        )

    def page(self, openmetrics: bool = False) -> str:
        return self.collector.render(openmetrics=openmetrics).decode()

    def samples(self) -> Samples:
        return {
            (s.name, tuple(sorted(s.labels.items()))): s.value
            for family in parse_classic(self.page())
            for s in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, tuple(sorted(labels.items()))))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def sample(minute: int, **more: object) -> EngineSample:
    moment = NOON + timedelta(minutes=minute)
    fields = {
        "target": "a:1",
        "replica": "a",
        "engine": "vllm",
        "model": "m",
        "since": moment - timedelta(minutes=1),
        "ts": moment,
    }
    return EngineSample.model_validate(fields | more)


def test_counters_of_a_label_set(bench: Bench) -> None:
    bench.snapshot.requests["m", "r", "t", "acme"] = CounterRow(
        miss_requests=1,
        hit_requests=2,
        unknown_requests=3,
        prompt_tokens=6000,
        reported_prompt_tokens=3000,
        cached_tokens=1500,
        cached_device=1000,
        cached_host=200,
    )
    who = {"model": "m", "route": "r", "template": "t", "tenant": "acme"}
    outcomes = ("miss", "partial", "hit", "unknown")
    counts = [bench.value("prefixcache_requests_total", **who, outcome=o) for o in outcomes]
    assert counts == [1, 0, 2, 3]
    assert bench.value("prefixcache_prompt_tokens_total", **who) == 6000
    assert bench.value("prefixcache_reported_prompt_tokens_total", **who) == 3000
    tiers = ("device", "host", "disk", "remote", "unknown")
    cached = [bench.value("prefixcache_cached_tokens_total", **who, tier=t) for t in tiers]
    assert cached == [1000, 200, 0, 0, 300]  # sums to 1500: the ratio is 50 %


def test_ttft_is_a_histogram_with_cumulative_buckets(bench: Bench) -> None:
    counts = [0] * (len(TTFT_BOUNDS) + 1)
    counts[TTFT_BOUNDS.index(0.1)], counts[TTFT_BOUNDS.index(1.0)], counts[-1] = 2, 3, 1
    bench.snapshot.ttft["m", "r", "hit"] = TtftRow(counts, 4.5)
    who = {"model": "m", "route": "r", "outcome": "hit"}
    bounds = ("0.08", "0.1", "0.75", "1.0", "80.0", "+Inf")
    buckets = [bench.value("prefixcache_ttft_seconds_bucket", **who, le=b) for b in bounds]
    assert buckets == [0, 2, 2, 5, 5, 6]
    assert bench.value("prefixcache_ttft_seconds_count", **who) == 6
    assert bench.value("prefixcache_ttft_seconds_sum", **who) == 4.5


def test_t48_a_removed_target_and_an_old_state_have_no_series(bench: Bench) -> None:
    bench.targets = [TargetRow("a", up=True, missing_metrics=("x",)), TargetRow("b", up=True)]
    assert bench.value("prefixscope_target_up", target="b") == 1
    bench.targets = [TargetRow("a", up=False)]
    assert bench.value("prefixscope_target_up", target="a") == 0
    assert 'target="b"' not in bench.page()
    assert bench.value("prefixscope_target_metric_missing", target="a", metric="x") is None


def test_t53_known_label_values_start_at_zero(bench: Bench) -> None:
    bench.snapshot.requests["m", "", "", ""] = CounterRow()
    bench.engines.add([sample(0, since=None)])
    zero = {name for (name, _), value in bench.samples().items() if value == 0}
    assert {
        "prefixcache_requests_total",
        "prefixcache_cached_tokens_total",
        "prefixcache_engine_prompt_tokens_total",
        "prefixcache_engine_cached_tokens_total",
        "prefixcache_resets_total",
        "prefixscope_late_tokens_total",
        "prefixscope_folded_label_values",
    } <= zero


@pytest.mark.parametrize("openmetrics", [False, True])
def test_t56_names_are_plain_and_counters_end_in_total(bench: Bench, openmetrics: bool) -> None:
    bench.snapshot.requests["m", "", "", ""] = CounterRow()
    bench.snapshot.ttft["m", "", "hit"] = TtftRow()
    parse = parse_openmetrics if openmetrics else parse_classic
    families = list(parse(bench.page(openmetrics)))
    assert len(families) == len(DEFINITIONS)
    for s in (s for family in families for s in family.samples):
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", s.name)
        assert all(re.fullmatch(r"[a-z_][a-z0-9_]*", label) for label in s.labels)
    for family in families:
        if family.type == "counter":
            assert {s.name for s in family.samples} <= {f"{family.name}_total"}


def test_engine_counters_add_increases_and_keep_the_newest_gauges(bench: Bench) -> None:
    bench.engines.add([sample(-2, since=None, kv_running_tokens=5, kv_capacity_tokens=90)])
    bench.engines.add([sample(-1, prompt_tokens=100, cached_tokens=60, cached_device=60)])
    bench.engines.add(
        [
            sample(0, prompt_tokens=10, cached_tokens=5, reset=True, kv_running_tokens=7),
            sample(0, replica="d", role="decode", prompt_tokens=1000, cached_tokens=1000),
            sample(-60, replica="old", prompt_tokens=1000, cached_tokens=1000),
        ]
    )
    who = {"model": "m", "replica": "a"}
    assert bench.value("prefixcache_engine_prompt_tokens_total", **who) == 110
    name = "prefixcache_engine_cached_tokens_total"
    assert bench.value(name, **who, tier="device") == 60
    assert bench.value(name, **who, tier="unknown") == 5
    assert bench.value("prefixcache_resets_total", **who, reason="restart") == 1
    assert bench.value("prefixcache_kv_tokens", **who, state="running") == 7
    # unknown is absent: neither cached nor free memory, nor a capacity no longer told
    assert bench.value("prefixcache_kv_tokens", **who, state="cached") is None
    assert bench.value("prefixcache_kv_capacity_tokens", **who) is None
    assert 'replica="d"' not in bench.page()
    assert 'replica="old"' not in bench.page()


def test_t13_an_engine_without_a_cached_counter_has_no_cached_series(bench: Bench) -> None:
    bench.engines.add([sample(0, prompt_tokens=100, cached_tokens=None)])
    page = bench.page()
    assert 'prefixcache_engine_prompt_tokens_total{model="m",replica="a"} 100.0' in page
    assert "prefixcache_engine_cached_tokens_total{" not in page


def test_replicas_that_are_no_target_any_more_go(bench: Bench) -> None:
    bench.engines.add([sample(0, prompt_tokens=1), sample(0, replica="b", prompt_tokens=1)])
    bench.engines.keep_only(["b"])
    assert {key[1] for key in bench.engines.snapshot()} == {"b"}


def test_a_replica_that_was_forgotten_begins_at_zero_when_it_comes_back(bench: Bench) -> None:
    name, who = "prefixcache_engine_cached_tokens_total", {"model": "m", "replica": "a"}
    # An engine that does not tell tiers: 600 of 1000 tokens.
    bench.engines.add([sample(-1, prompt_tokens=1000, cached_tokens=600)])
    assert bench.value(name, **who, tier="unknown") == 600
    # A list of targets that left it out once.
    bench.engines.keep_only([])
    assert bench.value(name, **who, tier="unknown") is None
    bench.engines.add([sample(0, prompt_tokens=100, cached_tokens=50)])
    assert bench.value("prefixcache_engine_prompt_tokens_total", **who) == 100
    assert bench.value(name, **who, tier="unknown") == 50


def test_t50_sources_beyond_the_bound_are_summed_as_other(bench: Bench) -> None:
    bench.snapshot = replace(
        bench.snapshot, ingested={(f"source-{n}", "native"): 2 for n in range(150)}
    )
    page = bench.page()
    assert page.count("prefixscope_ingested_records_total{") == 101
    value = bench.value("prefixscope_ingested_records_total", source="other", format="native")
    assert value == 100


def test_the_page_counts_its_own_series(bench: Bench) -> None:
    bench.snapshot.requests["m", "", "", ""] = CounterRow()
    lines = [line for line in bench.page().splitlines() if not line.startswith("#")]
    assert bench.value("prefixscope_exposed_series") == len(lines)


def test_ingest_lag_appears_with_the_first_row(bench: Bench) -> None:
    assert bench.value("prefixscope_ingest_lag_seconds") is None
    an_hour_ago = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    bench.snapshot = replace(bench.snapshot, last_arrived=an_hour_ago)
    lag = bench.value("prefixscope_ingest_lag_seconds")
    assert lag is not None
    assert lag >= 3600


def test_store_bytes_are_file_and_log(tmp_path: Path) -> None:
    bench = Bench()
    store = tmp_path / "prefixscope.duckdb"
    store.write_bytes(b"x" * 100)
    (tmp_path / "prefixscope.duckdb.wal").write_bytes(b"x" * 11)
    inputs = bench.collector._inputs
    collector = Collector(Inputs(**{**inputs.__dict__, "store_file": store}))
    assert "prefixscope_store_bytes 111.0" in collector.render(openmetrics=False).decode()


def test_the_reference_lists_every_metric() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", DOCS.read_text("utf-8"), re.MULTILINE))
    expected = {
        d.name: f"{d.type} | {', '.join(f'`{label}`' for label in d.labels) or '–'} | {d.help}"
        for d in DEFINITIONS
    }
    assert rows == expected
