"""Which label sets are one engine, what it is called, and what its page was."""

from collections.abc import Callable

import pytest

from exporter.sources.prometheus.api import PrometheusApi, RawSeries
from exporter.sources.prometheus.backfill import asked_target, crowded_instances
from exporter.sources.prometheus.names import Naming
from exporter.sources.prometheus.pages import pages_of, wanted_names
from exporter.sources.prometheus.settings import PrometheusSourceSettings
from exporter.sources.prometheus.targets import PastTarget, find_targets
from exporter.sources.target_settings import TargetSettings
from exporter.store.store import Store
from tests.unit_prometheus.fake_prometheus import Fake, Series, serving

HA = ("prometheus_replica", "__replica__", "replica")
VALUES = [[1000.0, "1"], [1015.0, "2"]]


def engine(up: bool = True, own: dict[str, str] | None = None, **target: str) -> list[Series]:
    """A scraped vLLM: its target labels, and labels of its own page."""
    labels = {"job": "vllm", **target}
    page = {"model_name": "m", "engine": "0", **(own or {})}
    told = [{"metric": {"__name__": "vllm:prompt_tokens_total", **page, **labels},
             "values": VALUES}]  # fmt: skip
    if up:
        told.append({"metric": {"__name__": "up", **labels}, "values": VALUES})
    return told


def find(series: list[Series], **more: object) -> list[PastTarget]:
    fake = Fake(series, **more)  # type: ignore[arg-type]
    with serving(fake) as address:
        return find_targets(PrometheusApi(PrometheusSourceSettings(url=address)), 0, 2000, (), HA)


def test_a_target_is_what_up_says() -> None:
    labels = {"instance": "10.0.0.1:8000", "pod": "vllm-0", "rack": "r7"}
    node = {"metric": {"__name__": "up", "job": "node", "instance": "10.0.0.1:9100"},
            "values": VALUES}  # fmt: skip
    (target,) = find([*engine(**labels), node])
    assert dict(target.labels) == {"job": "vllm", **labels}
    assert "vllm:prompt_tokens_total" in target.names


def test_without_up_the_usual_labels_are_the_targets() -> None:
    (target,) = find(engine(up=False, instance="10.0.0.1:8000", pod="vllm-0", namespace="llm"))
    assert dict(target.labels) == {
        "job": "vllm", "instance": "10.0.0.1:8000", "pod": "vllm-0", "namespace": "llm",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "engines"),
    [
        # A pair of Prometheus, as Thanos or Mimir shows it.
        ({"prometheus_replica": "a"}, {"prometheus_replica": "b"}, 1),
        ({"replica": "a"}, {"replica": "b"}, 1),
        # Two jobs that found the same address, one of them with more labels.
        ({"job": "vllm", "pod": "p"}, {"job": "pods", "pod": "p", "container": "c"}, 1),
        ({"job": "vllm"}, {"job": "pods", "pod": "p"}, 1),
        # The same address in two clusters; an address that another pod got later.
        ({"cluster": "a"}, {"cluster": "b"}, 2),
        ({"pod": "p"}, {"pod": "q"}, 2),
    ],
)
def test_one_engine_is_read_once(one: dict[str, str], other: dict[str, str], engines: int) -> None:
    series = engine(**{"instance": "10.0.0.1:8000", **one})
    series += engine(**{"instance": "10.0.0.1:8000", **other})
    found = find(series)
    assert len(found) == engines
    assert sum(len(target.also) for target in found) == 2 - engines


def test_copies_are_left_out_only_beside_what_they_copy() -> None:
    copy = engine(instance="10.0.0.1:9000", own={"dynamo_component": "backend"})
    (alone,) = find(copy)
    assert not alone.copies
    beside = {t.instance: t.copies for t in find([*copy, *engine(instance="10.0.0.1:8000")])}
    assert beside == {"10.0.0.1:9000": True, "10.0.0.1:8000": False}


