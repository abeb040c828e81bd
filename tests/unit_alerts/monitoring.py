"""A real Prometheus and a real Alertmanager on loopback, with the configuration that is shipped.

Replaced are addresses, paths and receivers, which are a site's own, and the clock: a minute of a
rule (`for`, ranges) or of Alertmanager's grouping is a second here, and what is shorter a tenth of
that. So an alert takes seconds, by the same rules in the same proportions.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.running import ROOT, free_port, get, running, wait_for

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
# Debian's name, and everybody else's.
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
AMTOOL = shutil.which("amtool")
MISSING = "apt install prometheus prometheus-alertmanager: one of them is not on this machine"

SHIPPED = ROOT / "deploy"
START_SECONDS = 180


def quick(text: str) -> str:
    """Minutes become seconds, seconds tenths of one; hours and days, which are history, stay."""
    in_milliseconds = re.sub(r"\b(\d+)s\b", lambda found: f"{int(found[1]) * 100}ms", text)
    return re.sub(r"\b(\d+)m\b", r"\1s", in_milliseconds)


def quick_rules(rules: dict[str, Any]) -> dict[str, Any]:
    """The same rules on the quick clock; words and names stay."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[[^\]]*\]", lambda found: quick(found[0]), rule["expr"])
            for name in ("for", "keep_firing_for"):
                if name in rule:
                    rule[name] = quick(rule[name])
    return rules


def write_prometheus(
    folder: Path, addresses: Mapping[str, str], secrets: Mapping[str, str]
) -> Path:
    """The shipped configuration and rules in `folder`, with this run's addresses and secrets."""
    shipped = SHIPPED / "prometheus"
    for file in shipped.glob("*.rules.yml"):
        rules = quick_rules(yaml.safe_load(file.read_text(encoding="utf-8")))
        (folder / file.name).write_text(yaml.safe_dump(rules), encoding="utf-8")
    text = (shipped / "prometheus.yml").read_text(encoding="utf-8")
    for name, address in addresses.items():
        text = text.replace(name, address)
    for path, secret in secrets.items():
        file = folder / Path(path).name
        file.write_text(secret, encoding="utf-8")
        text = text.replace(path, str(file))
    config = yaml.safe_load(text.replace("/etc/prometheus", str(folder)))
    config["global"] = dict.fromkeys(config["global"], "1s")
    written = folder / "prometheus.yml"
    written.write_text(yaml.safe_dump(config), encoding="utf-8")
    return written


def write_alertmanager(folder: Path, receivers: Mapping[str, str]) -> Path:
    """The shipped configuration on the quick clock, its receivers at these addresses."""
    text = (SHIPPED / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    for route in (config["route"], *config["route"]["routes"]):
        for name in route.keys() & {"group_wait", "group_interval"}:
            route[name] = quick(route[name])
    for receiver in config["receivers"]:
        [webhook] = receiver["webhook_configs"]
        webhook["url"] = receivers[receiver["name"]]
    written = folder / "alertmanager.yml"
    written.write_text(yaml.safe_dump(config), encoding="utf-8")
    return written


@contextmanager
def prometheus(folder: Path, config: Path, address: str) -> Iterator[str]:
    """Runs at `address`; gives its URL."""
    command = [
        str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--log.level=warn",
    ]  # fmt: skip
    with _serving(command, folder, f"http://{address}", "Prometheus") as url:
        yield url


@contextmanager
def alertmanager(folder: Path, config: Path, address: str) -> Iterator[str]:
    """Runs at `address`, alone; gives its URL."""
    command = [
        str(ALERTMANAGER), f"--config.file={config}", f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}", "--cluster.listen-address=",
    ]  # fmt: skip
    with _serving(command, folder, f"http://{address}", "Alertmanager") as url:
        yield url


@contextmanager
def _serving(command: list[str], folder: Path, url: str, what: str) -> Iterator[str]:
    log = folder / "log"
    with running(command, log) as process:
        wait_for(what, lambda: get(f"{url}/-/ready") != b"", START_SECONDS, process, log)
        yield url


def loopback() -> str:
    """A free address."""
    return f"127.0.0.1:{free_port()}"
