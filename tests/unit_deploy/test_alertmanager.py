"""The shipped Prometheus and Alertmanager configuration: valid, routed, and silent where it should.

Inhibition is asked of a real Alertmanager, which is told alerts as a Prometheus would tell them.
"""

import re
import subprocess
import time
from collections.abc import Iterator

import pytest
import requests
import yaml

from tests.running import eventually
from tests.unit_alerts import monitoring

CONFIG = monitoring.SHIPPED / "alertmanager" / "alertmanager.yml"
RULES = (monitoring.SHIPPED / "prometheus").glob("*.rules.yml")
ALERTS = {
    rule["alert"]
    for file in RULES
    for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
}

Labels = dict[str, str]


def told(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(monitoring.PROMTOOL is None, reason=monitoring.MISSING)
def test_promtool_is_content_with_the_prometheus_file() -> None:
    file = monitoring.SHIPPED / "prometheus" / "prometheus.yml"
    told([str(monitoring.PROMTOOL), "check", "config", "--syntax-only", str(file)])


@pytest.mark.skipif(monitoring.AMTOOL is None, reason=monitoring.MISSING)
def test_amtool_is_content() -> None:
    assert "2 receivers" in told([str(monitoring.AMTOOL), "check-config", str(CONFIG)])


@pytest.mark.skipif(monitoring.AMTOOL is None, reason=monitoring.MISSING)
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [(["severity=page"], "page"), (["severity=ticket"], "ticket"), (["alertname=Other"], "ticket")],
)
def test_pages_and_tickets_go_their_own_ways(labels: list[str], receiver: str) -> None:
    command = [str(monitoring.AMTOOL), "config", "routes", "test", f"--config.file={CONFIG}"]
    assert told([*command, *labels]).strip() == receiver


def test_receivers_are_placeholders_that_never_resolve() -> None:
    for receiver in yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["receivers"]:
        [webhook] = receiver["webhook_configs"]
        assert re.match(r"http://\w+\.invalid/", webhook["url"])


def test_every_alert_inhibited_or_inhibiting_exists() -> None:
    for rule in yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            found = re.fullmatch(r'alertname=~?"(.+)"', matcher)
            assert found is None or any(re.fullmatch(found[1], name) for name in ALERTS), matcher


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if monitoring.ALERTMANAGER is None:
        pytest.skip(monitoring.MISSING)
    folder = tmp_path_factory.mktemp("alertmanager")
    with monitoring.alertmanager(folder, CONFIG, monitoring.loopback()) as url:
        yield url


def post(alertmanager: str, labels: Labels) -> None:
    reply = requests.post(f"{alertmanager}/api/v2/alerts", json=[{"labels": labels}], timeout=30)
    assert reply.ok, reply.text


def is_held_back(alertmanager: str, run: str) -> bool:
    [alert] = requests.get(
        f"{alertmanager}/api/v2/alerts", params={"filter": f'run="{run}"'}, timeout=30
    ).json()
    return bool(alert["status"]["inhibitedBy"])


DROP, TICKET = "PrefixcachePeakHitDrop", "PrefixcacheHitDrop"
DOWN, FULL = "PrefixscopeTargetDown", "PrefixcacheKvSaturated"
ENGINE, EXPORTER = "PrefixcacheEngine", "PrefixscopeExporterDown"
CASES: list[tuple[Labels, Labels, bool]] = [
    # source, target, held back
    ({"alertname": DROP, "model": "a"}, {"alertname": TICKET, "model": "a"}, True),
    ({"alertname": DROP, "model": "a"},
     {"alertname": TICKET, "model": "a", "template": "t"}, True),
    ({"alertname": DROP, "model": "a"}, {"alertname": TICKET, "model": "b"}, False),
    ({"alertname": DOWN, "replica": "r"}, {"alertname": FULL, "replica": "r"}, True),
    ({"alertname": DOWN, "replica": "r"}, {"alertname": FULL, "replica": "s"}, False),
    # An alert without a replica is no alert of every replica.
    ({"alertname": DOWN, "target": "x"}, {"alertname": TICKET, "model": "c"}, False),
    ({"alertname": f"{ENGINE}TargetDown", "job": "j", "instance": "i"},
     {"alertname": f"{ENGINE}KvSaturated", "job": "j", "instance": "i"}, True),
    ({"alertname": f"{ENGINE}TargetDown", "job": "j", "instance": "i"},
     {"alertname": f"{ENGINE}PeakHitDrop", "job": "j", "model_name": "m"}, False),
    ({"alertname": f"{ENGINE}PeakHitDrop", "job": "j", "model_name": "m"},
     {"alertname": f"{ENGINE}HitDrop", "job": "j", "model_name": "m"}, True),
    ({"alertname": EXPORTER, "job": "j", "instance": "i"},
     {"alertname": "PrefixscopeLagging", "job": "j", "instance": "i"}, True),
    ({"alertname": EXPORTER, "job": "j", "instance": "i"},
     {"alertname": "PrefixscopeLagging", "job": "j", "instance": "k"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "held"), CASES)
def test_who_holds_back_whom(alertmanager: str, source: Labels, target: Labels, held: bool) -> None:
    run = f"{time.monotonic_ns()}"
    post(alertmanager, source)
    post(alertmanager, target | {"run": run})
    # It takes in what may hold others back in the background.
    if held:
        eventually("inhibition", lambda: is_held_back(alertmanager, run))
    assert is_held_back(alertmanager, run) is held
