"""The manifests without a cluster: names agree, files and settings exist, rules are the same rules.

What the API's schema says of them is `kubernetes-validate --strict FILE`, which runs here where
that program is installed.
"""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import streamlit.config
import yaml

from prefixscope.settings import load_settings
from tests.running import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
DOCUMENTS: list[dict[str, Any]] = [
    document
    for file in ("prefixscope.yaml", "servicemonitor.yaml")
    for document in yaml.safe_load_all((FOLDER / file).read_text(encoding="utf-8"))
]
DEPLOYMENTS = {d["metadata"]["name"]: d["spec"] for d in DOCUMENTS if d["kind"] == "Deployment"}
SERVICES = {d["metadata"]["name"]: d["spec"] for d in DOCUMENTS if d["kind"] == "Service"}
VALIDATOR = shutil.which("kubernetes-validate")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
# Both parts run the same in both places: this is what the compose file calls them.
PARTS = {"prefixscope-exporter": "exporter", "prefixscope-dashboard": "dashboard"}
each_deployment = pytest.mark.parametrize("name", DEPLOYMENTS)


def container(name: str) -> dict[str, Any]:
    """The one container of a deployment."""
    [only] = DEPLOYMENTS[name]["template"]["spec"]["containers"]
    found: dict[str, Any] = only
    return found


def the(kind: str) -> dict[str, Any]:
    """The one document of its kind."""
    [document] = [document for document in DOCUMENTS if document["kind"] == kind]
    return document


@pytest.mark.skipif(VALIDATOR is None, reason="pip install kubernetes-validate: not installed here")
def test_the_schema_of_the_api_is_content() -> None:
    command = [str(VALIDATOR), "--strict", str(FOLDER / "prefixscope.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_rendered_from_the_rule_files() -> None:
    spec = importlib.util.spec_from_file_location("render_rules", FOLDER / "render_rules.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    shipped = (FOLDER / "prometheusrules.yaml").read_text(encoding="utf-8")
    assert script.rendered() == shipped, (
        "run: python deploy/kubernetes/render_rules.py > deploy/kubernetes/prometheusrules.yaml"
    )
    files = sorted((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
    for document, file in zip(yaml.safe_load_all(shipped), files, strict=True):
        assert document["kind"] == "PrometheusRule"
        assert document["spec"] == yaml.safe_load(file.read_text(encoding="utf-8"))


@each_deployment
def test_pods_are_shut_in(name: str) -> None:
    pod = DEPLOYMENTS[name]["template"]["spec"]
    user = re.search(r"useradd .*--uid (\d+)", (ROOT / "deploy" / "Dockerfile").read_text())
    assert user
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["automountServiceAccountToken"] is False
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


@each_deployment
def test_what_is_mounted_is_declared(name: str) -> None:
    volumes = {volume["name"] for volume in DEPLOYMENTS[name]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container(name)["volumeMounts"]} == volumes


@each_deployment
def test_image_command_and_ports_are_those_of_the_compose_file(name: str) -> None:
    part, made = COMPOSE[PARTS[name]], container(name)
    assert made["image"] == part["image"]
    [port] = made["ports"]
    assert part["ports"] == [f"127.0.0.1:{port['containerPort']}:{port['containerPort']}"]
    probes = {made[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")}
    assert probes == {port["name"]}
    if "command" in part:
        assert made["args"] == part["command"]
        for option in made["args"][3:]:
            streamlit.config.get_option(option.removeprefix("--").partition("=")[0])
    else:
        words = re.search(r"^CMD (.*)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
        assert words
        assert made["args"] == yaml.safe_load(words[1])


@each_deployment
def test_services_reach_the_pods(name: str) -> None:
    service = SERVICES[name]
    labels = DEPLOYMENTS[name]["template"]["metadata"]["labels"]
    assert service["selector"] == DEPLOYMENTS[name]["selector"]["matchLabels"] == labels
    [port], [listening] = service["ports"], container(name)["ports"]
    assert (port["targetPort"], port["port"]) == (listening["name"], listening["containerPort"])


def test_there_is_one_exporter_at_a_time() -> None:
    exporter = DEPLOYMENTS["prefixscope-exporter"]
    assert (exporter["replicas"], exporter["strategy"]["type"]) == (1, "Recreate")


def test_settings_are_accepted_and_name_what_is_mounted(tmp_path: Path) -> None:
    [(name, text)] = the("ConfigMap")["data"].items()
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    settings = load_settings(file, {})
    mounts = {mount["name"]: mount["mountPath"]
              for mount in container("prefixscope-exporter")["volumeMounts"]}  # fmt: skip
    assert f"{mounts['settings']}/{name}" == container("prefixscope-exporter")["args"][-1]
    assert str(settings.server.token_file) == f"{mounts['token']}/token"
    assert str(settings.store.directory) == mounts["store"]
    [port] = container("prefixscope-exporter")["ports"]
    assert settings.server.listen == f"0.0.0.0:{port['containerPort']}"


def test_claims_maps_and_secrets_are_those_declared() -> None:
    volumes = {volume["name"]: volume for volume in
               DEPLOYMENTS["prefixscope-exporter"]["template"]["spec"]["volumes"]}  # fmt: skip
    claim = volumes["store"]["persistentVolumeClaim"]["claimName"]
    assert claim == the("PersistentVolumeClaim")["metadata"]["name"]
    assert volumes["settings"]["configMap"]["name"] == the("ConfigMap")["metadata"]["name"]
    address, token = container("prefixscope-dashboard")["env"]
    assert address["value"] == "http://prefixscope-exporter:9465"
    secret = token["valueFrom"]["secretKeyRef"]
    assert secret["name"] == volumes["token"]["secret"]["secretName"]
    # Made by the command that the file names, and in no file.
    assert "secret generic prefixscope --from-literal=token=" in (
        FOLDER / "prefixscope.yaml"
    ).read_text(encoding="utf-8")
    assert not [document for document in DOCUMENTS if document["kind"] == "Secret"]


def test_the_monitor_finds_the_exporter_and_carries_its_token() -> None:
    monitor = the("ServiceMonitor")["spec"]
    [exporter] = [d for d in DOCUMENTS if d["kind"] == "Service"
                  and d["metadata"]["labels"] == monitor["selector"]["matchLabels"]]  # fmt: skip
    assert exporter["metadata"]["name"] == "prefixscope-exporter"
    [endpoint] = monitor["endpoints"]
    assert endpoint["port"] == exporter["spec"]["ports"][0]["name"]
    assert endpoint["authorization"]["credentials"] == {"name": "prefixscope", "key": "token"}
