"""Good inputs to begin with: cases and pages of the tests, examples and captures at hand."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from exporter.errors import PrefixscopeError
from exporter.sources.formats import FORMATS
from exporter.sources.formats.detect import detect
from exporter.sources.formats.mapping import LogFormat, parts_of
from tests import strategies
from tests.log_path import CAPTURES, SHARED

TESTS = Path(__file__).parents[1]
CASES = TESTS / "unit_formats" / "cases"
PAGES = TESTS / "unit_engines" / "pages"
EXAMPLES = SHARED / "format-examples" / "examples.jsonl"

# Never to be found in a store, an error or a figure.
CANARY = "Zebra-Quartz vault"
# Where rows carry what people wrote and models answered.
_PROMPTS: dict[str, Any] = {
    "messages": [{"role": "user", "content": CANARY}],
    "prompt": CANARY,
    "content": [{"type": "text", "text": CANARY}],
    "system": CANARY,
    "text": CANARY,
    "input": CANARY,
    "output": [CANARY],
    "choices": [{"message": {"content": CANARY}}],
    "request_body": json.dumps({"messages": CANARY}),
}


@cache
def of_format(name: str) -> tuple[bytes, ...]:
    """Good inputs of a log format: lines without their ends, whole documents of the others."""
    (log_format,) = (known for known in FORMATS if known.name == name)
    chance = Random(name)
    found = [*_cases(name), *_at_hand().get(name, [])]
    if not log_format.documents:
        found += [strategies.line_of(log_format, chance).encode() for _ in range(20)]
    return tuple(found)


@cache
def _all_cases() -> list[dict[str, Any]]:
    return [
        yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(CASES.glob("*.yaml"))
    ]


def _cases(name: str) -> Iterator[bytes]:
    for case in _all_cases():
        if case["format"] != name:
            continue
        if "input" in case:
            yield case["input"].encode()
        for entry in case.get("rows", ()):
            yield entry["line"].encode() if "line" in entry else json.dumps(entry["row"]).encode()


@cache
def _at_hand() -> dict[str, list[bytes]]:
    """By format, examples and captures that lie beside the project; none where they do not."""
    found: dict[str, list[bytes]] = {}
    records = [json.loads(line)["record"] for line in _lines(EXAMPLES)]
    texts = [r.encode() if isinstance(r, str) else json.dumps(r).encode() for r in records]
    for file in sorted(CAPTURES.glob("*/*/*.jsonl")):
        texts += _lines(file)[:5]
    for text in texts:
        try:
            name = detect(text, "seed").log_format.name
        except PrefixscopeError:
            continue
        found.setdefault(name, []).append(text)
    return found


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines() if file.is_file() else []


def with_prompts(line: bytes, log_format: LogFormat) -> bytes:
    """A row that also carries prompt text wherever rows have it; other lines as they are."""
    try:
        row = json.loads(line)
    except ValueError:
        return line
    read = {
        part for entry in log_format.fields for path in entry.terms() for part in parts_of(path)
    }
    read |= {case.path.split(".")[-1] for entry in log_format.fields for case in entry.cases}
    prompts = {key: value for key, value in _PROMPTS.items() if key not in read}
    if isinstance(row, dict):
        for within in [row, *(value for value in row.values() if isinstance(value, dict))]:
            for key, value in prompts.items():
                within.setdefault(key, value)
    return json.dumps(row).encode()


def of_engine(name: str) -> tuple[bytes, ...]:
    """Metric pages of a program, in all its eras."""
    return tuple(file.read_bytes() for file in sorted((PAGES / name).glob("*.*")))
