"""Runs cases/*.yaml: rows per table in, answers of questions out.

A case says why it exists, the rows of its `tables`, and a list of `asks`, each with a question,
its params and the rows expected, in order. Only the columns named are compared, so that a case
shows what it is about. `10:05` is a time on the test day.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit_queries.conftest import Ask, Insert, moment

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, insert: Insert, ask: Ask) -> None:
    case: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(case) == {"why", "tables", "asks"}
    for table, rows in case["tables"].items():
        insert(table, rows)
    for asked in case["asks"]:
        answer = ask(asked["question"], **asked.get("params", {}))
        shown = [
            {name: row[name] for name in expected}
            for row, expected in zip(answer, asked["expect"], strict=False)
        ]
        expected = [{k: moment(v) for k, v in row.items()} for row in asked["expect"]]
        assert len(answer) == len(expected), (asked, answer)
        assert shown == [_approximately(row) for row in expected], asked


def _approximately(row: dict[str, object]) -> dict[str, object]:
    return {
        name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        for name, value in row.items()
    }
