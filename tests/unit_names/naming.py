"""Naming rules by their description, in plain Python: what the SQL must come to."""

import csv
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from exporter.sources.names import SourceNames
from exporter.store.store import Store
from tests.log_path import Answer, by_id, load

KEY = "k"
PLACES = (
    ("headers",), ("request", "headers"), ("request_headers",), ("http", "request", "headers"),
    ("metadata", "headers"), ("metadata", "requester_custom_headers"),
    ("metadata", "requester_metadata", "headers"),
    ("proxy_server_request", "headers"),
)  # fmt: skip


def rules(**given: object) -> SourceNames:
    return SourceNames.model_validate(given)


def named(
    store: Store, rows: list[dict[str, Any]], source: str = "log", **given: object
) -> dict[str, Answer]:
    """Rows as stored under these rules, by request id."""
    filled = [{"ts": "2026-03-02T12:00:00Z", "prompt_tokens": 1000, "cached_tokens": 500,
               "request_id": f"r{number}", **row} for number, row in enumerate(rows)]  # fmt: skip
    load(store, filled, source, names={source: rules(**given)})
    return by_id(store, source)


def values(store: Store, rows: list[dict[str, Any]], **given: object) -> list[str | None]:
    """The names the rules of the only field give to the rows, in order."""
    [field] = given
    found = named(store, rows, **given)
    return [found[f"r{number}"][field] for number in range(len(rows))]


def expected(
    row: Mapping[str, Any], listed: list[dict[str, Any]], mapped: str | None
) -> str | None:
    """The name by rules as they are written, tried in order."""
    placed = [*listed] if any("mapped" in rule for rule in listed) else [*listed, {"mapped": True}]
    for rule in placed:
        if "constant" in rule:
            return str(rule["constant"])
        if "mapped" in rule:
            if mapped is not None:
                return mapped
            continue
        texts = _header(row, rule["header"]) if "header" in rule else _at(row, rule["field"])
        for text in texts:
            name = _made_of(text, rule)
            if name is not None:
                return name
    return None


def _made_of(value: object, rule: Mapping[str, Any]) -> str | None:
    if value is None or isinstance(value, dict | list):
        return None
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    name: str | None = text[:1024].strip(" \t\n\r")
    if name in ("", "-"):
        return None
    assert name is not None
    if "pattern" in rule:
        match = re.search(rule["pattern"], name)
        name = match[1] if match and match[1] else None
    if name is not None and "lookup" in rule:
        name = dict(csv.reader(Path(rule["lookup"]).read_text().splitlines())).get(name)
    if name is not None and rule.get("hashed"):
        name = hashlib.sha256(f"{KEY}name{name}".encode()).hexdigest()[:16]
    return name if name is not None and len(name) <= 256 else None


def _header(row: Mapping[str, Any], name: str) -> Iterator[object]:
    for place in PLACES:
        where: Any = row
        for key in place:
            where = where.get(key) if isinstance(where, dict) else None
        if isinstance(where, dict):
            for key, value in where.items():
                if key.lower() == name.lower():
                    found = value[0] if isinstance(value, list) and value else value
                    if found is not None and not isinstance(found, dict | list):
                        yield found
                        return
                    break


def _at(row: Mapping[str, Any], path: str) -> list[object]:
    """What the path leads to; `[*]` to every element, of which 64 count."""
    found: list[Any] = [row]
    for step in re.findall(r'"[^"]+"|\[\*\]|[^.\[\]"]+', path):
        if step == "[*]":
            found = [element for value in found if isinstance(value, list) for element in value]
        else:
            key = step.strip('"')
            found = [value[key] for value in found if isinstance(value, dict) and key in value]
    return found[:64]
