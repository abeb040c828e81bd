"""Rows of every format and the exact request each must become, in `cases/*.yaml` beside this.

Each file is loaded once with `--format auto`; a case is found again by its request id, a
reject by its line number. The examples that come with the description of the formats are read
where they are at hand.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.store.store import Store
from tests.log_path import SHARED, Answer, load, requests, utc

CASES = sorted(Path(__file__).parent.joinpath("cases").glob("*.yaml"))
EXAMPLES = SHARED / "format-examples" / "examples.jsonl"
READ_SO_FAR = ("openai_chat", "openai_responses", "anthropic", "openrouter",
               "vllm_openai", "vllm_anthropic")  # fmt: skip
# The description writes seconds short.
OURS = {"ttft_s": "ttft_seconds", "queue_s": "queue_seconds", "prefill_s": "prefill_seconds"}


def _id(row: dict[str, Any]) -> str | None:
    for holder in (row, row.get("message"), row.get("response")):
        if isinstance(holder, dict):
            for name in ("request_id", "id"):
                if name in holder:
                    return str(holder[name])
    return None


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_rows_become_exactly_these_requests(store: Store, file: Path) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    summary = load(store, [entry["row"] for entry in case["rows"]], format="auto")
    assert summary.format == case["format"]
    stored = {row["request_id"]: row for row in requests(store)}
    refused = dict(store.cursor().execute("SELECT line_number, reason FROM rejects").fetchall())
    wrong = {}
    for number, entry in enumerate(case["rows"], start=1):
        if "reason" in entry:
            got: Answer = {"reason": refused.pop(number, None)}
            expected: Answer = {"reason": entry["reason"]}
        else:
            row = stored.pop(_id(entry["row"]))
            expected = {**entry["expect"], "flags": entry.get("flags")}
            if "ts" in expected:
                expected["ts"] = utc(expected["ts"])
            got = {name: row[name] for name in expected}
        if got != expected:
            wrong[entry["what"]] = {n: (got[n], expected[n]) for n in got if got[n] != expected[n]}
    assert wrong == {}
    assert stored == {}
    assert refused == {}


def test_a_name_without_end_is_cut(store: Store) -> None:
    load(store, [{"request_id": "long", "prompt_tokens": 1, "ts": 1772452800, "tenant": "é" * 999}])
    (row,) = requests(store)
    assert row["tenant"] == "é" * 256


@pytest.mark.skipif(not EXAMPLES.is_file(), reason="the formats' examples are not at hand")
@pytest.mark.parametrize("name", READ_SO_FAR)
def test_described_examples_become_the_described_record(shared_store: Store, name: str) -> None:
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()
    examples = {entry["format"]: entry for entry in map(json.loads, lines)}
    example = examples[f"usage.{name}"]
    load(shared_store, [example["record"]], name, format="auto")
    (row,) = requests(shared_store, name)
    got = {field: row[OURS.get(field, field)] for field in example["expect"]}
    assert got == pytest.approx(example["expect"])
    assert row["request_id"] == example["record"]["id"]
    assert row["model"] == example["record"]["model"]
