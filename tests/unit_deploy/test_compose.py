"""docker-compose.yml without an engine: every file, port, variable, flag and service in it exists.

What a schema says of it is `check-jsonschema --builtin-schema vendor.compose-spec FILE`, which runs
here where that program is installed.
"""

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

FILE = ROOT / "docker-compose.yml"
TEXT = FILE.read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OURS, MONITORING = {"exporter", "dashboard"}, {"prometheus", "alertmanager", "grafana"}
# What each listens on: by its command or variables, else as it does without any.
PORTS = {"exporter": 9465, "dashboard": 8501, "prometheus": 9090, "alertmanager": 9093,
         "grafana": 3000}  # fmt: skip
CHECKER = shutil.which("check-jsonschema")


def mounts(service: str) -> list[tuple[str, str]]:
    """(source, target) of every volume of a service."""
    found = []
    for mount in SERVICES[service].get("volumes", []):
        source, target, *mode = mount.split(":")
        assert mode in ([], ["ro"])
        found.append((source, target))
    return found


def on_disk(service: str, path: str) -> Path:
    """The file of the repository that is mounted at a path of a container."""
    for source, target in mounts(service):
        if path == target or path.startswith(f"{target}/"):
            return ROOT / source / path[len(target) :].lstrip("/")
    pytest.fail(f"nothing of ours is at {path} of {service}")


def variables(text: str) -> set[str]:
    """Names of what is interpolated."""
    return set(re.findall(r"\$\{([A-Z_]+)", text))


@pytest.mark.skipif(CHECKER is None, reason="pip install check-jsonschema: there is none here")
def test_the_schema_is_content() -> None:
    command = [str(CHECKER), "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_default_is_exporter_and_dashboard() -> None:
    always = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert always == OURS
    assert set(SERVICES) - always == MONITORING
    assert all(SERVICES[name]["profiles"] == ["monitoring"] for name in MONITORING)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_checked_and_shut_in(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"prefixscope:dev|[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"])
    # Ours have their user, the exporter its check from the Dockerfile.
    assert service["image"] == "prefixscope:dev" or not service["user"].startswith("0")
    assert name == "exporter" or service["healthcheck"]["test"][0] == "CMD"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "network_mode", "pid", "cap_add", "env_file"}


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_and_listened_on(name: str) -> None:
    port = PORTS[name]
    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
    check = " ".join(SERVICES[name].get("healthcheck", {}).get("test", []))
    assert f"127.0.0.1:{port}/" in check or name == "exporter"


def test_the_ports_of_ours_are_told_to_them() -> None:
    listen = SERVICES["exporter"]["environment"]["PREFIXSCOPE_SERVER__LISTEN"]
    assert listen == f"0.0.0.0:{PORTS['exporter']}"
    assert f"--server.port={PORTS['dashboard']}" in SERVICES["dashboard"]["command"]
    assert SERVICES["dashboard"]["environment"]["PREFIXSCOPE_URL"] == "http://exporter:9465"


@pytest.mark.parametrize("name", SERVICES)
def test_mounts_exist(name: str) -> None:
    volumes = yaml.safe_load(TEXT)["volumes"]
    for source, _ in mounts(name):
        assert (ROOT / source).exists() if source.startswith("./") else source in volumes


def test_no_volume_secret_or_variable_is_left_over() -> None:
    whole = yaml.safe_load(TEXT)
    named = {source for name in SERVICES for source, _ in mounts(name)}
    assert {source for source in named if not source.startswith("./")} == set(whole["volumes"])
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
    assert used == set(whole["secrets"])
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    offered = set(re.findall(r"^(?:# )?([A-Z_]+)=", example, re.MULTILINE))
    assert offered == variables(TEXT) | {"COMPOSE_PROFILES"}


