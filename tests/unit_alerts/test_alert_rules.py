"""The alert rules: valid, tested case by case, explained by a runbook, and without dead names."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.metrics import DEFINITIONS
from tests.running import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "prefixscope.rules.yml"
CASES = FOLDER / "prefixscope.tests.yml"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
PROMTOOL = shutil.which("promtool")


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in alerts()}


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: apt-get install prometheus")
@pytest.mark.parametrize("arguments", [("check", RULES), ("test", CASES)], ids=["check", "test"])
def test_promtool_is_content(arguments: tuple[str, Path]) -> None:
    command = [str(PROMTOOL), arguments[0], "rules", str(arguments[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_names_are_one_family_and_no_name_is_taken_twice() -> None:
    assert len(ALERTS) == len(alerts())
    assert all(re.fullmatch(r"Prefix(cache|scope)[A-Z][A-Za-z]+", name) for name in ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/runbooks/{name}.md"
    page = (ROOT / rule["annotations"]["runbook"]).read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("name", ALERTS)
def test_every_metric_asked_for_is_served(name: str) -> None:
    served = {definition.name for definition in DEFINITIONS}
    served |= {f"{d.name}_count" for d in DEFINITIONS if d.type == "histogram"}
    text = ALERTS[name]["expr"] + ALERTS[name]["annotations"]["description"]
    asked = set(re.findall(r"\bprefix(?:cache|scope)_\w+", text))
    assert asked
    assert asked <= served


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_cases_silent_before_firing_and_over(name: str) -> None:
    cases = [
        case
        for test in yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == name
    ]
    fires = [bool(case["exp_alerts"]) for case in cases]
    assert True in fires
    assert fires[0] is False
    # A process that is gone comes back as another one: there is no "over" in the same series.
    assert fires[-1] is False or name == "PrefixscopeExporterDown"


def test_every_runbook_is_of_an_alert() -> None:
    assert {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")} == set(ALERTS)
