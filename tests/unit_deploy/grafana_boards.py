"""The shipped Grafana dashboards as tests read them: panels and what each asks."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.running import ROOT

FOLDER = ROOT / "deploy" / "grafana"
BOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted((FOLDER / "dashboards").glob("*.json"))
}
# Grafana's own variables, and what it puts in their place at a step of 15 s.
BUILT_IN = {"__rate_interval": "1m", "__range": "6h", "__interval": "15s"}
VARIABLE = re.compile(r"\$\{?(\w+)(?:[.:][\w.:]+)?\}?")


@dataclass(frozen=True)
class Panel:
    """One panel that shows figures."""

    board: str
    title: str
    json: dict[str, Any]

    @property
    def expressions(self) -> list[str]:
        """What it asks, with `All` chosen in every variable."""
        return [filled(target["expr"]) for target in self.json["targets"]]


def panels() -> list[Panel]:
    """Every panel of every dashboard but the headings."""
    return [
        Panel(name, panel["title"], panel)
        for name, board in BOARDS.items()
        for panel in board["panels"]
        if panel["type"] != "row"
    ]


def filled(expression: str) -> str:
    """An expression with a value in place of each variable."""
    return VARIABLE.sub(lambda found: BUILT_IN.get(found[1], ".*"), expression)


def strings(value: object) -> Iterator[str]:
    """Every string in a piece of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
