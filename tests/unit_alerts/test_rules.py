"""The alert rules: valid, tested in every kind of case, and explained by a runbook."""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from exporter.metrics import DEFINITIONS
from queries import registry
from tests.running import ROOT
from tests.unit_alerts.rule_files import CASES, FOLDER, RULES, RUNBOOKS, alerts, cases, rules

PROMTOOL = shutil.which("promtool")
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
QUIET = ("no traffic", "counter reset", "evening peak")
ALERTS = alerts()
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool here: apt-get install prometheus"
)


def promtool(kind: str, file: Path) -> str:
    """What promtool complains of, '' where it is content."""
    command = [str(PROMTOOL), kind, "rules", str(file)]
    # A quarter of its work is collecting garbage, with little of it.
    environment = {**os.environ, "GOGC": "400"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@needs_promtool
def test_promtool_is_content() -> None:
    work = [("check", file) for file in RULES] + [("test", file) for file in CASES]
    with ThreadPoolExecutor(2) as pool:
        complaints = list(pool.map(lambda each: promtool(*each), work))
    assert complaints == [""] * len(work), "\n".join(complaints)


@needs_promtool
@pytest.mark.parametrize(
    ("cases_file", "guards"),
    [
        ("prefixscope.silence", ("offset 23h)) > 0.9", "offset 23h)) > 0.25")),
        ("engines.silence", ("offset 23h)) > 0.9",)),
    ],
)
def test_the_evening_peak_is_silent_because_it_was_so_yesterday(
    tmp_path: Path, cases_file: str, guards: tuple[str, ...]
) -> None:
    """Without a look at the day before these alerts fire in it."""
    name = f"{cases_file.partition('.')[0]}.rules.yml"
    text = (FOLDER / name).read_text(encoding="utf-8")
    for guard in guards:
        assert guard in text
        text = text.replace(guard, "offset 23h)) > 9")
    (tmp_path / name).write_text(text, encoding="utf-8")
    quiet = (FOLDER / f"{cases_file}.tests.yml").read_text(encoding="utf-8")
    (tmp_path / "cases.yml").write_text(quiet, encoding="utf-8")
    complaint = promtool("test", tmp_path / "cases.yml")
    assert set(re.findall(r"^\s*name: (.*),$", complaint, re.MULTILINE)) == {"evening peak"}
    assert len(set(re.findall(r"alertname: (\w+)", complaint))) == len(guards)


def test_no_name_is_taken_twice() -> None:
    names = [rule["alert"] for file in RULES for rule in rules(file) if "alert" in rule]
    assert len(names) == len(ALERTS)
    assert all(re.fullmatch(r"Prefix(cache|scope)[A-Z][A-Za-z]+", name) for name in names)
    records = [rule["record"] for file in RULES for rule in rules(file) if "record" in rule]
    assert len(records) == len(set(records))


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert set(rule["labels"]) == {"severity"}
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert "for" in rule
    words = rule["annotations"]
    missing = {"summary", "description", "runbook_url"} - set(words)
    assert not missing, f"{name}: annotations without {missing}; copy those of a neighbour"
    assert words["summary"][0].isupper()
    assert "{{" not in words["summary"]
    assert words["runbook_url"].endswith(f"docs/runbooks/{name}.md")
    # A link to an exporter that does not answer would lead nowhere.
    assert ("dashboard_url" in words) == (name != "PrefixscopeExporterDown")
    listed = (ROOT / "docs" / "alert-rules.md").read_text(encoding="utf-8")
    assert f"| [{name}](runbooks/{name}.md) |" in listed, "it needs a row in docs/alert-rules.md"
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("name", ALERTS)
def test_the_class_is_no_label_and_a_link_names_labels_that_are_there(name: str) -> None:
    """Another class must neither resolve an alert nor raise a second one."""
    rule = ALERTS[name]
    assert "prefixcache_peak_hit_drop_info" not in rule["expr"]
    assert not re.search(r"\bclass\b", rule["expr"])
    linked = re.findall(
        r"\$labels\.(\w+) \| urlquery", rule["annotations"].get("dashboard_url", "")
    )
    for label in linked:
        assert label in rule["expr"] or "peak_hit_drop" in rule["expr"] or label == "model_name"


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_comes_when_it_is_due_and_goes(name: str) -> None:
    """Silent a minute before it fires, and silent again later on."""
    courses: dict[str, dict[int, bool]] = {}
    for case in cases():
        if case.alert == name and case.group.startswith("courses: "):
            courses.setdefault(case.group, {})[case.minutes] = case.fires
    due = [
        (course, after)
        for course in courses.values()
        for before, after in pairwise(sorted(course))
        if after == before + 1 and (course[before], course[after]) == (False, True)
    ]
    assert due, f"{name}: no case is silent at N - 1 and fires at N"
    assert any(not fires for course, n in due for minutes, fires in course.items() if minutes > n)


@pytest.mark.parametrize("name", ALERTS)
@pytest.mark.parametrize("kind", QUIET)
def test_every_alert_is_silent_without_traffic_at_restarts_and_at_the_evening_peak(
    name: str, kind: str
) -> None:
    quiet = [case.fires for case in cases() if case.alert == name and case.group == kind]
    assert quiet, f"{name}: no case in the group `{kind}` of a .tests.yml; add one that is silent"
    assert not any(quiet)


def test_every_runbook_is_of_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} == set(ALERTS)


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_runbooks_name_questions_records_and_alerts_that_exist(page: Path) -> None:
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert set(re.findall(r"prefixscope query (\w+)", text)) <= set(registry.questions())
    assert set(re.findall(r"\bPrefix(?:cache|scope)[A-Z]\w+", text)) <= set(ALERTS)
    records = {rule["record"] for file in RULES for rule in rules(file) if "record" in rule}
    assert set(re.findall(r"`(\w+:\w+:\w+)`", text)) <= records
    shown = yaml.safe_load((ROOT / "deploy" / "prefixscope.yml").read_text(encoding="utf-8"))
    assert set(re.findall(r"`(server|store|scrape|drops)\.\w+`", text)) <= set(shown)


@pytest.mark.parametrize("name", [n for n in ALERTS if "Engine" not in n])
def test_every_metric_asked_for_is_declared(name: str) -> None:
    """Cheap twin of test_no_dead_names, which asks a real Prometheus."""
    served = {definition.name for definition in DEFINITIONS}
    served |= {f"{d.name}_count" for d in DEFINITIONS if d.type == "histogram"}
    rule = ALERTS[name]
    text = rule["expr"] + rule["annotations"]["description"]
    asked = set(re.findall(r"(?<![:\w])prefix(?:cache|scope)_\w+(?![:\w(])", text))
    assert asked <= served
