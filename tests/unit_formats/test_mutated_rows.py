"""Whatever a row holds, reading it ends in a row or a reject with a reason, never in an error.

The rows of the case files are damaged in the ways logs are: values of other types, keys missing
or doubled, lines cut, bytes flipped. `MUTATED_LINES` sets how many lines a format gets.
"""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from exporter.errors import PrefixscopeError
from exporter.sources.formats import format_named
from exporter.store.store import Store
from tests.log_path import ask, load, rejects, requests

CASES = sorted(Path(__file__).parent.joinpath("cases").glob("*.yaml"))
LINES = int(os.environ.get("MUTATED_LINES", "300"))
ODD: list[object] = [
    None, True, False, 0, -1, 1.5, 10**30, 10**400, 1e308, float("nan"), float("inf"), "", " ", "x",
    "7", "-7", "1e999", "9" * 400, "\x00", "\ud800", "é" * 300, "{}", "[1", '{"a":1}', [], [[]],
    [None, 1, "a", {}], {}, {"usage": None}, {"a": {"b": {"c": 1}}}, "2026-03-02T12:00:00Z",
    "2026-03-02", "9999-12-31T23:59:59+14:00", 1772452800, 1772452800000, "None", "true",
    {"left_out": "x", "rows": 3},
]  # fmt: skip


def _damaged(value: object, chance: Random, rate: float) -> object:
    """The value with parts of it replaced, dropped or repeated."""
    if chance.random() < rate:
        return chance.choice(ODD)
    if isinstance(value, dict):
        kept = {k: _damaged(v, chance, rate) for k, v in value.items() if chance.random() >= rate}
        if chance.random() < rate:
            kept[chance.choice(["left_out", "rows", "worked_out", "", "a.b"])] = chance.choice(ODD)
        return kept
    if isinstance(value, list):
        return [_damaged(element, chance, rate) for element in value] * chance.choice([1, 1, 1, 2])
    return value


def _line(row: object, chance: Random) -> bytes:
    if isinstance(row, str):
        data = row.encode()
    else:
        data = json.dumps(_damaged(row, chance, chance.choice([0.0, 0.05, 0.2]))).encode()
    cut = chance.random()
    if cut < 0.05 and data:
        return data[: chance.randrange(len(data))]
    if cut < 0.1 and data:
        at = chance.randrange(len(data))
        return data[:at] + bytes([chance.choice(b'\x00\xff"{}[],:09\\')]) + data[at + 1 :]
    return data


def _rows(case: dict[str, Any]) -> list[object]:
    if "input" in case:
        return [_parsed(line) for line in case["input"].splitlines() if line.strip()]
    return [entry.get("row", entry.get("line")) for entry in case["rows"]]


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_damaged_rows_are_rows_or_rejects(store: Store, file: Path) -> None:
    case = yaml.safe_load(file.read_text(encoding="utf-8"))
    rows, chance = _rows(case), Random(file.stem)
    lines = [_line(chance.choice(rows), chance).replace(b"\n", b" ") for _ in range(LINES)]
    try:
        summary = load(store, lines, format=case["format"])
    except PrefixscopeError:
        assert format_named(case["format"]).documents, "only a whole document may be refused"
        return
    stored = requests(store)
    assert stored or summary.rejected
    for row in stored:
        prompt, cached = row["prompt_tokens"], row["cached_tokens"]
        assert prompt is None or prompt > 0
        assert cached is None or cached >= 0
        assert prompt is None or cached is None or cached <= prompt
    told = [reason for _, reason in rejects(store)]
    assert len(told) == summary.rejected + summary.conflicting
    for question in ("hit_ratio", "ingest_health", "requests"):
        json.dumps(ask(store, question), allow_nan=False)
