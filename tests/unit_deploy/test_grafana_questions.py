"""What docs/grafana.md tells to ask is a question, with parameters and columns that exist."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import yaml

from queries import registry
from queries.times import parse_time
from tests.running import ROOT

PAGE = (ROOT / "docs" / "grafana.md").read_text(encoding="utf-8")
# Infinity's names for types of ours.
TYPES = {"TIMESTAMP": "timestamp", "VARCHAR": "string", "DOUBLE": "number", "BIGINT": "number"}


def block(language: str) -> str:
    """The one block of code in that language."""
    [text] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_query_is_a_question_with_columns_of_these_types() -> None:
    query: dict[str, Any] = json.loads(block("json"))
    address, _, name = query["url"].rpartition("/api/v1/query/")
    question = registry.questions()[name]
    assert {one["key"] for one in query["url_options"]["params"]} <= set(question.params)
    for column in query["columns"]:
        assert TYPES[question.columns[column["selector"]].type] == column["type"]
    [source] = yaml.safe_load(block("yaml"))["datasources"]
    assert source["jsonData"]["allowedHosts"] == [address]


def test_grafana_s_times_are_times() -> None:
    """`${__from:date:iso}` is written by toISOString: milliseconds, and Z."""
    moment = datetime(2026, 11, 30, 9, 15, 0, 250_000, UTC)
    assert parse_time("2026-11-30T09:15:00.250Z") == moment


def test_questions_named_in_words_exist() -> None:
    [line] = re.findall(r"leave the first column out: (.*?)\.", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", line)) <= set(registry.questions())
