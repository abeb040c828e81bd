"""The Grafana dashboards without a Grafana: described, linked, valid PromQL, nothing left over."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.metrics import DEFINITIONS
from tests.running import ROOT
from tests.unit_deploy.grafana_boards import (
    BOARDS,
    BUILT_IN,
    FOLDER,
    VARIABLE,
    Panel,
    panels,
    strings,
)

PANELS = panels()
PROMTOOL = shutil.which("promtool")
OURS = re.compile(r"\bprefix(?:cache|scope)_\w+")
RECORD = re.compile(r"\b\w+:prefixcache_\w+:\w+")
# What Grafana fills in where a link is followed.
OF_A_LINK = {"__field", "__value", "__data"}
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda p: f"{p.board}: {p.title}")
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))


def test_there_are_two_and_each_is_known_by_its_uid() -> None:
    assert [board["uid"] for board in BOARDS.values()] == ["prefixscope-engines", "prefixscope"]
    assert all(board["description"] and board["tags"] == ["prefixscope"]
               for board in BOARDS.values())  # fmt: skip


@each_board
def test_panels_have_ids_and_places_of_their_own(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


@each_panel
def test_every_panel_says_what_it_shows_and_from_which_metric(panel: Panel) -> None:
    text = panel.json["description"]
    asked = " ".join(panel.expressions)
    names = set(OURS.findall(RECORD.sub("", asked)))
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    missing = {name for name in names | set(RECORD.findall(asked)) if name not in text}
    assert missing == set()
    assert len(text) > 40


@each_panel
def test_a_ratio_is_a_sum_of_rates_by_a_sum_of_rates(panel: Panel) -> None:
    for expression in panel.expressions:
        assert not re.search(r"(rate|increase)\s*\(\s*(sum|avg)", expression)
        for left, right in re.findall(r"(\w+)[^/]*? / (\w+)", expression):
            assert (left, right) == ("sum", "sum")


@each_panel
def test_no_traffic_is_no_number(panel: Panel) -> None:
    shown = panel.json["fieldConfig"]["defaults"]
    assert shown["noValue"]
    if shown["noValue"] == "No traffic":
        [mapping] = shown["mappings"]
        assert mapping["options"]["match"] == "null+nan"
        assert mapping["options"]["result"]["text"] == "No traffic"
    # Of requests 0 / 0 is no traffic; of memory it may be an engine that tells nothing.
    if any("_tokens" in one and " / " in one for one in panel.expressions):
        assert shown["noValue"] == "No traffic"


@each_panel
def test_every_name_is_a_metric_or_a_record(panel: Panel) -> None:
    served = {definition.name for definition in DEFINITIONS}
    for definition in DEFINITIONS:
        if definition.type == "histogram":
            served |= {f"{definition.name}_{part}" for part in ("bucket", "count", "sum")}
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "engines.rules.yml").read_text())
    records = {rule.get("record") for group in rules["groups"] for rule in group["rules"]}
    asked = " ".join(panel.expressions)
    assert set(RECORD.findall(asked)) <= records
    assert set(OURS.findall(RECORD.sub("", asked))) <= served


@pytest.mark.skipif(PROMTOOL is None, reason="apt install prometheus: there is no promtool here")
def test_every_expression_is_promql(tmp_path: Path) -> None:
    expressions = [expression for panel in PANELS for expression in panel.expressions]
    rules = [{"record": f"panel:{n}", "expr": text} for n, text in enumerate(expressions)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(file)],
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@each_board
def test_every_variable_is_declared_and_used(board: dict[str, Any]) -> None:
    declared = {variable["name"] for variable in board["templating"]["list"]}
    asked = [variable.get("query", "") for variable in board["templating"]["list"]]
    used = {name for text in strings([board["panels"], board["links"], asked])
            for name in VARIABLE.findall(text)}  # fmt: skip
    assert used - set(BUILT_IN) - OF_A_LINK - {"__all"} == declared


@each_board
def test_all_also_means_series_without_the_label(board: dict[str, Any]) -> None:
    for variable in board["templating"]["list"]:
        assert not variable.get("includeAll") or variable["allValue"] == ".*"


@each_board
def test_links_lead_to_pages_that_exist(board: dict[str, Any]) -> None:
    pages = re.findall(r'url_path="(\w+)"', (ROOT / "dashboard" / "app.py").read_text())
    links = {text for text in strings(board) if re.match(r"\$\{(exporter|pages)_url\}", text)}
    assert any(link.startswith("${exporter_url}/now") for link in links)
    for link in links:
        address, _, path = link.partition("}")
        page = path.partition("?")[0].removeprefix("/")
        if address == "${pages_url":
            assert page in {"", *pages}, link
        else:
            assert page == "now" or page.startswith("docs/runbooks/"), link


def test_provisioning_is_where_the_compose_file_puts_it() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    mounts = dict(mount.split(":")[:2] for mount in services["grafana"]["volumes"])
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    provisioning = FOLDER / "provisioning"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "prefixscope.yml").read_text())[
        "providers"
    ]
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]