def test_secrets_are_files_that_are_mounted_and_that_git_ignores() -> None:
    """What comes from a variable would be copied into a root that is read-only."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    for secret in yaml.safe_load(TEXT)["secrets"].values():
        assert set(secret) == {"file"}
        folder, _ = secret["file"].removeprefix("./").split("/")
        assert f"/{folder}/" in ignored


def test_the_commands_shown_put_the_token_where_it_is_read(tmp_path: Path) -> None:
    shown = re.findall(r"^#   ((?:mkdir|sed|chmod) .*)$", TEXT, re.MULTILINE)
    page = (ROOT / "docs" / "docker.md").read_text(encoding="utf-8").splitlines()
    assert shown == [line for line in page if line.startswith(("mkdir ", "sed ", "chmod "))]
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    given = example.replace("PREFIXSCOPE_TOKEN=\n", "PREFIXSCOPE_TOKEN=0123abcd\n")
    (tmp_path / ".env").write_text(given, encoding="utf-8")
    subprocess.run(["sh", "-ec", "\n".join(shown)], cwd=tmp_path, check=True, timeout=60)
    file = tmp_path / yaml.safe_load(TEXT)["secrets"]["prefixscope_token"]["file"]
    assert file.read_text(encoding="utf-8").strip() == "0123abcd"
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o644)


def test_the_token_has_no_default_and_is_one() -> None:
    given = re.findall(r"\$\{PREFIXSCOPE_TOKEN[^}]*\}", TEXT)
    assert len(given) == 2
    assert all(one.startswith("${PREFIXSCOPE_TOKEN:?") for one in given)
    assert re.search(r"^PREFIXSCOPE_TOKEN=$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert "/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_exporter_accepts_its_variables() -> None:
    given = {
        name: re.sub(r"\$\{\w+:[?-]([^}]*)\}", r"\1", text)
        for name, text in SERVICES["exporter"]["environment"].items()
    }
    settings = load_settings(on_disk("exporter", "/etc/prefixscope/prefixscope.yml"), given)
    assert settings.server.token is not None


def test_the_dashboard_is_started_by_what_it_knows() -> None:
    run, command, file, *options = SERVICES["dashboard"]["command"]
    assert (run, command) == ("streamlit", "run")
    assert (ROOT / Path(file).relative_to("/app")).exists()
    for option in options:
        streamlit.config.get_option(option.removeprefix("--").partition("=")[0])


@pytest.mark.parametrize(
    ("name", "programs"),
    [("prometheus", ["prometheus"]), ("alertmanager", ["prometheus-alertmanager", "alertmanager"])],
)
def test_flags_are_flags_and_files_are_mounted(name: str, programs: list[str]) -> None:
    command = SERVICES[name]["command"]
    [config] = [flag for flag in command if flag.startswith("--config.file=")]
    assert on_disk(name, config.partition("=")[2]).is_file()
    [data] = [flag for flag in command if re.match(r"--storage\.(tsdb\.)?path=", flag)]
    assert data.partition("=")[2] in {target for _, target in mounts(name)}
    program = next(filter(None, map(shutil.which, programs)), None)
    if program is None:
        pytest.skip(f"apt install {programs[0]}: there is none here")
    told = subprocess.run(
        [program, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    known = told.stdout + told.stderr
    assert all(flag.partition("=")[0] in known for flag in command)


def test_prometheus_names_services_files_and_secrets_that_exist() -> None:
    file = on_disk("prometheus", "/etc/prometheus/prometheus.yml")
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    for path in config["rule_files"]:
        assert list(on_disk("prometheus", path).parent.glob(Path(path).name))
    told = [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
    for entry in told:
        for host in (host for one in entry.get("static_configs", []) for host in one["targets"]):
            service, port = host.replace("localhost", "prometheus").split(":")
            assert PORTS[service] == int(port)
        for listed in (one["files"] for one in entry.get("file_sd_configs", [])):
            assert all(list(on_disk("prometheus", p).parent.glob(Path(p).name)) for p in listed)
    secret = config["scrape_configs"][0]["authorization"]["credentials_file"]
    assert Path(secret).name in SERVICES["prometheus"]["secrets"]


def test_grafana_lets_nobody_in_who_may_change_anything() -> None:
    """No account is made, so that there is no default password; who looks needs none."""
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert not [name for name in environment if "PASSWORD" in name]
