"""The rule files and their cases, as tests read them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.running import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES = sorted(FOLDER.glob("*.rules.yml"))
CASES = sorted(FOLDER.glob("*.tests.yml"))
RUNBOOKS = ROOT / "docs" / "runbooks"


def rules(file: Path) -> list[dict[str, Any]]:
    """Every rule of a file, in order."""
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert of both files by name."""
    return {rule["alert"]: rule for file in RULES for rule in rules(file) if "alert" in rule}


@dataclass(frozen=True)
class Case:
    """What one alert should be at one time: `group` is the name of the traffic it is judged on."""

    group: str
    minutes: int
    alert: str
    fires: bool


@cache
def cases() -> tuple[Case, ...]:
    """Every case of every file."""
    return tuple(
        Case(
            group["name"], _minutes(case["eval_time"]), case["alertname"], bool(case["exp_alerts"])
        )
        for file in CASES
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]
        for case in group.get("alert_rule_test", ())
    )


def _minutes(text: str) -> int:
    found = re.fullmatch(r"(\d+)m", text)
    assert found, f"write {text} in minutes"
    return int(found[1])
