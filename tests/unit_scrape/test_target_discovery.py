"""Lists of targets from every source, and what a broken list may not do."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.sources.discovery import Discovery, Target
from exporter.sources.target_settings import TargetSettings

Serve = Callable[..., str]


def discover(**settings: object) -> Discovery:
    return Discovery(TargetSettings.model_validate(settings))


def test_static_targets_in_short_and_long_form() -> None:
    found = discover(
        static=[
            "engine-a:8000",
            "https://engine-b/custom",
            {"url": "10.0.0.1:8000", "name": "c", "replica": "gpu-3", "role": "prefill"},
        ]
    ).refresh()
    assert found == [
        Target("engine-a:8000", "http://engine-a:8000/metrics", "engine-a:8000"),
        Target("engine-b/custom", "https://engine-b/custom", "engine-b/custom"),
        Target("c", "http://10.0.0.1:8000/metrics", "gpu-3", "prefill"),
    ]


@pytest.mark.parametrize("url", ["ftp://a/metrics", "http://", "file:///etc/passwd", ""])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="must be http"):
        TargetSettings.model_validate({"static": [url]})


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="file_ds"):
        TargetSettings.model_validate({"file_ds": []})


GROUPS = [
    {"targets": ["10.0.0.1:8000"], "labels": {"pod": "vllm-0", "job": "x"}},
    {"targets": ["10.0.0.2:8000", "10.0.0.3:8000"]},
    {
        "targets": ["10.0.0.4:443"],
        "labels": {"__scheme__": "https", "__metrics_path__": "/m", "set": "s"},
    },
]


@pytest.mark.parametrize("suffix", ["json", "yml"])
def test_file_sd_in_both_spellings(tmp_path: Path, suffix: str) -> None:
    text = json.dumps(GROUPS)
    if suffix == "yml":
        text = (
            "- targets: ['10.0.0.1:8000']\n  labels: {pod: vllm-0, job: x}\n"
            "- targets: ['10.0.0.2:8000', '10.0.0.3:8000']\n"
            "- targets: ['10.0.0.4:443']\n"
            "  labels: {__scheme__: https, __metrics_path__: /m, set: s}\n"
        )
    (tmp_path / f"a.{suffix}").write_text(text)
    discovery = discover(
        file_sd=[{"files": [str(tmp_path / f"*.{suffix}")], "role": "decode"}], replica_label="set"
    )
    assert discovery.refresh() == [
        Target("10.0.0.1:8000", "http://10.0.0.1:8000/metrics", "vllm-0", "decode"),
        Target("10.0.0.2:8000", "http://10.0.0.2:8000/metrics", "10.0.0.2:8000", "decode"),
        Target("10.0.0.3:8000", "http://10.0.0.3:8000/metrics", "10.0.0.3:8000", "decode"),
        Target("10.0.0.4:443/m", "https://10.0.0.4:443/m", "s", "decode"),
    ]
    assert discovery.errors == {}
    assert discovery.complete


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- targets: [", "neither JSON nor YAML"),
        ('{"targets": []}', "expected a list"),
        ('[{"target": ["a:1"]}]', "targets: Field required"),
        ('[{"targets": "a:1"}]', "valid list"),
    ],
)
def test_a_broken_list_keeps_the_last_good_one_and_says_so(
    tmp_path: Path, text: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "targets.json"
    file.write_text('[{"targets": ["a:1"]}]')
    discovery = discover(file_sd=[{"files": [str(file)]}])
    good = discovery.refresh()
    file.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert discovery.refresh() == good
    (message,) = discovery.errors.values()
    assert says in message
    assert "targets.json" in message
    assert "keeping the last 1 target)" in message
    assert "targets.json" in caplog.text
    assert "\n" not in message
    with caplog.at_level(logging.INFO):
        caplog.clear()
        discovery.refresh()
        assert caplog.messages == []  # it was said
        file.write_text("[]")
        assert discovery.refresh() == []
    assert discovery.errors == {}
    assert caplog.messages == [f"targets from file_sd {file}: read again"]


def test_a_list_that_never_worked_is_not_complete(tmp_path: Path) -> None:
    discovery = discover(static=["a:1"], file_sd=[{"files": [str(tmp_path / "gone.json")]}])
    assert [target.name for target in discovery.refresh()] == ["a:1"]
    assert not discovery.complete
    assert "gone.json" in next(iter(discovery.errors.values()))


def test_http_sd(serve: Serve) -> None:
    url = serve({"/sd": ("application/json", json.dumps(GROUPS[:1]))})
    discovery = discover(http_sd=[{"url": f"{url}/sd"}])
    assert [target.replica for target in discovery.refresh()] == ["vllm-0"]


def test_http_sd_that_fails_says_why(serve: Serve) -> None:
    url = serve({})
    discovery = discover(http_sd=[{"url": f"{url}/sd"}])
    assert discovery.refresh() == []
    assert "HTTP 404" in next(iter(discovery.errors.values()))


def active(address: str, job: str, pod: str | None = None) -> dict[str, object]:
    labels = {"job": job, "instance": address} | ({"pod": pod} if pod else {})
    return {
        "scrapeUrl": f"http://{address}/metrics",
        "labels": labels,
        "discoveredLabels": {"__address__": address},
        "health": "up",
    }


def test_active_targets_of_a_prometheus_filtered_by_job(serve: Serve) -> None:
    targets = [
        active("10.0.0.1:8000", "vllm", "vllm-0"),
        active("10.0.0.2:8000", "vllm"),
        active("10.0.0.9:9100", "node"),
    ]
    answer = {"status": "success", "data": {"activeTargets": targets, "droppedTargets": []}}
    url = serve({"/prom/api/v1/targets?state=active": ("application/json", json.dumps(answer))})
    found = discover(prometheus=[{"url": f"{url}/prom/", "jobs": ["vllm"]}]).refresh()
    assert [(target.name, target.replica) for target in found] == [
        ("10.0.0.1:8000", "vllm-0"),
        ("10.0.0.2:8000", "10.0.0.2:8000"),
    ]
    everything = discover(prometheus=[{"url": f"{url}/prom"}]).refresh()
    assert len(everything) == 3


def test_a_prometheus_that_is_none_says_so(serve: Serve) -> None:
    url = serve({"/api/v1/targets?state=active": ("application/json", '{"status": "error"}')})
    discovery = discover(prometheus=[{"url": url}])
    assert discovery.refresh() == []
    assert "not a Prometheus" in next(iter(discovery.errors.values()))


def test_dns_gives_every_address_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(name: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert name == "vllm.prod.svc"
        hosts = ["10.0.0.2", "10.0.0.1", "10.0.0.1", "fd00::1"]
        return [(2, 1, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr("socket.getaddrinfo", answers)
    found = discover(dns=[{"name": "vllm.prod.svc", "port": 8000}]).refresh()
    assert [target.url for target in found] == [
        "http://10.0.0.1:8000/metrics",
        "http://10.0.0.2:8000/metrics",
        "http://[fd00::1]:8000/metrics",
    ]


def test_a_name_that_does_not_resolve_keeps_the_last_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discovery = discover(dns=[{"name": "127.0.0.1", "port": 8000}])
    assert len(discovery.refresh()) == 1

    def fails(*_: object, **__: object) -> None:
        raise OSError("temporary failure")

    monkeypatch.setattr("socket.getaddrinfo", fails)
    assert len(discovery.refresh()) == 1
    assert "cannot resolve 127.0.0.1" in next(iter(discovery.errors.values()))


def test_a_page_on_two_lists_is_polled_once(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('[{"targets": ["a:1"], "labels": {"pod": "p"}}]')
    discovery = discover(static=["a:1"], file_sd=[{"files": [str(tmp_path / "t.json")]}])
    assert [target.replica for target in discovery.refresh()] == ["p"]


def test_engines_in_one_pod_and_pods_under_one_label_stay_apart(tmp_path: Path) -> None:
    groups = [
        {"targets": ["10.0.0.1:8000", "10.0.0.1:8001"], "labels": {"pod": "p"}},
        {"targets": ["10.0.0.2:8000", "10.0.0.3:8000"], "labels": {"pod": "shared"}},
    ]
    (tmp_path / "t.json").write_text(json.dumps(groups))
    found = discover(file_sd=[{"files": [str(tmp_path / "t.json")]}]).refresh()
    assert [target.replica for target in found] == [
        "p:8000",
        "p:8001",
        "shared:8000@10.0.0.2:8000",
        "shared:8000@10.0.0.3:8000",
    ]
