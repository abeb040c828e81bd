"""The pages about deployment: links lead somewhere; files, addresses and settings are there."""

import re
from pathlib import Path

import pytest
import yaml

from prefixscope.settings import load_settings
from tests.running import ROOT

NAMES = ("docker", "grafana", "kubernetes", "reverse-proxy")
PAGES = [ROOT / "docs" / f"{name}.md" for name in NAMES]
ADDRESS = re.compile(r"^\| (\w+) \| <http://(127\.0\.0\.1:\d+)>", re.MULTILINE)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@each_page
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert "://" in link or (page.parent / link).exists(), link
    for path in re.findall(r"\b(?:deploy|tests|docs|bench)/[\w./-]*\w", text):
        assert (ROOT / path).exists(), path


def test_addresses_are_those_of_the_compose_file() -> None:
    told = ADDRESS.findall(PAGES[0].read_text(encoding="utf-8"))
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    published = {(name, service["ports"][0].rpartition(":")[0])
                 for name, service in services.items()}  # fmt: skip
    assert {(name.lower(), address) for name, address in told} == published


def test_settings_behind_a_proxy_are_settings(tmp_path: Path) -> None:
    [text] = re.findall(r"^```yaml\n(.*?)^```", PAGES[3].read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "prefixscope.yml"
    file.write_text(text, encoding="utf-8")
    settings = load_settings(file, {})
    conf = (ROOT / "deploy" / "nginx" / "prefixscope.conf").read_text(encoding="utf-8")
    assert f"location /{settings.dashboard.base_path}/ {{" in conf
    assert f"proxy_pass         http://{settings.dashboard.listen};" in conf
    assert f"http://{settings.server.listen}/now" in conf
    host = re.search(r"server_name (\S+);", conf)
    assert host
    assert f"https://{host[1]}/prefixscope/exporter" in text