@pytest.fixture
def named(new_store: Callable[[str], Store]) -> Callable[..., list[tuple[str, str]]]:
    """Target and replica of each, as the settings name them."""

    def name(found: list[PastTarget], **settings: object) -> list[tuple[str, str]]:
        naming = Naming(TargetSettings.model_validate(settings))
        cursor = new_store("names").cursor()
        crowded = crowded_instances(found)
        targets = [naming.name(cursor, asked_target(one, crowded, None)) for one in found]
        return [(target.name, target.replica) for target in targets]

    return name


def test_names_are_discovery_s(named: Callable[..., list[tuple[str, str]]]) -> None:
    found = find(engine(instance="10.0.0.1:8000") + engine(instance="10.0.0.2:8000", pod="p-1"))
    assert named(found) == [("10.0.0.1:8000", "10.0.0.1:8000"), ("10.0.0.2:8000", "p-1")]
    labelled = find(engine(instance="10.0.0.1:8000", pod="p-1", shard="s7"))
    assert named(labelled, replica_label="shard") == [("10.0.0.1:8000", "s7")]


def test_two_engines_of_one_pod_are_told_apart_by_port(
    named: Callable[..., list[tuple[str, str]]],
) -> None:
    found = find([*engine(instance="10.0.0.1:8000", pod="p"),
                  *engine(instance="10.0.0.1:8001", pod="p"),
                  *engine(instance="10.0.0.9:8000", pod="p")])  # fmt: skip
    assert [replica for _, replica in named(found)] == ["p:8000", "p:8001", "p"]


def test_what_is_scraped_now_has_its_own_address(
    named: Callable[..., list[tuple[str, str]]],
) -> None:
    labels = {"job": "vllm", "instance": "west"}
    active = {"scrapeUrl": "http://10.0.0.1:8000/engine/metrics", "labels": labels,
              "discoveredLabels": {"__meta_kubernetes_pod_name": "p-1"},
              "scrapeInterval": "30s"}  # fmt: skip
    found = find(engine(instance="west"), targets=[active])
    assert found[0].interval_seconds == 30
    assert named(found) == [("10.0.0.1:8000/engine/metrics", "p-1")]
    static = [{"url": "http://10.0.0.1:8000/engine/metrics", "name": "w", "replica": "w-1"}]
    assert named(found, static=static) == [("w", "w-1")]


def test_pages_lose_the_target_s_labels_and_get_their_own_back() -> None:
    target = {"job": "vllm", "instance": "10.0.0.1:8000", "pod": "p"}
    own = {"model_name": 'a"b\\c', "exported_pod": "q", "exported_by": "x"}
    told = {"__name__": "vllm:prompt_tokens_total", **target, **own}
    series = [
        RawSeries(told, (1000, 3000), ("5", "9")),
        RawSeries({"__name__": "up", **target}, (1000, 2000, 3000), ("1", "0", "1")),
    ]  # fmt: skip
    pages = [(page.unix, page.text) for page in pages_of(series, target)]
    line = 'vllm:prompt_tokens_total{exported_by="x",model_name="a\\"b\\\\c",pod="q"}'
    assert pages == [(1.0, f"{line} 5\n"), (2.0, None), (3.0, f"{line} 9\n")]


def test_a_page_that_states_times_belongs_to_the_scrape_that_brought_it() -> None:
    target = {"job": "vllm", "instance": "a"}
    series = [
        RawSeries({"__name__": "vllm:prompt_tokens_total", **target}, (900, 2800), ("5", "9")),
        RawSeries({"__name__": "up", **target}, (1000, 2000, 3000), ("1", "1", "1")),
    ]
    assert [page.unix for page in pages_of(series, target)] == [1.0, 3.0]


def test_names_in_every_spelling_are_wanted() -> None:
    names = ["vllm:prompt_tokens_total", "vllm_prompt_tokens_total", "sglang:cached_tokens_total",
             "ray_vllm_prompt_tokens_total", "process_start_time_seconds"]  # fmt: skip
    others = ["go_goroutines", "vllm:request_params_n_bucket", "http_requests_total", "up"]
    assert wanted_names(names + others) == frozenset(names)
